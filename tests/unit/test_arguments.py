"""Texts in arguments and on standard input pass unchanged; moments as a person writes them."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import click
import pytest

from teamctl.arguments import parse_when, text_or_stdin
from teamctl.chat.lead import Lead
from teamd.command_line.run import TeamOptions
from teamd.files.paths import TeamPaths
from teamd.masking import MASK
from tests.unit.life import enrol

NOW = time.mktime((2026, 3, 24, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10m", 600), ("2h", 7200), ("3d", 259_200), ("1w", 604_800)]
)
def test_a_duration_means_that_long_ago(text: str, seconds: float) -> None:
    assert parse_when(text, NOW) == NOW - seconds


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("11:30", NOW - 1800),
        ("11:59:30", NOW - 30),
        ("2026-03-24", NOW - 12 * 3600),
        ("2026-03-24T11:00", NOW - 3600),
        ("2026-03-24 11:00:00", NOW - 3600),
        ("1970-01-01T00:01:00Z", 60),
    ],
)
def test_a_time_or_a_date_is_accepted(text: str, moment: float) -> None:
    assert parse_when(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "10", "10y", "25:00", "9999999999d", "-5m"])
def test_an_invalid_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.UsageError, match="is no time; give 10m, 2h, 3d, 17:05, 2026-03-24"):
        parse_when(text, NOW)


def test_no_known_secret_goes_into_mail_or_onto_the_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text may come from a file or a program, unread."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-12345")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"log: sk-12345\n")))
    assert text_or_stdin("use sk-12345") == f"use {MASK}"
    assert text_or_stdin("-") == f"log: {MASK}\n"


def test_no_known_secret_goes_into_a_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-12345")
    paths = TeamPaths(tmp_path / ".team")
    enrol(paths)
    Lead(TeamOptions(team_dir=str(paths.root)), fresh=False, model=None).tell("use sk-12345")
    assert f"use {MASK}" in paths.inbox("lead").read_text()
