"""The page of `teamctl web` in Debian's chromium, with a running team."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import axe_core_python
import pytest

from teamd.files import pidfile
from teamd.team.roster import Roster, Team
from teamd.team.states import Status
from tests.e2e.browser import Browser, served
from tests.e2e.conftest import SHOWN, asked
from tests.e2e.harness import Project, opened
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


VIEWS: Final = (
    "", "mail", "board", "queue", "usage", "roster", "way", "lesson", "member/alice",
    "member/alice%7Cmail", "member/alice%7Clog", "member/alice%7Cdiff", "member/alice%7Climits",
)  # fmt: skip
# Records when each message was shown.
NOTE_TIMES: Final = """
window.seen = {}
new MutationObserver(() => {
    for (const one of document.querySelectorAll('.mail pre')) seen[one.textContent] ??= Date.now()
}).observe(document.querySelector('main'), {childList: true, subtree: true, characterData: true})
"""
# The time of each stage of a message's way, from the page.
STAGES: Final = """
return Object.fromEntries([...document.querySelectorAll('.step')]
    .map((one) => [one.dataset.stage, Number(one.dataset.at)]))
"""
# The controls that Tab should reach.
CONTROLS: Final = """
return [...document.querySelectorAll('a, button, input, textarea, select, summary, [tabindex="0"]')]
    .filter((one) => one.checkVisibility() && !one.disabled)
    .map((one) => one.outerHTML.slice(0, 200))
"""


def changed(team: Team, name: str, turns: int) -> Team:
    """Return the team with a member that has had so many turns; the member is added if missing."""
    if team.find(name) is None:
        return team.with_new(name, role="coder", status=Status.IDLE, turns=turns)
    return team.with_member(replace(team.get(name), turns=turns))


def open_request(project: Project) -> dict[str, Any]:
    """Wait for bob's request, since he may not have asked yet; return it."""
    wait_until(lambda: asked(project), what="bob asks")
    (request,) = asked(project)
    return request


def shown_roster(page: Browser) -> Any:
    """Return the document that the page shows as `config.json`."""
    text = page.run("return document.querySelector('#file')?.innerText ?? 'null'")
    return json.loads(text)


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
    assert [state.split()[-1] for state in states] == [one["state"] for one in shown]


def test_a_request_is_answered_in_place(page: Browser, busy: Project) -> None:
    request = open_request(busy)
    page.press("Reject what bob asks")
    page.see("Say why")  # a rejection needs a reason
    assert asked(busy) == [request]
    page.find("#waiting input[type=text]").send_keys("Not now.")
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
    assert page.all(".talk pre b") == []
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
    page.find("a[aria-label='Way of the message from lead to alice']").click()
    page.see("In the conversation")
    identity = page.run("return decodeURIComponent(location.hash.split('/')[2])")
    (way,) = json.loads(busy.do("teamctl", "trace", identity, "--json"))["receivers"]
    wait_until(lambda: len(page.all(".step.past")) == 4, what="all of its way is shown")
    stages = page.run(STAGES)  # at once: the page may redraw them
    for stage in ("sent", "taken", "delivered"):
        assert stages[stage] == way[stage]


@pytest.mark.parametrize(
    "count",
    [12, pytest.param(500, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
def test_the_page_shows_each_change_of_the_roster_file(
    browser: Browser, tmp_path: Path, count: int
) -> None:
    """Members join, change and leave: the fewest changes that cover each kind."""
    page = browser
    with opened(tmp_path) as project:
        project.enlist("alice")
        with served(project) as server:
            page.open(server.link)
            page.go("roster")
            page.see('"alice"')
            roster = Roster(project.paths)
            for number in range(count):
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
            assert marks == [str(count - 1)]
    page.complaints()  # that server has ended


@pytest.mark.parametrize("lines", [9, pytest.param(50, marks=pytest.mark.long)])
def test_a_line_appended_under_flock_is_seen_within_a_tenth_of_a_second(
    page: Browser, busy: Project, lines: int
) -> None:
    page.go(f"mail/flocked-{lines}-")
    page.see("0 messages")
    inbox = busy.paths.inbox("lead")
    page.run(NOTE_TIMES)
    took = []
    for number in range(lines):
        word = f"flocked-{lines}-{number}"
        line = json.dumps({"from": "cron", "content": word})
        subprocess.run(["flock", inbox, "-c", f"echo '{line}' >> {inbox}"], check=True)
        written = time.time()
        seen = f"return window.seen['{word}']"
        wait_until(lambda seen=seen: page.run(seen), what="the page shows it")  # type: ignore[misc]
        took.append(page.run(seen) / 1000 - written)
    print(f"{statistics.median(took) * 1000:.0f} ms, the median of {lines}")  # noqa: T201 -- `-s` shows figures
    assert statistics.median(took) < 0.1


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
    there = len(page.run(CONTROLS))
    assert page.reached_by_tab(there + 5) >= there - 1  # a control may come or go meanwhile


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


def test_headings_and_figures_are_not_broken_across_lines(page: Browser) -> None:
    page.resize(820)  # the narrowest width of the table
    page.settle()
    heights = page.run("return [...document.querySelectorAll('th, td')].map((x) => x.offsetHeight)")
    line = page.run("return document.querySelector('tbody th').offsetHeight")
    assert max(heights) <= line < 50


def test_an_error_disappears_in_the_next_view(page: Browser) -> None:
    page.go("member/nobody")
    page.see("no teammate named 'nobody'")
    page.go("board")
    page.miss("no teammate named 'nobody'")
    page.complaints()  # the console reports the answer 409


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
            assert unable(browser) == {"Spawn"}
            browser.go("member/ann")
            browser.see("No teamd runs; start it with `teamd start`.")
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


def test_a_conversation_of_a_hundred_megabytes_opens_within_a_second(
    browser: Browser, tmp_path: Path
) -> None:
    with opened(tmp_path) as project:
        project.enlist("alice")
        with project.paths.transcript("alice").open("wb") as writing:
            begin, end = b'{"record": "result", "tool_use_id": "%d", ', b'"content": "%b"}\n'
            long = end % (b"x" * 100_000)
            for number in range(1000):
                writing.write(begin % number + long)
            last = {"record": "reply", "content": [{"type": "text", "text": "The last words."}]}
            writing.write(json.dumps(last).encode() + b"\n")
        with served(project) as server:
            browser.open(server.link)
            browser.see("The team")
            began = time.monotonic()
            browser.go("member/alice")
            browser.see("The last words.")
            assert time.monotonic() - began < 1
    browser.complaints()
