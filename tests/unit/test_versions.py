"""Teammates in one folder: none of them changes a file in a version that it has not read."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from teamd.tools import Result, Toolbox
from teamd.tools.filesystem import EditFile, ReadFile, WriteFile
from teamd.tools.versions import SeenFiles, Versions, WrittenFiles
from teamd.tools.workspace import Workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def member(root: Path, name: str, *, conversation: str = "first") -> Toolbox:
    """Return the file tools of a teammate, as one of its processes has them."""
    state = root.parent / "state"
    seen = SeenFiles(state / f"{name}.jsonl", lambda: conversation)
    versions = Versions(WrittenFiles(state / "written.jsonl"), seen, lambda: f"{name}@one")
    workspace = Workspace(root)
    return Toolbox(
        [
            ReadFile(workspace=workspace, versions=versions, output_bytes=1000),
            WriteFile(workspace=workspace, versions=versions),
            EditFile(workspace=workspace, versions=versions),
        ]
    )


def run(box: Toolbox, name: str, path: str = "a", **arguments: object) -> Result:
    return asyncio.run(box.run(name, {"path": path, **arguments}))


def write(box: Toolbox, content: str, path: str = "a") -> Result:
    return run(box, "write_file", path, content=content)


def edit(box: Toolbox, old: str, new: str, path: str = "a") -> Result:
    return run(box, "edit_file", path, old_text=old, new_text=new)


def untimed(result: Result) -> str:
    """Return the reason of a refusal, with its time replaced."""
    assert result.is_error, result.text
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", result.text)


def test_a_file_changed_by_another_teammate_must_be_read_again(root: Path) -> None:
    (root / "a").write_text("one two")
    alice, bob = member(root, "alice"), member(root, "bob")
    run(alice, "read_file")
    run(bob, "read_file")
    assert not edit(bob, "one", "1").is_error
    why = (
        "a has changed since you read it: bob wrote at TIME; read it again with read_file, then "
        "make your change to its current content"
    )
    assert untimed(edit(alice, "two", "2")) == why
    assert untimed(write(alice, "mine")) == why
    assert (root / "a").read_text() == "1 two"
    run(alice, "read_file")
    assert not edit(alice, "two", "2").is_error
    assert (root / "a").read_text() == "1 2"


def test_an_unread_file_is_not_changed(root: Path) -> None:
    (root / "a").write_text("old")
    alice = member(root, "alice")
    why = (
        "you have not read a, which a command or a person wrote at TIME; look at it with "
        "read_file before you change it"
    )
    assert untimed(write(alice, "new")) == why
    assert untimed(edit(alice, "old", "new")) == why
    assert (root / "a").read_text() == "old"


def test_a_new_file_need_not_be_read_first_and_counts_as_read_by_its_author(root: Path) -> None:
    alice, bob = member(root, "alice"), member(root, "bob")
    assert not write(alice, "one").is_error
    assert not edit(alice, "one", "two").is_error
    assert not write(alice, "three").is_error
    assert untimed(write(bob, "mine")).startswith("you have not read a, which alice wrote at TIME")
    assert (root / "a").read_text() == "three"


@pytest.mark.parametrize("by", ["in place", "by rename"])
def test_a_change_by_a_command_is_detected(root: Path, by: str) -> None:
    """Also with the same size at the same moment, and with the time set back."""
    alice = member(root, "alice")
    write(alice, "one")
    before = (root / "a").stat()
    if by == "in place":
        (root / "a").write_text("two")
    else:
        (root / "b").write_text("two")
        (root / "b").rename(root / "a")
    os.utime(root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    why = untimed(write(alice, "mine"))
    assert why.startswith("a has changed since you read it: a command or a person wrote at TIME")


def test_a_file_that_was_changed_and_changed_back_counts_as_read(root: Path) -> None:
    alice, bob = member(root, "alice"), member(root, "bob")
    write(alice, "one")
    run(bob, "read_file")
    edit(bob, "one", "two")
    edit(bob, "two", "one")
    assert not edit(alice, "one", "three").is_error


def test_a_removed_file_is_created_again_only_after_a_warning(root: Path) -> None:
    alice = member(root, "alice")
    write(alice, "one")
    (root / "a").unlink()
    assert untimed(write(alice, "two")) == (
        "a was removed or renamed since you read it, by a command or a person; look where it is "
        "now, and if it is still wanted here, write it once more"
    )
    assert not (root / "a").exists()
    assert not write(alice, "two").is_error
    (root / "a").unlink()
    (root / "a").write_text("other")
    assert untimed(write(alice, "three")).startswith("a has changed since you read it")


def test_one_page_must_be_read_to_edit_and_all_pages_to_overwrite(root: Path) -> None:
    (root / "a").write_text("1\n2\n3\n4\n")
    alice = member(root, "alice")
    run(alice, "read_file", offset=1, limit=2)
    assert untimed(write(alice, "mine")) == (
        "you have not read all of a; go on with read_file offset=3, "
        "or change a part of it with edit_file"
    )
    run(alice, "read_file", offset=4)
    assert untimed(write(alice, "mine")).startswith("you have not read all of a; go on with")
    run(alice, "read_file", offset=3, limit=1)
    run(alice, "read_file", offset=4)
    assert not write(alice, "mine").is_error
    (root / "b").write_text("1\n2\n3\n4\n")
    run(alice, "read_file", "b", offset=3, limit=1)
    assert not edit(alice, "1", "one", "b").is_error


def test_pages_of_two_versions_are_not_a_complete_reading(root: Path) -> None:
    (root / "a").write_text("1\n2\n")
    alice = member(root, "alice")
    run(alice, "read_file", limit=1)
    (root / "a").write_text("one\n2\n")
    run(alice, "read_file", offset=2)
    assert untimed(write(alice, "mine")).startswith("you have not read all of a")


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"\0\1", b"\xff"])
def test_a_file_that_cannot_be_shown_in_full_counts_as_read(root: Path, content: bytes) -> None:
    """An empty file, one very long line and binary content can still be overwritten."""
    (root / "a").write_bytes(content)
    alice = member(root, "alice")
    run(alice, "read_file")
    assert not write(alice, "mine").is_error


def test_a_link_counts_as_its_target(root: Path) -> None:
    (root / "a").write_text("one")
    (root / "link").symlink_to("a")
    alice, bob = member(root, "alice"), member(root, "bob")
    run(alice, "read_file", "link")
    run(bob, "read_file")
    assert not edit(alice, "one", "two").is_error
    assert untimed(edit(bob, "one", "1", "link")).startswith("a has changed since you read it")


def test_the_next_process_knows_which_files_were_read(root: Path) -> None:
    (root / "a").write_text("one")
    run(member(root, "alice"), "read_file")
    write(member(root, "alice"), "new", "b")
    following = member(root, "alice")
    assert not edit(following, "one", "two").is_error
    assert not edit(following, "new", "newer", "b").is_error


def test_a_new_conversation_has_read_nothing(root: Path) -> None:
    write(member(root, "alice"), "one")
    anew = member(root, "alice", conversation="second")
    assert untimed(write(anew, "two")) == (
        "you have not read a, which you wrote at TIME, in a call that was broken off or long ago; "
        "look at it with read_file before you change it"
    )


def test_torn_records_of_readings_are_ignored(root: Path) -> None:
    write(member(root, "alice"), "one")
    kept = root.parent / "state" / "alice.jsonl"
    kept.write_bytes(b'{"of": "first", "path": "x"}\n' + kept.read_bytes()[:-5])
    assert untimed(write(member(root, "alice"), "two")).startswith("you have not read a")
    assert not write(member(root, "alice"), "new", "b").is_error
    assert not edit(member(root, "alice"), "new", "newer", "b").is_error


@pytest.mark.slow
def test_the_reading_records_of_a_teammate_stay_few(root: Path) -> None:
    kept = root.parent / "state" / "alice.jsonl"
    alice = member(root, "alice")
    for n in range(300):
        write(alice, f"{n}")
    assert kept.read_bytes().count(b"\n") == 300
    assert not edit(member(root, "alice"), "299", "x").is_error
    assert kept.read_bytes().count(b"\n") == 2


@pytest.mark.slow
def test_the_record_of_a_workspace_is_bounded_and_keeps_the_latest(root: Path) -> None:
    written = WrittenFiles(root.parent / "written.jsonl")
    with written.locked() as fd:
        for n in range(20_000):
            written.note(fd, root / "a", f"{n:064}", "alice@one")
        assert written.path.stat().st_size < 2 << 20
        found = written.find(fd, root / "a", f"{19_999:064}")
        assert found is not None
        assert found[0] == "alice@one"
        assert written.find(fd, root / "a", f"{0:064}") is None


def test_a_large_file_has_a_version_too(root: Path) -> None:
    (root / "a").write_bytes(b"line\n" * (7 << 20))
    alice = member(root, "alice")
    assert untimed(write(alice, "x")).startswith("you have not read a")
    run(alice, "read_file", limit=1)
    assert untimed(write(alice, "x")).startswith("you have not read all of a")


@pytest.mark.parametrize("line", ["[1]", "5", "null", "{", '{"of": "first"}'])
def test_an_invalid_line_in_the_reading_records_is_skipped(root: Path, line: str) -> None:
    """A power cut may have left it; the other lines are still valid."""
    (root / "a").write_text("one")
    run(member(root, "alice"), "read_file")
    seen = root.parent / "state" / "alice.jsonl"
    seen.write_text(f"{line}\n{seen.read_text()}")
    assert not edit(member(root, "alice"), "one", "two").is_error
