"""The activity file of a teammate."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.process_id import Identity
from teamd.team.activity import (
    TOOL,
    Activity,
    Doing,
    Retry,
    read_activity,
    shorten,
    write_activity,
)

_ME: Final = Identity.own()
_TEXTS: Final = st.text(max_size=300).map(shorten)


def saying(what: str, cause: str = "busy") -> Activity:
    retry = Retry(attempt=7, attempts=10, cause=cause, next=1711234567.89, since=1711234560.0)
    doing = Doing(kind=TOOL, what=what)
    return Activity(process=_ME, since=1711234567.89, doing=doing, context=0.25, retry=retry)


@given(_TEXTS, _TEXTS)
def test_every_activity_is_unchanged_by_encoding_and_decoding(what: str, cause: str) -> None:
    assert Activity.decode(saying(what, cause).encode()) == saying(what, cause)


def test_the_file_is_json_for_any_program(tmp_path: Path) -> None:
    path = tmp_path / "ann.json"
    write_activity(path, saying("bash pytest -q"))
    document = json.loads(path.read_bytes())
    assert document["doing"] == {"kind": "tool", "what": "bash pytest -q"}
    assert document["pid"] == os.getpid()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\0" * 2048, b'{"pid": 7, '])
def test_a_file_damaged_by_a_power_cut_is_ignored(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ann.json"
    path.write_bytes(content)
    assert read_activity(path) is None


def test_a_link_is_not_read(tmp_path: Path) -> None:
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "ann.json"
    elsewhere.write_bytes(saying("bash ls").encode())
    path.symlink_to(elsewhere)
    assert read_activity(path) is None


def test_a_failed_write_is_ignored(tmp_path: Path) -> None:
    """A full disk or a missing folder must not end a teammate's work."""
    write_activity(tmp_path / "gone" / "ann.json", saying("bash ls"))
    assert not (tmp_path / "gone").exists()


def test_a_report_replaces_the_previous_one_or_a_link(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "ann.json", tmp_path / "elsewhere"
    path.symlink_to(elsewhere)
    for what in ("bash ls", "bash pwd"):
        write_activity(path, saying(what))
        assert read_activity(path) == saying(what)
    assert not elsewhere.exists()
