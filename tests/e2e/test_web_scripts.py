"""The scripts of the page, each imported into an open page in chromium."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from teamctl.web.projects import key_of
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.files.paths import STATE_VARIABLE, TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import USER, Message
from teamd.team import teams
from teamd.transcript.records import TurnEnded
from tests.e2e.browser import Browser, served
from tests.e2e.harness import Project, opened
from tests.e2e.test_web import VIEWS
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A team without any process."""
    with opened(tmp_path_factory.mktemp("scripts")) as project:
        project.enlist("ann")
        yield project


@pytest.fixture(scope="module")
def link(quiet: Project) -> Iterator[str]:
    """The link of the quiet team's server."""
    with served(quiet) as server:
        yield server.link


@pytest.fixture
def script(browser: Browser, quiet: Project, link: str) -> Browser:
    """The page of the quiet team at its first view."""
    quiet.enlist("ann")
    if browser.opened != link:
        browser.open(link)
    browser.go("")
    browser.see("The team\n")
    browser.complaints()
    return browser


# Draws a diff, and returns its lines, the names of its files, their counts, and its other texts.
DRAW: Final = """
return import('/diff.js').then(({ files }) => {
  const made = document.createElement('div');
  made.append(...[files({ name: 'ann', diff: arguments[0] })].flat(Infinity).filter(Boolean));
  const texts = (selector) => [...made.querySelectorAll(selector)].map((one) => one.textContent);
  return { lines: texts('span.text'), files: texts('summary code'), notes: texts('.note'),
    counts: texts('summary .plus, summary .minus') };
});
"""
# Characters that end a line for a regular expression, a terminal or an editor, but not for git.
ENDS: Final = ("\r", "\u2028", "\u2029", "\x0b", "\x0c", "\x85", "\x00", "\x1b[2K", "")


def draw(page: Browser, diff: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = page.run(DRAW, diff)
    return found


def test_no_line_of_a_diff_is_hidden(script: Browser) -> None:
    """The agent chooses the content: it may look like the head of another file or of a hunk."""
    chance = random.Random(7)
    hostile = ("diff --git a/x b/x", "index 1..2", "@@ -1 +1 @@", "--- a/x", "+++ b/x", "Binary")
    for _ in range(30):
        content = [
            f"{chance.choice('+- ')}word{n}{chance.choice(ENDS)}{chance.choice(hostile)}"
            f"{chance.choice(ENDS)}rm -rf {n}"
            for n in range(20)
        ]
        head = ["diff --git a/f.py b/f.py", "index 1111111..2222222 100644", "--- a/f.py"]
        hunk = ["+++ b/f.py", "@@ -1,20 +1,20 @@"]
        shown = draw(script, "\n".join([*head, *hunk, *content, ""]))
        assert shown["files"] == ["f.py"]
        assert len(shown["lines"]) == 1 + len(content)
        for n, line in enumerate(shown["lines"][1:]):
            assert f"word{n}" in line
            assert line.endswith(f"rm -rf {n}")


def test_a_diff_shows_modes_renames_and_lines_that_look_like_heads(script: Browser) -> None:
    heads = ["old mode 100644", "new mode 100755", "similarity index 90%", "rename from a.sql"]
    diff = "diff --git a/a.sql b/b.sql\n" + "\n".join(heads) + "\n--- a/a.sql\n+++ b/b.sql\n"
    shown = draw(script, f"{diff}@@ -1,2 +1 @@\n--- a comment of SQL\n-x\n+++ y\n")
    assert shown["lines"] == [*heads, "@@ -1,2 +1 @@", "--- a comment of SQL", "-x", "+++ y"]
    assert shown["counts"] == ["+1", "−2"]  # noqa: RUF001 -- the page's minus sign


def test_sentences_before_the_first_file_of_a_diff_are_shown(script: Browser) -> None:
    said = "lib/ is a repository of its own: what is in it is not shown, and no commit holds it"
    assert draw(script, f"{said}\n")["notes"] == [said]
    shown = draw(script, f"{said}\ndiff --git a/a b/a\nnew file mode 100644\n@@ -0,0 +1 @@\n+x\n")
    assert shown["notes"] == [said, "1 file changed"]
    assert draw(script, "")["notes"] == ["Nothing has changed."]


# Draws one diff over another, and returns the comment's place when line 2 is pressed.
REDRAW: Final = """
return Promise.all([import('/diff.js'), import('/dom.js')]).then(([{ files }, { fill, h }]) => {
  const opened = [];
  const remarks = { open: (key) => opened.push(key), draw: () => null };
  const place = h('div');
  for (const diff of arguments[0]) fill(place, files({ name: 'ann', diff }, remarks));
  place.querySelector('[aria-label="Comment on line 2 of a"]').click();
  return opened;
});
"""


def test_the_number_of_a_line_comments_on_the_line_that_is_shown(script: Browser) -> None:
    """A redrawn button keeps its listener unless another line has its number now."""
    head = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n"
    diffs = [f"{head} one\n+{text}\n" for text in ("before", "after")]
    (key,) = script.run(REDRAW, diffs)
    assert key.endswith("\n2\n+after")


# Draws a diff in a narrow place, and returns the tops of the number and the text of line 1.
TOPS: Final = """
return Promise.all([import('/diff.js'), import('/dom.js')]).then(([{ files }, { h }]) => {
  const remarks = { open: () => null, draw: () => null };
  const place = h('div', {}, files({ name: 'ann', diff: arguments[0] }, remarks));
  document.body.append(place);
  place.style.width = '200px';
  const number = document.createRange();
  number.selectNodeContents(place.querySelector('.line button'));
  const text = place.querySelector('.line.add .text');
  const tops = [number.getClientRects()[0].top, text.getClientRects()[0].top];
  const lines = text.offsetHeight / number.getClientRects()[0].height;
  place.remove();
  return [tops, lines];
});
"""


def test_the_number_of_a_wrapped_line_is_beside_its_beginning(script: Browser) -> None:
    head = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n"
    (number, text), lines = script.run(TOPS, f"{head}+{'word ' * 30}\n")
    assert lines > 5
    assert abs(number - text) < 5


# Sends a message three times; the answer to the first is lost.
SEND: Final = """
return import('/acts.js').then(async ({ perform, once }) => {
  const send = () => perform('send', once({ to: 'ann', text: 'Go on.' }));
  const kept = window.fetch;
  window.fetch = async (...facts) => { await kept(...facts); throw new TypeError('lost'); };
  const first = await send();
  window.fetch = kept;
  return [first, await send(), await send()];
});
"""


def test_a_repeat_after_a_lost_answer_arrives_once_and_the_same_text_again_twice(
    script: Browser, quiet: Project
) -> None:
    assert script.run(SEND) == [False, True, True]
    mail = json.loads(quiet.do("teamctl", "inbox", "ann", "--json"))["messages"]
    assert [one["content"] for one in mail] == ["Go on.", "Go on."]


# Tells two views of the log about changes; returns how often they asked until the second has drawn.
TELL: Final = """
return import('/log.js').then(async ({ log }) => {
  const drawn = [0, 0];
  const known = { team: { members: [] } };
  const views = [0, 1].map((n) => log({ known, redraw() { drawn[n] += 1; } }));
  const until = async (fact) => { while (!fact()) await new Promise(requestAnimationFrame); };
  await until(() => drawn[0] && drawn[1]);
  const kept = window.fetch;
  let asked = 0;
  window.fetch = (address, ...facts) => {
    asked += address.includes('happened');
    return kept(address, ...facts);
  };
  for (const part of ['team', 'usage', 'copies']) views[0].told(part);
  views[1].told('sizes');  // its pause ends after that of the first view
  await until(() => drawn[1] > 1);
  window.fetch = kept;
  views.forEach((view) => view.close());
  return asked;
});
"""


def test_the_log_asks_again_only_for_changes_that_come_with_events(script: Browser) -> None:
    assert script.run(TELL) == 1


# The numbers of the shown lines of a conversation.
NUMBERS: Final = """
return [...document.querySelectorAll('.talk li')]
  .map((one) => Number(/line (\\d+)/.exec(one.textContent)[1]))
"""


def test_no_line_of_a_growing_conversation_is_lost_or_doubled(
    script: Browser, quiet: Project
) -> None:
    """Earlier lines are asked for twice at a time, and new ones displace the earliest."""

    def line(n: int) -> str:
        return json.dumps({"record": "note", "time": 1e9 + n, "text": f"line {n} {'x' * 40}"})

    def shown() -> list[int]:
        found: list[int] = script.run(NUMBERS)
        assert found == list(range(found[0], found[-1] + 1)) if found else True
        return found

    path = quiet.paths.transcript("ann")
    path.write_text("".join(f"{line(n)}\n" for n in range(9000)))
    script.go("member/ann")
    wait_until(lambda: shown()[-1:] == [8999], what="the end is shown")
    first = shown()[0]
    script.press("Earlier")
    script.press("Earlier")
    wait_until(lambda: shown()[0] < first, what="earlier lines are shown")
    with path.open("a") as file:
        file.write(f"{line(9000)}\n")
    wait_until(lambda: shown()[-1] == 9000, what="the new line is shown")
    while (first := shown()[0]) > 0:
        script.press("Earlier")
        wait_until(lambda: shown()[0] < first, what="earlier lines are shown")
    path.unlink()


def test_teammates_may_have_the_names_of_what_every_object_has(
    script: Browser, quiet: Project
) -> None:
    quiet.enlist("constructor", "valueOf")
    own = ("member/constructor", "member/constructor%7Cconstructor", "member/valueOf%7Cdiff")
    for view in ("", "changes", "queue", "usage", "chat", "mail", *own):
        script.go(view)
        script.settle()
        assert "native code" not in script.text, view
    script.go("")
    script.see("constructor")
    wait_until(lambda: len(script.all(".lane")) == 2, what="each has a lane")
    assert script.complaints() == []


def test_every_view_of_a_team_with_a_damaged_roster_names_the_next_step(
    script: Browser, quiet: Project
) -> None:
    quiet.paths.config.write_text("{")
    for view in VIEWS:
        script.go(view)
        if view not in ("help", "lesson", "way"):
            script.see("teamd restart")
        script.settle()
    errors = [one for one in script.complaints() if "409 (Conflict)" not in one]
    assert errors == []


def test_another_team_that_is_damaged_stays_in_the_sidebar_and_says_why(
    script: Browser, quiet: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, quiet.environment[STATE_VARIABLE])
    for folder in (quiet.folder, quiet.root / "billing"):
        team = TeamPaths(folder / ".team")
        team.create()
        teams.remember(team)
    team.config.write_text("{")
    script.run("document.dispatchEvent(new Event('visibilitychange'))")  # lists the teams at once
    script.see("damaged")
    script.find(f"#teams a[href='#/team-{key_of(team)}/']").click()
    script.see(f"{team.config} is damaged")
    team.config.write_text('{"team_name": "billing", "members": [{"name": "zoe"}]}')
    script.see("zoe")


def test_the_refusal_of_the_server_is_shown(script: Browser) -> None:
    script.go("team-0123456789abcdef/")
    script.see("The server refuses: none of your teams has that address. Trying again")
    script.go("")
    script.miss("Trying again")


# Draws two lanes, and returns the moments at both ends of each bar.
MOMENTS: Final = """
return import('/charts.js').then(({ lanes, momentAt }) => {
  const [history, members] = arguments;
  const chart = lanes(history, members, 1000, null);
  document.body.append(chart);
  const found = [...chart.querySelectorAll('.lane [class^=fill]')].map((bar) => {
    const { left, right } = bar.getBoundingClientRect();
    return [left, right].map((clientX) => momentAt(history, 1000, chart, { clientX }));
  });
  const outside = [-9, 99999].map((clientX) => momentAt(history, 1000, chart, { clientX }));
  chart.remove();
  return [found, outside];
});
"""


def test_a_point_of_the_lanes_is_the_moment_that_is_drawn_there(script: Browser) -> None:
    lanes = {"ann": [[1000, "working"], [5000, "idle"]], "bob": [[7000, "working"]]}
    history = {"since": 0, "until": 10_000, "lanes": lanes, "marks": []}
    members = [
        {"name": name, "state": state, "since": 0}
        for name, state in (("ann", "idle"), ("bob", "working"))
    ]
    found, outside = script.run(MOMENTS, history, members)
    drawn = [[1000, 5000], [5000, 10_000], [7000, 10_000]]
    assert found == [pytest.approx(ends, abs=15) for ends in drawn]  # a pixel is 11 seconds
    assert outside == [0, 10_000]


def test_the_chat_clears_the_notice_that_the_work_is_done(browser: Browser, tmp_path: Path) -> None:
    """As `teamctl chat` does; a page for reading only does not, since other people have it."""
    with opened(tmp_path) as project:
        project.enlist("lead", role="lead")
        ended = TurnEnded(time=time.time() - 9, outcome="end_turn", text="All of it is done.")
        project.paths.transcript("lead").write_bytes(b"{}\n" + ended.encode())

        def kinds() -> set[str]:
            document = json.loads(project.do("teamctl", "team", "--json"))
            return {one["kind"] for one in document["notices"]}

        with served(project) as server:
            reading = server.get("session")["reading"]
            browser.open(f"http://{server.host}/#token={reading}")
            browser.see("All of it is done")
            browser.go("chat")
            browser.see("read-only")
            browser.settle()
            assert "finished" in kinds()
            browser.open(server.link)
            browser.see("All of it is done")
            assert "finished" in kinds()
            browser.go("chat")
            wait_until(lambda: "finished" not in kinds(), what="the notice is cleared")
            browser.go("")
            browser.miss("All of it is done")
        browser.open("about:blank")


def test_the_chat_answers_what_the_lead_asks(browser: Browser, tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        project.enlist("lead", "bob", role="lead")
        store = Approvals(project.paths, MailRouter(project.paths, durable=False, max_bytes=9999))
        for asker in ("lead", "bob"):
            facts = {"asker": asker, "to": USER, "content": f"{asker} plans.", "asked": time.time()}
            store.ask(Approval(type=Kind.PLAN, **facts))  # type: ignore[arg-type]
        with served(project) as server:
            browser.open(server.link)
            browser.go("chat")
            browser.see("lead plans.")
            rows = "document.querySelectorAll('main .requests > li')"
            asked = f"return [...{rows}].map((one) => one.innerText)"
            wait_until(lambda: len(browser.run(asked)) == 1, what="the lead's own request is shown")
            browser.find("main [aria-label='Approve what lead asks']").click()
            wait_until(lambda: browser.run(asked) == [], what="it is answered")
            browser.see("approved")
            browser.go("board")
            said = "return document.getElementById('said').innerText"
            wait_until(lambda: browser.run(said) == "", what="the message does not stay")


def test_text_for_screen_readers_covers_nothing(script: Browser) -> None:
    area = script.run(
        "const one = document.querySelector('.hidden'); one.textContent = 'words '.repeat(99);"
        "const box = one.getBoundingClientRect(); return [box.width, box.height]"
    )
    assert max(area) <= 1


def test_the_notice_about_mail_opens_the_mail_that_waits(browser: Browser, tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        project.enlist("bob")
        for to, text in (("lead", "I am done."), ("user", "An older one."), ("bob", "Not yours.")):
            mail = Message(sender="lead" if to == "user" else "bob", to=to, content=text)
            Mailbox(project.paths, to, durable=False).put(mail)
        with served(project) as server:
            browser.open(server.link)
            browser.see("2 messages wait for you")
            for link in ("main .needs a", "main .tile a[href$=unread]"):
                browser.go("")
                browser.find(link).click()
                browser.see("2 messages")
                shown = browser.run("return document.querySelector('main .mail').innerText")
                assert "I am done." in shown
                assert "An older one." in shown
                assert "Not yours." not in shown
        browser.open("about:blank")


# Draws a conversation of the lead, and returns the text of each entry, and its hidden texts.
TALK: Final = """
return import('/conversation.js').then(({ conversation }) => {
  const made = conversation(arguments[0], 'lead', []);
  made.querySelectorAll('time').forEach((one) => one.remove());
  document.body.append(made);
  const found = [...made.children].map((one) => one.innerText.replace(/^[\\d:]+ /, ''));
  made.remove();
  return found;
});
"""


def test_texts_for_the_model_are_not_shown_as_chat(script: Browser) -> None:
    asked = {"from": "user", "type": "shutdown_request", "content": "Answer with this request_id."}
    over = {"from": "bob", "type": "shutdown_response", "approve": True, "content": "idle"}
    records: list[dict[str, Any]] = [
        {"record": "mail", "messages": [over, {**over, "approve": False, "content": "I test."}]},
        {"record": "reply", "content": [{"type": "text", "text": "All is done."}]},
        {"record": "mail", "messages": [asked]},
        {"record": "note", "text": "<note>You agreed to 83a8.</note>", "closes": ["83a8"]},
        {"record": "ended", "outcome": "shutdown", "text": "All is done."},
        {"record": "news", "text": "<background-job>"},
        {"record": "ended", "outcome": "paused", "text": "the limit of money"},
    ]
    shown = script.run(TALK, [{"time": 1000, **one} for one in records])
    refused = shown.pop(1)
    assert "I test." in refused
    said = shown.pop(1)
    assert said.endswith("All is done.")
    assert shown == [
        "bob is shut down",
        "you asked lead to shut down",
        "lead was shut down",
        "a note for the model",
        "paused: the limit of money",
    ]


def test_the_chat_says_that_unread_mail_went_to_the_lead(script: Browser) -> None:
    def mail(*senders: str) -> dict[str, Any]:
        messages = [{"from": one, "type": "message", "content": "x"} for one in senders]
        return {"record": "mail", "messages": messages}

    reply = {"record": "reply", "content": [{"type": "text", "text": "Yes."}]}
    ended: dict[str, Any] = {"record": "note", "text": "<note>", "closes": ["83a8"]}
    start = [{"record": "opened"}, mail("bob", "ann", "user"), reply, mail("bob"), reply]
    again = [ended, mail("bob", "user"), reply, ended, mail("user"), reply]
    shown = script.run(TALK, [{"time": 1000, **one} for one in (*start, *again)])
    assert [one for one in shown if "not read" in one] == [
        "2 messages that you had not read went to lead",
        "1 message that you had not read went to lead",
    ]


# The visible controls that a message covers when the page is scrolled to this place.
COVERED: Final = """
return import('/acts.js').then(({ announce }) => new Promise((go) => {
  scrollTo(0, arguments[0]);
  const at = (one) => { const box = one.getBoundingClientRect();
    return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2); };
  const seen = [...document.querySelectorAll('a, button, input, select, textarea')]
    .filter((one) => one.contains(at(one)));
  announce('sent to lead', true);
  requestAnimationFrame(() => requestAnimationFrame(() => go({ seen: seen.length,
    shown: document.getElementById('said').getBoundingClientRect().top >= 0,
    covered: seen.filter((one) => at(one)?.closest('#said')).map((one) => one.outerHTML) })));
}));
"""


@pytest.mark.parametrize("width", [1280, 360])
def test_a_message_covers_no_control(browser: Browser, tmp_path: Path, width: int) -> None:
    with opened(tmp_path) as project:
        project.enlist("bob", *(f"ann{number}" for number in range(30)))
        store = Approvals(project.paths, MailRouter(project.paths, durable=False, max_bytes=9999))
        plan = {"asker": "bob", "to": USER, "content": "I plan.", "asked": time.time()}
        store.ask(Approval(type=Kind.PLAN, **plan))  # type: ignore[arg-type]
        browser.resize(width)
        with served(project) as server:
            browser.open(server.link)
            for view, place in (("mail", 0), ("roster", 300), ("member/bob", 0), ("", 500)):
                browser.go(view)
                browser.settle()
                found = browser.run(COVERED, place)
                assert found["seen"] > 1, view
                assert found["shown"], view
                assert found["covered"] == [], view
        browser.open("about:blank")
        browser.resize(1280)
