"""The views of the page: markdown, chat, board, changes, moments, the drawer and the shell."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.e2e.browser import Browser, Server, served
from tests.e2e.conftest import HOSTILE
from tests.e2e.harness import Project, opened
from tests.repositories import make_repository
from tests.strict.replies import say
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# Renders a text, and returns its HTML and everything in it that could act.
RENDER: Final = """
return import('/markdown.js').then(({ markdown }) => {
  const made = markdown(arguments[0]);
  const all = [...made.querySelectorAll('*')];
  const harmless = new Set(['class', 'href', 'rel', 'target', 'title', 'start']);
  return {
    html: made.innerHTML,
    text: made.textContent,
    tags: [...new Set(all.map((one) => one.localName))],
    strange: all.flatMap((one) => [...one.attributes]).map((one) => one.name)
      .filter((name) => !harmless.has(name)),
    links: [...made.querySelectorAll('a')].map((one) => [one.protocol, one.rel, one.target]),
  };
});
"""
TAGS: Final = frozenset(
    ("a", "blockquote", "code", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre")
) | {"strong", "ul"}


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain & <b>", "<p>plain &amp; &lt;b&gt;</p>"),
        ("# One\ntext", "<h3>One</h3><p>text</p>"),
        ("a **b** _c_ `d*e*`", "<p>a <strong>b</strong> <em>c</em> <code>d*e*</code></p>"),
        ("snake_case_name 2*3*4", "<p>snake_case_name 2*3*4</p>"),
        ("- a\n- b\n  - c", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>"),
        ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("```py\nx = '<i>'\n```\nend", "<pre><code>x = '&lt;i&gt;'</code></pre><p>end</p>"),
        ("```\nopen", "<pre><code>open</code></pre>"),
        ("> a\n> b\n\n---", "<blockquote><p>a\nb</p></blockquote><hr>"),
        ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"),
        ("[x](javascript:alert)", "<p>x (<code>javascript:alert</code>)</p>"),
        ("[x](data:text/html,hi)", "<p>x (<code>data:text/html,hi</code>)</p>"),
    ],
)
def test_markdown_becomes_elements(page: Browser, text: str, html: str) -> None:
    assert page.run(RENDER, text)["html"] == html


def test_a_web_address_becomes_a_link_that_shows_its_target(page: Browser) -> None:
    for text in ("see https://example.org/a?b=c.", "[docs](https://example.org/a?b=c)"):
        found = page.run(RENDER, text)
        assert found["links"] == [["https:", "noopener noreferrer", "_blank"]]
        assert 'title="https://example.org/a?b=c' in found["html"]


def test_text_only_ever_becomes_harmless_elements(page: Browser) -> None:
    """Random mixtures of markdown and HTML, and of cut and nested pieces."""
    chance = random.Random(46)
    pieces = [
        "# ", "- ", "1. ", "> ", "```", "`", "**", "*", "_", "[", "](", ")", "\n", "\n\n", "  ",
        "javascript:alert(1)", "https://a.example/", "data:text/html,x", "<img src=x onerror=y>",
        "<script>", "</p>", "&lt;", "word", "\u202e", "\x00", "é", "---", "~~~", "](javascript:x)",
        '[x](https://a.example/"onclick=x)', "vbscript:x", " " * 5, "9" * 30, HOSTILE,
    ]  # fmt: skip
    for _ in range(150):
        text = "".join(chance.choice(pieces) for _ in range(chance.randint(1, 40)))
        found = page.run(RENDER, text)
        assert set(found["tags"]) <= TAGS, text
        assert found["strange"] == [], text
        assert {protocol for protocol, _, _ in found["links"]} <= {"http:", "https:", "mailto:"}
        assert {rel for _, rel, _ in found["links"]} <= {"noopener noreferrer"}


@pytest.mark.parametrize(
    "text", ["`a" * 20_000, "[" * 40_000, "**a" * 15_000, "> " * 20_000, "*_" * 20_000, "- " * 9000]
)
def test_hostile_markdown_is_rendered_quickly(page: Browser, text: str) -> None:
    began = time.monotonic()
    page.run(RENDER, text)
    assert time.monotonic() - began < 5


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A running team with a lead and a working copy of ann's, in which a file has changed."""
    with opened(tmp_path_factory.mktemp("work")) as made:
        make_repository(made.folder)
        made.stage.play("lead", say("I have **heard** you."), say("Again."))
        made.start()
        made.do("teamctl", "spawn", "ann", "coder", "Wait.", "--worktree", "--wait")
        (made.paths.copy("ann") / "a.txt").write_text("one\nand a second line\n")
        yield made


@pytest.fixture
def view(browser: Browser, work: Project) -> Iterator[Browser]:
    browser.resize(1280)
    with served(work) as server:
        browser.open(server.link)
        browser.see("The team")
        yield browser
        browser.open("about:blank")


def tasks(project: Project) -> dict[str, tuple[str, str]]:
    found = json.loads(project.do("teamctl", "tasks", "--json"))["tasks"]
    return {one["subject"]: (one["status"], one["owner"]) for one in found}


def test_the_person_talks_to_the_lead(view: Browser) -> None:
    view.go("chat")
    view.see("No agent leads this team yet.")
    area = view.find(".composer textarea")
    area.send_keys("Begin", Keys.SHIFT, Keys.ENTER, Keys.NULL, "now.", Keys.ENTER)
    view.see("I have heard you.")
    assert view.all(".talk strong")
    view.see("Begin\nnow.")
    assert view.find(".composer textarea").get_attribute("value") == ""


def test_tasks_are_added_claimed_and_moved(view: Browser, work: Project) -> None:
    view.go("board")
    view.press("Add a task")
    view.find("dialog input[name=subject]").send_keys("Write the docs")
    view.find("dialog textarea").send_keys("In **English**.")
    view.press("Add")
    view.see("task 1 is on the board")
    view.find(".task button").send_keys(Keys.ENTER)
    view.see("In English.")
    view.press("Claim …")
    Select(view.find("dialog select")).select_by_visible_text("ann")
    view.press("Claim")
    wait_until(lambda: tasks(work)["Write the docs"][1] == "ann", what="ann has it")
    wait_until(lambda: view.all("[data-status=in_progress] .task"), what="it moves")
    for key, status in ((Keys.ARROW_RIGHT, "completed"), (Keys.ARROW_LEFT, "in_progress")):
        view.find(".task button").send_keys(key)
        wait_until(partial(is_in, view, work, status), what=f"it is {status} here and there")
    view.run(DRAG, "completed")
    wait_until(partial(is_in, view, work, "completed"), what="the mouse moves it as well")


# Loses the answer to each action until `window.kept` is restored.
LOSE_ANSWERS: Final = """
window.kept = window.fetch;
window.fetch = async (address, facts) => {
  const found = await window.kept(address, facts);
  if (facts?.method === 'POST') throw new TypeError('the answer is lost');
  return found;
};
"""
# Drags the first task to a column, as the mouse does.
DRAG: Final = """
const fire = (target, kind, dataTransfer) =>
  target.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer }));
const carried = new DataTransfer();
const column = document.querySelector(`[data-status=${arguments[0]}]`);
fire(document.querySelector('.task'), 'dragstart', carried);
fire(column, 'dragover', carried);
fire(column, 'drop', carried);
"""


def is_in(page: Browser, project: Project, status: str) -> bool:
    """Return whether the task is in this column of the page and of the board."""
    shown = page.all(f"[data-status={status}] .task")
    return bool(shown) and tasks(project)["Write the docs"][0] == status


def test_a_comment_on_a_line_becomes_mail(view: Browser, work: Project) -> None:
    view.go("changes")
    view.see("+and a second line")
    view.press("Comment on line 2 of a.txt")
    view.find(".diff textarea").send_keys("Why a second one?")
    view.press("Keep the comment")
    view.see("Why a second one?")
    view.run(LOSE_ANSWERS)
    view.press("Send 1 comment")
    view.see("the answer is lost")
    view.run("window.fetch = window.kept")
    view.press("Send 1 comment")  # the first mail has arrived, so this is a repeat
    view.see("sent as mail")
    wait_until(lambda: "Why a second one?" in str(work.records("ann", "mail")), what="ann reads it")
    view.go("mail/Why a second one?")
    view.see("1 message")
    assert "a.txt, line 2: `+and a second line`" in str(work.records("ann", "mail"))
    view.go("changes")
    view.see("+and a second line")
    assert view.all(".remark") == []


def test_a_later_change_of_the_same_file_is_shown(view: Browser, work: Project) -> None:
    """The number of changed files stays the same; a turn hints at a change."""
    view.go("changes")
    view.see("+and a second line")
    (work.paths.copy("ann") / "a.txt").write_text("one\nand another second line\n")
    work.do("teamctl", "send", "ann", "Go on.")
    view.see("+and another second line")
    (work.paths.copy("ann") / "a.txt").write_text("one\nand a second line\n")


def moments(page: Browser) -> list[str]:
    script = "return [...document.querySelectorAll('.lane')].map((one) => one.dataset.name)"
    found: list[str] = page.run(script)
    return found


def test_a_click_on_a_lane_opens_that_moment(page: Browser, server: Server) -> None:
    wait_until(lambda: moments(page) == ["alice", "bob"], what="each member has a lane")
    page.run(
        "const bars = document.querySelectorAll('.lane[data-name=alice] .fill-working');"
        "bars[0].dispatchEvent(new MouseEvent('click', { bubbles: true, clientX:"
        " bars[0].getBoundingClientRect().left, clientY: 0 }))"
    )
    page.see("lead → alice")
    name, tab, at = page.run("return decodeURIComponent(location.hash)").split("|")
    assert (name, tab) == ("#/member/alice", "transcript")
    (began, _), *_ = server.get("history?hours=6")["lanes"]["alice"]
    assert abs(int(at) - began) < 60  # a pixel of six hours is twenty seconds
    page.see("Show the newest")
    page.go("")
    page.see("States over time")
    wait_until(lambda: moments(page), what="the lanes are drawn again")
    page.find("[aria-label^='States over time']").send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    wait_until(lambda: "#/member/bob" in page.run("return location.hash"), what="by keys as well")


def test_the_drawer_opens_from_every_view_and_returns_the_focus(page: Browser) -> None:
    page.go("usage")
    page.see("1 waits for you: bob asks to run")
    page.find("#bar button").click()
    page.see("What waits for you")
    assert page.run("return document.activeElement.textContent") == "Close"
    page.run("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', "
             "{ key: 'Escape', bubbles: true }))")  # fmt: skip
    assert not page.run("return document.querySelector('#drawer').checkVisibility()")
    assert page.run("return document.activeElement.textContent") == "Show"


def test_the_title_names_the_view_the_team_and_what_waits(page: Browser, busy: Project) -> None:
    name = json.loads(busy.paths.config.read_bytes())["team_name"]
    page.go("board")
    where = list(dict.fromkeys(["Board", name, busy.folder.name]))
    wait_until(
        lambda: page.driver.title == "(1) " + " \u2013 ".join(where), what="the title names it"
    )


def test_an_idle_member_takes_one_line_on_a_phone(page: Browser) -> None:
    page.see("States over time")
    page.resize(360)
    page.settle()
    tall = "return [...document.querySelectorAll('main tr[data-key]')].map((x) => x.offsetHeight)"
    idle, waiting = page.run(tall)
    assert idle < 60 < waiting
    assert "idle" in page.text


def test_mail_traffic_is_drawn_and_a_click_on_a_member_searches_for_it(page: Browser) -> None:
    page.go("mail")
    page.see("Who writes to whom")
    page.see("lead → alice: ")
    page.run(
        "document.querySelector('[data-find=alice] circle')"
        ".dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    )
    wait_until(lambda: page.run("return location.hash") == "#/mail/alice", what="alice is found")
    assert page.find("input[type=search]").get_attribute("value") == "alice"


def test_the_log_finds_events_by_kind_and_words(page: Browser) -> None:
    page.go("log")
    page.see("alice ended its turn: Done.")
    page.press("Tasks")
    page.see("task 1 (Write the docs) is pending")
    page.miss("ended its turn")
    page.find("input[type=search]").send_keys("nothing of the kind")
    page.see("No such event in the last day.")


def background(page: Browser) -> Any:
    return page.run("return getComputedStyle(document.body).backgroundColor")


def test_the_colour_scheme_follows_the_system_until_the_person_chooses_one(page: Browser) -> None:
    page.prefer(dark=True)
    dark = background(page)
    page.prefer(dark=False)
    light = background(page)
    assert dark != light
    Select(page.find("#tools select")).select_by_visible_text("dark")
    assert background(page) == dark
    page.driver.refresh()
    page.see("The team")
    assert background(page) == dark  # before the first paint, without a flash of light
    Select(page.find("#tools select")).select_by_visible_text("system")
    assert background(page) == light
    assert page.run("return localStorage.length") == 0


def test_notifications_need_consent_and_come_only_for_new_requests(page: Browser) -> None:
    page.run(
        "window.shown = []; window.Notification = class { constructor(title) { shown.push(title); }"
        " static permission = 'default'; static requestPermission() {"
        " Notification.permission = 'granted'; return Promise.resolve('granted'); } };"
        "Object.defineProperty(document, 'hidden', { get: () => true, configurable: true });"
    )
    again = """return import('/waiting.js').then(({ inform }) => {
      const team = (...ids) => ({ team: { requests: ids.map((id) => (
        { id, from: id, yours: true, what: 'x' })) } });
      const failed = { kind: 'failed', name: 'cid', text: 'cid has failed', command: 'x' };
      inform(team('ann')); inform(team('ann', 'bob'));
      inform({ team: { ...team('ann', 'bob').team, notices: [failed] } });
      return window.shown;
    })"""
    assert page.run(again) == []
    page.press("Notify me")
    page.miss("Notify me")
    assert page.run(again) == ["bob waits for you", "cid has failed"]
    page.driver.refresh()
    page.see("The team")
