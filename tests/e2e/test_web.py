"""The page of `teamctl web` in Debian's chromium, with a running team."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import axe_core_python
import pytest

from teamd.files import pidfile
from tests.e2e.browser import Browser, Server, served
from tests.e2e.conftest import HOSTILE, SHOWN, asked
from tests.e2e.harness import Project, opened
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


VIEWS: Final = (
    "", "chat", "mail", "board", "queue", "changes", "usage", "log", "help", "roster", "way",
    "lesson", "member/alice",
    "member/alice%7Cmail", "member/alice%7Clog", "member/alice%7Cdiff", "member/alice%7Climits",
)  # fmt: skip
# The time of each stage of a message's way, from the page.
STAGES: Final = """
return Object.fromEntries([...document.querySelectorAll('.step')]
    .map((one) => [one.dataset.stage, Number(one.dataset.at)]))
"""
# The names of all forms, of buttons that act, and of boxes to write into outside of a form.
ACTING: Final = """
const words = ['Approve', 'Reject', 'Send', 'Shut', 'Interrupt', 'Pause', 'Resume', 'Spawn',
  'Broadcast', 'Add', 'Claim', 'Move', 'Delete', 'Remove', 'Comment', 'Raise'];
const acts = (name) => name === 'Write' || words.includes(name.split(' ')[0]);
return [...document.querySelectorAll('form')].map((one) => one.ariaLabel ?? one.role)
  .concat([...document.querySelectorAll('button')].map((one) => one.ariaLabel ?? one.innerText)
    .filter(acts))
  .concat([...document.querySelectorAll('textarea, [draggable]')].map((one) => one.outerHTML));
"""
BUTTONS: Final = "return [...document.querySelectorAll('dialog button')].map((x) => x.textContent)"
# The controls that Tab should reach.
CONTROLS: Final = """
return [...document.querySelectorAll('a, button, input, textarea, select, summary, [tabindex="0"]')]
    .filter((one) => one.checkVisibility() && !one.disabled)
    .map((one) => one.outerHTML.slice(0, 200))
"""


def open_request(project: Project) -> dict[str, Any]:
    """Wait for bob's request, since he may not have asked yet; return it."""
    wait_until(lambda: asked(project), what="bob asks")
    (request,) = asked(project)
    return request


def test_the_page_shows_open_requests_and_current_work(page: Browser, busy: Project) -> None:
    request = open_request(busy)
    for words in (
        "1 waits for you",
        request["id"],
        "git push",
        "alice",
        "coder",
        "idle",
        "waiting",
    ):
        page.see(words)
    does = page.run("return [...document.querySelectorAll('td .cut')].map((x) => x.innerText)")
    assert does == ["", f"bash {request['input']['command']}"]
    shown = json.loads(busy.do("teamctl", "team", "--json"))["members"]
    states = page.run("return [...document.querySelectorAll('td .state')].map((x) => x.innerText)")
    assert states == [one["state"] for one in shown]


def test_a_request_is_answered_in_place(page: Browser, busy: Project) -> None:
    request = open_request(busy)
    page.press("Reject what bob asks")
    page.see("Say why")  # a rejection needs a reason
    assert asked(busy) == [request]
    page.find("main .requests input").send_keys("Not now.")
    page.press("Reject what bob asks")
    page.see(f"rejected the permission of bob ({request['id']})")
    wait_until(lambda: asked(busy) and asked(busy) != [request], what="bob asks for the next")
    request = open_request(busy)
    page.see(request["id"])
    busy.do("teamctl", "approve", request["id"])  # outside the page
    page.miss(request["id"])


def test_a_working_teammate_is_shown_as_such(page: Browser) -> None:
    page.go("member/alice")
    for words in ("lead → alice", "echo hello; exit 3", "✗ exit status 3", "Done.", SHOWN):
        page.see(words)
    assert page.all(".talk b") == []
    page.run("document.querySelector('.call summary').click()")
    page.see("hello")
    page.press("Log")
    page.see("begins")
    page.press("Limits")
    page.see("tokens, $")
    page.press("Changes")
    page.see("alice has no working copy")


def test_mail_can_be_found_written_and_followed(page: Browser, busy: Project) -> None:
    page.go("mail")
    page.see("Begin.")
    page.find("input[type=search]").send_keys("nothing of the kind")
    page.see("0 messages")
    page.run("document.querySelector('input[type=search]').value = ''")
    page.find("input[type=search]").send_keys("Begin.")
    page.see("1 message")
    page.go("member/alice")
    page.find("main textarea").send_keys("Written on the page.")
    page.press("Send")
    page.see("sent to alice")
    wait_until(lambda: "Written on the page." in str(busy.records("alice", "mail")), what="it came")
    page.go("mail/Written")
    page.see("1 message")
    page.find("a[aria-label='Way of the message from lead to alice']").click()
    page.see("In the conversation")
    identity = page.run("return decodeURIComponent(location.hash.split('/')[2])")
    (way,) = json.loads(busy.do("teamctl", "trace", identity, "--json"))["receivers"]
    wait_until(lambda: len(page.all(".step.past")) == 4, what="all of its way is shown")
    stages = page.run(STAGES)  # at once: the page may redraw them
    for stage in ("sent", "taken", "delivered"):
        assert stages[stage] == way[stage]


def test_the_page_reports_a_restarted_server_and_connects_to_it(
    browser: Browser, tmp_path: Path
) -> None:
    with opened(tmp_path) as project:
        project.enlist("alice")
        with served(project) as first:
            browser.open(first.link)
            browser.see("alice")
            port = str(first.address[1])
        browser.see("The server does not answer. Trying again")
        with served(project, "--port", port) as second:
            browser.see("This link is of a server that has ended.")
            project.enlist("alice", "carol")
            browser.find("#new-link").send_keys(second.link)
            browser.press("Connect")
            browser.see("The server was started anew")
            browser.see("carol")
            browser.miss("Trying again")
    browser.complaints()


def test_every_control_is_reached_by_tab_and_has_a_name(page: Browser) -> None:
    for view in VIEWS:
        page.go(view)
        wait_until(lambda: page.run(CONTROLS))
        assert page.nameless() == []
    page.go("")
    page.see("Broadcast")

    def are_reached() -> bool:
        there = len(page.run(CONTROLS))
        return page.reached_by_tab(there + 5) >= there - 1  # a control may come or go meanwhile

    wait_until(are_reached, what="Tab reaches every control")


def test_axe_finds_no_serious_problem(page: Browser) -> None:
    source = Path(os.environ.get("AXE", Path(axe_core_python.__file__).parent / "axe.min.js"))
    page.inject(source.read_text(encoding="utf-8"))
    # Dark mode differs only in colours. Leave out passed rules and selectors, which are not used.
    brief = "resultTypes: ['violations'], selectors: false"
    for dark, only in ((False, ""), (True, ", runOnly: ['color-contrast']")):
        page.prefer(dark=dark)
        for view in VIEWS:
            page.go(view)
            page.settle()
            found = page.wait_for_script(
                f"axe.run({{{brief}{only}}}).then((found) => found.violations)"
            )
            bad = [
                (view, one["id"], [node["html"] for node in one["nodes"]])
                for one in found
                if one["impact"] in ("serious", "critical")
            ]
            assert bad == []
    page.prefer(dark=False)


def test_no_view_is_wider_than_the_window(page: Browser) -> None:
    """Set SHOTS to a folder to save screenshots there."""
    folder = os.environ.get("SHOTS")
    for view in VIEWS:
        page.go(view)
        for width in (360, 1280, 2560):
            page.resize(width)
            page.settle()
            if folder:
                name = view.replace("/", "-").replace("%7C", "-") or "overview"
                page.driver.save_screenshot(f"{folder}/{name}-{width}.png")
            assert page.run("return document.documentElement.scrollWidth") <= width, view


def unable(page: Browser) -> set[str]:
    """Return the disabled buttons."""
    script = "return [...document.querySelectorAll('[aria-disabled]')].map((x) => x.textContent)"
    return set(page.run(script))


def test_a_disabled_control_gives_the_reason(browser: Browser, tmp_path: Path) -> None:
    """Interrupt and Pause were once offered for a teammate without a process."""
    with opened(tmp_path) as project, ExitStack() as claimed:
        project.enlist("ann", status="shutdown")
        with served(project) as server:
            browser.open(server.link)
            browser.see("shutdown")
            browser.press("Spawn a teammate")
            assert unable(browser) == {"Spawn"}
            browser.press("Cancel")
            browser.go("member/ann")
            browser.see("No teamd runs; start it with teamd start.")
            claimed.callback(os.close, pidfile.claim(project.paths))
            browser.see("ann is shut down; spawn it on the overview, and it goes on.")
            assert unable(browser) == {"Interrupt", "Pause", "Shut down"}
            for name in unable(browser):
                browser.press(name)
                said = browser.run("return document.querySelector('#said').textContent")
                assert said.startswith("ann is shut down; spawn it")
            assert not browser.all("dialog[open]")
            project.enlist("ann", status="failed")
            browser.see("ann has failed; spawn it on the overview, and it goes on.")
            assert unable(browser) == {"Interrupt", "Pause"}
            project.enlist("ann", status="idle")
            browser.miss("ann has failed; spawn it on the overview, and it goes on.")
            assert unable(browser) == set()
            browser.press("Limits")
            browser.see("No limit stops ann: it is idle.")
            assert unable(browser) == {"Raise and resume"}


def test_the_token_is_not_visible_and_no_cookie_is_set(page: Browser, server: Server) -> None:
    assert server.token not in page.run("return location.href + document.documentElement.outerHTML")
    assert page.run("return document.cookie") == ""
    assert page.run("return [...Object.keys(localStorage)]") == []
    page.driver.refresh()
    page.see("The team")  # the tab keeps the token


def test_hostile_text_is_shown_as_text_everywhere(page: Browser, busy: Project) -> None:
    busy.do("teamctl", "send", "alice", HOSTILE, "--summary", HOSTILE)
    for view in ("mail", "board", "member/alice"):
        page.go(view)
        page.settle()
        if view == "board":
            page.press("Write the docs")  # its description is in a dialog
        page.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
        wait_until(lambda: SHOWN in page.text, what=f"{view} shows it as text")
        assert "\u202e" not in page.text
        assert page.all("main img, main b, dialog b, dialog img, main script") == []
    assert "run" not in page.driver.title


def test_text_cannot_become_html_by_mistake(page: Browser) -> None:
    """Trusted Types: parsing a text as HTML is an error in this page."""
    for slip in ("document.body.innerHTML = 'x'", "document.write('x')"):
        said = page.run(f"try {{ {slip}; return 'done'; }} catch (error) {{ return error.name; }}")
        assert said == "TypeError", slip
    page.complaints()


def test_a_read_only_page_offers_no_actions(page: Browser, server: Server) -> None:
    page.press("Read-only link")
    link = page.find("dialog code").text
    page.open(link)
    page.see("read-only")
    page.see("git push")
    page.see("teamctl approve")
    page.go("member/alice")
    page.see("lead → alice")
    for view in VIEWS:
        page.go(view)
        page.settle()
        assert set(page.run(ACTING)) <= {"search", "Find a message"}, view
    page.go("board")
    page.press("Write the docs")
    assert page.run(BUTTONS) == ["Close"]
    assert server.token not in link


def test_a_page_on_another_local_port_gets_nothing(browser: Browser, server: Server) -> None:
    """The real browser tries everything that such a page can do."""
    browser.open_elsewhere()
    api, shown = f"http://{server.host}/api", f"{{Authorization: 'Bearer {server.token}'}}"
    tries = {
        "read": f"fetch('{api}/session')",
        "no-cors": f"fetch('{api}/do/send', {{method: 'POST', mode: 'no-cors', body: '{{}}'}})",
        "token": f"fetch('{api}/session', {{headers: {shown}}})",
        "script": f"import('http://{server.host}/main.js')",
    }
    said = {
        name: browser.wait_for_script(f"{work}.then(() => 'done', () => 'refused')")
        for name, work in tries.items()
    }
    assert said == dict.fromkeys(tries, "refused")
    framed = (
        "new Promise((go) => { const one = document.createElement('iframe');"
        f" one.src = 'http://{server.host}/'; one.onload = () => {{"
        " let found = 'hidden'; try { found = one.contentDocument?.title ?? 'hidden' } catch {}"
        " go(found) }; document.body.append(one) })"
    )
    assert browser.wait_for_script(framed) != "teamd"
    browser.complaints()
