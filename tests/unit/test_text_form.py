"""Line endings and byte order mark in edits: bytes that a model does not see do not change."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.tools.text_file import Replacement, name_line_endings, take_form

BOM = "\ufeff"
WORDS = st.text(st.sampled_from("ab "), max_size=3)
ENDS = st.sampled_from(["\n", "\r\n"])
LINES = st.lists(st.tuples(WORDS, ENDS), max_size=12)


def joined(lines: list[tuple[str, str]]) -> str:
    return "".join(line + end for line, end in lines)


def replace(text: str, old: str, new: str) -> str:
    change = Replacement(text, old, new)
    assert change.count == 1
    return change.apply()


@given(before=LINES, old=LINES, after=LINES, new=st.text(st.sampled_from("ab\n"), max_size=12))
def test_an_edit_changes_no_byte_around_it(
    before: list[tuple[str, str]],
    old: list[tuple[str, str]],
    after: list[tuple[str, str]],
    new: str,
) -> None:
    """The model gives LF for any file; marks make the old text unique."""
    head, tail = joined(before), joined(after)
    text = f"{head}<{joined(old)}>{tail}"
    seen = f"<{joined(old)}>".replace("\r\n", "\n")
    result = replace(text, seen, new)
    assert result.startswith(head)
    assert result.endswith(tail)
    middle = result[len(head) : len(result) - len(tail)]
    assert middle.replace("\r\n", "\n") == new
    if "\r" not in text:
        assert middle == new
    elif "\n" not in text.replace("\r\n", ""):
        assert middle == new.replace("\n", "\r\n")


@given(lines=LINES, data=st.data())
def test_lines_that_an_edit_only_repeats_keep_their_endings(
    lines: list[tuple[str, str]], data: st.DataObject
) -> None:
    """A model repeats the lines around a change to identify its place."""
    numbered = [(f"{number}{line}", end) for number, (line, end) in enumerate(lines)]
    changed = data.draw(st.sets(st.integers(0, len(lines))))
    meant = [(line + "!" * (at in changed), end) for at, (line, end) in enumerate(numbered)]
    text, expected = f"<{joined(numbered)}>", f"<{joined(meant)}>"
    old, new = text.replace("\r\n", "\n"), expected.replace("\r\n", "\n")
    assert Replacement(text, old, new).apply() == expected
    assert take_form(text, new) == expected


@given(lines=LINES, mark=st.booleans(), more=WORDS)
def test_new_content_with_the_same_lines_is_the_same_file(
    lines: list[tuple[str, str]], mark: bool, more: str
) -> None:
    text = BOM * mark + joined(lines) + more + "end"
    assert take_form(text, text.removeprefix(BOM).replace("\r\n", "\n")) == text


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("1\r\n2\n3\r\n", "2\n", "2\na\nb\n", "1\r\n2\na\nb\n3\r\n"),
        ("1\r\n2\n3\r\n", "1\n2", "1\na\n2", "1\r\na\r\n2\n3\r\n"),
        ("1\r\n2\n3\r\n", "1\n", "", "2\n3\r\n"),
        ("1\r\n2\n3\r\n", "3", "a\nb", "1\r\n2\na\r\nb\r\n"),
        ("1\n2\r\n3", "3", "a\nb", "1\n2\r\na\r\nb"),
        ("1\r\n2\n3\r\n", "1\n2\n3\n", "x\n2\ny\n", "x\r\n2\ny\r\n"),
        ("1\r\n2\n3\r\n4\n", "1\n2\n3\n4", "x\na\n2\n3\ny", "x\r\na\r\n2\n3\r\ny\n"),
        ("1\r\n2\n", "2", "a\r\nb", "1\r\na\r\nb\n"),
        ("1\n2\n", "2", "a\r\nb", "1\na\r\nb\n"),
        (f"{BOM}1\n", f"{BOM}1", "2", f"{BOM}2\n"),
    ],
)
def test_added_lines_take_the_ending_around_them(
    text: str, old: str, new: str, expected: str
) -> None:
    assert replace(text, old, new) == expected


def test_a_newline_in_the_models_text_matches_either_line_ending() -> None:
    assert Replacement("a\nb\na\r\nb\n", "a\nb", "c").count == 2
    assert Replacement("a\nb\na\r\nb\n", "a\r\nb", "c").count == 1  # a literal CRLF is intended


def test_content_with_carriage_returns_is_written_as_it_is() -> None:
    assert take_form("1\n2\n", "1\r\n2\n") == "1\r\n2\n"
    assert take_form("1\r\n2\r\n", "1\r\n2\n") == "1\r\n2\n"


def test_a_long_text_with_mixed_endings_is_compared_in_bounded_time() -> None:
    """Line by line it would be a hundred million comparisons."""
    text = "".join(f"{n % 7}\r\n" if n % 2 else f"{n % 7}\n" for n in range(20_000))
    new = "\n".join(f"{n % 5}" for n in range(20_000))
    assert re.sub("\r?\n", "\n", take_form(text, new)) == new


def test_only_unusual_line_endings_have_a_name() -> None:
    assert name_line_endings(b"1\n2") == ""
    assert name_line_endings(b"1\r\n2\r\n") == "CRLF line endings"
    assert name_line_endings(b"1\r\n2\n3\n") == "mixed line endings: 1 CRLF of 3"
