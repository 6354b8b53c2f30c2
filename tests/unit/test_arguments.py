"""Texts in arguments and on standard input pass unchanged, except for secrets."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from teamctl.arguments import text_or_stdin
from teamctl.chat.lead import Lead
from teamd.command_line.run import TeamOptions
from teamd.files.paths import TeamPaths
from teamd.masking import MASK
from tests.unit.life import enrol


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
