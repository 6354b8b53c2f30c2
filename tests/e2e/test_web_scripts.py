"""The scripts of the page, each imported into an open page in chromium."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e.browser import Browser, served
from tests.e2e.harness import Project, opened

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A team without any process."""
    with opened(tmp_path_factory.mktemp("scripts")) as project:
        project.enlist("ann")
        yield project


@pytest.fixture(scope="module")
def script(browser: Browser, quiet: Project) -> Iterator[Browser]:
    """The page of the quiet team."""
    with served(quiet) as server:
        browser.open(server.link)
        browser.see("The team")
        yield browser
        browser.open("about:blank")


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


# Sends a message three times; the answer to the first is lost.
SEND: Final = """
return import('/acts.js').then(async ({ doing, once }) => {
  const send = () => doing('send', once({ to: 'ann', text: 'Go on.' }));
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
