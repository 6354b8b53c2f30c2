"""The page of `teamctl web` in Debian's chromium, on a team that runs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import axe_core_python
import pytest

from teamd.states import Status
from teamd.team.roster import Roster
from tests.e2e.browser import Browser, chromium
from tests.e2e.harness import opened
from tests.e2e.served import Server, served
from tests.strict.replies import say, use
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.team.roster import Team
    from tests.e2e.harness import Project

HOSTILE: Final = "<img src=x onerror=\"document.title='run'\"></script><b>\x1b[31mred\u202egnp.exe"
SHOWN: Final = "<img src=x onerror=\"document.title='run'\"></script><b>\\x1b[31mred\\u202egnp.exe"
RULE: Final = '[[permission]]\ntool = "bash"\ncommand = "git push"\nthen = "ask"\n'
VIEWS: Final = (
    "", "mail", "board", "queue", "usage", "roster", "way", "lesson", "member/alice",
    "member/alice%7Cmail", "member/alice%7Clog", "member/alice%7Cdiff", "member/alice%7Climits",
)  # fmt: skip
# What can be reached by Tab, and what of it has no name.
CONTROLS: Final = """
return [...document.querySelectorAll('a, button, input, textarea, select, summary, [tabindex="0"]')]
    .filter((one) => one.checkVisibility() && !one.disabled)
    .map((one) => one.outerHTML.slice(0, 200))
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A team that runs: alice has done something, and what bob wants to do has to be allowed."""
    with opened(tmp_path_factory.mktemp("busy")) as made:
        made.write("team.toml", RULE)
        failing = use(("bash", {"command": "echo hello; exit 3"}))
        writing = use(("write_file", {"path": "a.txt", "content": HOSTILE}))
        made.stage.play("alice", failing, writing, say(f"Done. {HOSTILE}"))
        pushes = [use(("bash", {"command": f"git push {n}"})) for n in range(9)]
        made.stage.play("bob", *pushes, say("Done."))
        made.start()
        made.do("teamctl", "task", "add", "Write the docs", "--description", HOSTILE)
        made.do("teamctl", "spawn", "alice", "coder", "Begin.", "--wait")
        made.do("teamctl", "spawn", "bob", "tester", "Push it.")
        wait_until(lambda: asked(made), what="bob asks")
        yield made


@pytest.fixture(scope="module")
def server(busy: Project) -> Iterator[Server]:
    with served(busy) as made:
        yield made


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Browser]:
    """The page, just opened; its console holds no error in the end."""
    browser.resize(1280)
    browser.open(server.link)
    browser.see("The team")
    yield browser
    assert browser.complaints() == []


def asked(project: Project) -> list[dict[str, Any]]:
    """Return the open requests."""
    found = json.loads(project.do("teamctl", "requests", "--json"))["requests"]
    return [one for one in found if one["type"] == "permission_request"]


def changed(team: Team, name: str, turns: int) -> Team:
    """Return a team in which a member has had so many turns; it is new, or known already."""
    if team.find(name) is None:
        return team.with_new(name, role="coder", status=Status.IDLE, turns=turns)
    return team.with_member(replace(team.get(name), turns=turns))


def shown_roster(page: Browser) -> Any:
    """Return the document that the page shows as `config.json`."""
    text = page.run("return document.querySelector('#file')?.innerText ?? 'null'")
    return json.loads(text)


def test_the_page_shows_who_waits_and_who_does_what(page: Browser, busy: Project) -> None:
    (request,) = asked(busy)
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
    shown = json.loads(busy.do("teamctl", "team", "--json"))["members"]
    states = page.run("return [...document.querySelectorAll('td .state')].map((x) => x.innerText)")
    assert [state.split()[-1] for state in states] == [one["state"] for one in shown]


def test_the_token_is_seen_nowhere_and_no_cookie_is_set(page: Browser, server: Server) -> None:
    assert server.token not in page.run("return location.href + document.documentElement.outerHTML")
    assert page.run("return document.cookie") == ""
    assert page.run("return [...Object.keys(localStorage)]") == []
    page.driver.refresh()
    page.see("The team")  # it is kept for this tab


def test_a_request_is_answered_in_place(page: Browser, busy: Project) -> None:
    (request,) = asked(busy)
    page.press("Reject what bob asks")
    page.see("Say why")  # a rejection without a reason helps nobody
    assert asked(busy) == [request]
    page.find("#waiting input[type=text]").send_keys("Not now.")
    page.press("Reject what bob asks")
    page.see(f"rejected: the request {request['id']} of bob")
    wait_until(lambda: asked(busy) and asked(busy) != [request], what="bob asks for the next")
    (request,) = asked(busy)
    page.see(request["id"])
    busy.do("teamctl", "approve", request["id"])  # elsewhere
    page.miss(request["id"])


def test_a_teammate_is_seen_at_work(page: Browser) -> None:
    page.go("member/alice")
    for words in ("lead → alice", "echo hello; exit 3", "Done.", SHOWN):
        page.see(words)
    assert page.all(".talk pre b") == []
    page.run("document.querySelector('.call summary').click()")
    page.see("hello")
    page.press("Log")
    page.see("begins")
    page.press("Limits")
    page.see("tokens, $")
    page.press("Changes")
    page.see("alice has no working copy")


def test_mail_is_found_written_and_followed(page: Browser, busy: Project) -> None:
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
    page.find("a[aria-label='Way of the message from lead to alice']").click()
    page.see("In the conversation")
    identity = page.run("return decodeURIComponent(location.hash.split('/')[2])")
    (way,) = json.loads(busy.do("teamctl", "trace", identity, "--json"))["receivers"]
    wait_until(lambda: len(page.all(".step.past")) == 4, what="all of its way is shown")
    stages = {one.get_attribute("data-stage"): one for one in page.all(".step")}
    for stage in ("sent", "taken", "delivered"):
        assert float(stages[stage].get_attribute("data-at") or 0) == way[stage]


def test_the_roster_is_its_file_at_each_of_500_changes(
    page: Browser, tmp_path: Path, browser: Browser
) -> None:
    with opened(tmp_path) as project:
        project.enlist("alice")
        with served(project) as server:
            browser.open(server.link)
            page.go("roster")
            page.see('"alice"')
            roster = Roster(project.paths)
            for number in range(500):
                name = f"n{number % 7}"
                if number % 5:
                    roster.update(lambda team, name=name, n=number: changed(team, name, n))  # type: ignore[misc]
                else:
                    roster.update(lambda team, name=name: team.without(name))  # type: ignore[misc]
                want = json.loads(project.paths.config.read_bytes())
                wait_until(lambda want=want: shown_roster(page) == want)  # type: ignore[misc]
            marks = page.run(
                "return [...document.querySelectorAll('mark')].map((x) => x.innerText)"
            )
            assert marks == ["499"]
    browser.complaints()  # that server has ended


def test_hostile_words_are_text_everywhere(page: Browser, busy: Project) -> None:
    busy.do("teamctl", "send", "alice", HOSTILE, "--summary", HOSTILE)
    for view in ("mail", "board", "member/alice"):
        page.go(view)
        page.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
        wait_until(lambda: SHOWN in page.text, what=f"{view} shows it as text")
        assert "\u202e" not in page.text
        assert page.all("main img, main b, main script") == []
    assert "run" not in page.driver.title


def test_no_text_becomes_html_by_a_slip(page: Browser) -> None:
    """Trusted Types: what would parse a text is an error in this page."""
    for slip in ("document.body.innerHTML = 'x'", "document.write('x')"):
        said = page.run(f"try {{ {slip}; return 'done'; }} catch (error) {{ return error.name; }}")
        assert said == "TypeError", slip
    page.complaints()


def test_a_line_that_flock_appends_is_seen_within_a_tenth_of_a_second(
    page: Browser, busy: Project
) -> None:
    page.go("mail/flocked")
    page.see("0 messages")
    inbox = busy.paths.inbox("lead")
    script = "window.seen = {}; new MutationObserver(() => { for (const one of document.querySelectorAll('.mail pre')) window.seen[one.textContent] ??= Date.now(); }).observe(document.body, {childList: true, subtree: true, characterData: true});"
    page.run(script)
    took = []
    for number in range(50):
        line = json.dumps({"from": "cron", "content": f"flocked {number}"})
        subprocess.run(["flock", inbox, "-c", f"echo '{line}' >> {inbox}"], check=True)
        written = time.time()
        seen = f"return window.seen['flocked {number}']"
        wait_until(lambda seen=seen: page.run(seen), what="the page shows it")  # type: ignore[misc]
        took.append(page.run(seen) / 1000 - written)
    print(
        f"\nseen after {statistics.median(took) * 1000:.0f} ms (median), {max(took) * 1000:.0f} ms"
    )
    assert statistics.median(took) < 0.1


def test_a_new_server_is_said_and_taken_up(browser: Browser, tmp_path: Path) -> None:
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


def test_a_read_only_page_has_nothing_to_act_with(page: Browser, server: Server) -> None:
    page.press("Read-only link")
    link = page.find("dialog code").text
    page.open(link)
    page.see("read-only")
    page.see("git push")
    page.see("teamctl approve")
    page.go("member/alice")
    page.see("lead → alice")
    acting = page.run("return [...document.querySelectorAll('button')].map((one) => one.innerText)")
    assert not {"Approve", "Reject", "Send", "Shut down", "Interrupt", "Pause"} & set(acting)
    assert server.token not in link


def test_every_control_is_reached_by_tab_and_has_a_name(page: Browser) -> None:
    for view in VIEWS:
        page.go(view)
        wait_until(lambda: page.run(CONTROLS))
        assert page.nameless() == []
    page.go("")
    page.see("Broadcast")
    there = len(page.run(CONTROLS))
    assert page.reached_by_tab(there + 5) >= there - 1  # one may come or go meanwhile


def test_axe_finds_nothing_serious(page: Browser) -> None:
    source = Path(os.environ.get("AXE", Path(axe_core_python.__file__).parent / "axe.min.js"))
    page.inject(source.read_text(encoding="utf-8"))
    for dark in (False, True):
        page.prefer(dark=dark)
        for view in VIEWS:
            page.go(view)
            page.settle()
            found = page.wait_for_script("axe.run()")["violations"]
            bad = [
                (view, one["id"], [node["html"] for node in one["nodes"]])
                for one in found
                if one["impact"] in ("serious", "critical")
            ]
            assert bad == []
    page.prefer(dark=False)


def test_no_view_is_wider_than_the_window(page: Browser) -> None:
    """Set SHOTS to a folder to look at the pictures."""
    folder = os.environ.get("SHOTS")
    for view in VIEWS:
        for width in (360, 1280, 2560):
            page.resize(width)
            page.go(view)
            page.settle()
            if folder:
                name = view.replace("/", "-").replace("%7C", "-") or "overview"
                page.driver.save_screenshot(f"{folder}/{name}-{width}.png")
            assert page.run("return document.documentElement.scrollWidth") <= width, view


def test_a_page_on_another_local_port_gets_nothing(browser: Browser, server: Server) -> None:
    """The browser itself, with all that such a page can try."""
    browser.open_elsewhere()
    tries = {
        "read": f"fetch('http://{server.host}/api/session')",
        "no-cors": f"fetch('http://{server.host}/api/do/send', {{method: 'POST', mode: 'no-cors', body: '{{}}'}}).then((r) => r.type)",
        "token": f"fetch('http://{server.host}/api/session', {{headers: {{Authorization: 'Bearer {server.token}'}}}})",
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
