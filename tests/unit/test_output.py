"""Texts and times as they are shown to a person."""

from __future__ import annotations

import json
import unicodedata
from contextlib import redirect_stderr, redirect_stdout
from decimal import Decimal

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamctl.render.output import (
    MailFormat,
    cost,
    count,
    duration,
    plain,
    print_either,
    show_message,
    show_messages,
    warn,
)
from teamd.budget.account import Account
from teamd.messages import Message
from tests.unit.life import Stream, TerminalStream


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (-3, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h00m"),
     (11_100, "3h05m"), (86_399, "23h59m"), (86_400, "1d00h"), (180_000, "2d02h")],
)  # fmt: skip
def test_a_duration_is_shown_in_its_two_largest_units(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (12_345, "12.3k"), (123_456, "123k"),
     (4_500_000, "4.5M"), (2_000_000_000_000, "2000G")],
)  # fmt: skip
def test_a_count_is_shown_in_few_characters(number: float, shown: str) -> None:
    assert count(number) == shown


@pytest.mark.parametrize(
    ("usd", "unpriced", "shown"),
    [("0", 0, "$0.00"), ("12.3", 0, "$12.30"), ("0.0042", 0, "$0.0042"), ("0", 1, "?"),
     ("1", 1, ">$1.00")],
)  # fmt: skip
def test_a_cost_says_where_it_is_unknown_in_whole_or_in_part(
    usd: str, unpriced: int, shown: str
) -> None:
    assert cost(Account(calls=2, usd=Decimal(usd), unpriced_calls=unpriced)) == shown


@given(st.text())
def test_no_terminal_control_sequence_is_printed(text: str) -> None:
    """A teammate's text must not clear the screen, move the cursor or hide other text."""
    shown = plain(text)
    harmless = "\n\t\u200c\u200d"  # the joiners are part of words and emoji
    kinds = {unicodedata.category(character) for character in shown if character not in harmless}
    assert not kinds & {"Cc", "Cf"}


@pytest.mark.parametrize(
    ("extra", "heading"),
    [
        ({"request_id": "3fa2", "approve": False}, "bob [shutdown_response] rejected 3fa2"),
        ({"request_id": "3fa2", "approve": True, "summary": "s"},
         "bob [shutdown_response] approved 3fa2 — s"),
        ({"request_id": "3\x1bfa"}, "bob [shutdown_response] 3\\x1bfa"),
        ({"request_id": 7, "approve": "no"}, "bob [shutdown_response]"),
    ],
)  # fmt: skip
def test_mail_about_a_request_is_shown_with_its_verdict_and_the_id_for_an_answer(
    extra: dict[str, object], heading: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other programs may put anything under these names."""
    show_message(
        Message(sender="bob", to="lead", content="busy", type="shutdown_response", extra=extra)
    )
    first, second = capsys.readouterr().out.splitlines()
    assert first.partition(" ")[2] == heading
    assert second == "  busy"


def test_ordinary_text_is_printed_as_it_is() -> None:
    assert plain("naïve — 漢字 ✓\n\tindented") == "naïve — 漢字 ✓\n\tindented"


def test_followed_mail_is_one_json_document_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A program reads each one as it arrives."""
    mail = [Message(sender="bob", to="lead", content=text) for text in ("one\ntwo", "three")]
    show_messages(mail, MailFormat.LINES)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["content"] for line in lines] == ["one\ntwo", "three"]
    show_messages(mail, MailFormat.DOCUMENT)
    (found,) = json.loads(capsys.readouterr().out).values()
    assert [one["content"] for one in found] == ["one\ntwo", "three"]


def test_long_lines_break_between_words_on_a_terminal_and_never_in_a_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = "Run `teamctl resume dan --tokens 5000`, or wait until midnight.\n\n  Then look again."
    with redirect_stdout(TerminalStream()) as terminal:
        show_message(Message(type="message", sender="dan", to="lead", content=text))
    assert terminal.text.splitlines()[1:] == [
        "  Run",
        "  `teamctl resume dan --tokens 5000`, or",
        "  wait until midnight.",
        "",
        "    Then look again.",
    ]
    with redirect_stdout(Stream()) as pipe:
        print_either(text, {}, as_json=False)
    assert pipe.text == f"{text}\n"


def test_a_warning_is_wrapped_with_its_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    with redirect_stderr(TerminalStream()) as terminal:
        warn("it is late, go home")
    assert click.unstyle(terminal.text) == "warning: it is late,\ngo home\n"
