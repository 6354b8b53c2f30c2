"""The version of a file is told by a descriptor that stays open, and differs at every change."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from teamd.files.file_stamp import KeptVersion, version_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "file").write_text("one")
    return tmp_path / "team" / "file"


@pytest.fixture
def kept(path: Path) -> KeptVersion:
    """One that has a descriptor of the file."""
    made = KeptVersion(path)
    assert made.read() == made.read() == version_of(path)
    assert len(made._kept) == 1
    return made


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def write(path: Path) -> None:
    path.write_text("three")


def replace(path: Path) -> None:
    path.with_name("new").write_text("two")
    path.with_name("new").rename(path)


def exchange(path: Path) -> None:
    """Have another file of the same size stand there, and this one under another name."""
    path.with_name("new").write_text("two")
    path.rename(path.with_name("old"))
    path.with_name("new").rename(path)


def link(path: Path) -> None:
    path.rename(path.with_name("old"))
    path.symlink_to("old")


def give_second_name(path: Path) -> None:
    path.with_name("second").hardlink_to(path)


def remove(path: Path) -> None:
    path.unlink()


CHANGES = [write, replace, exchange, link, give_second_name, remove]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_file_is_told_at_once(
    kept: KeptVersion, path: Path, change: Callable[[Path], None]
) -> None:
    before = kept.read()
    change(path)
    assert kept.read() == version_of(path) != before
    assert [kept.read(), kept.read()] == 2 * [version_of(path)]
    assert all(os.path.samestat(os.fstat(one.fd), path.lstat()) for one in kept._kept)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_a_look_and_the_opening_is_told(
    path: Path, change: Callable[[Path], None]
) -> None:
    kept = KeptVersion(path)
    kept.read()
    change(path)
    assert [kept.read() for _ in range(3)] == 3 * [version_of(path)]


def test_a_name_in_a_folder_is_a_change_of_it(path: Path) -> None:
    kept = KeptVersion(path.parent)
    before = [kept.read() for _ in range(3)]
    replace(path)
    assert kept.read() == version_of(path.parent) != before[-1]
    path.parent.rename(path.parent.with_name("moved"))
    assert kept.read() is None


def test_a_path_is_walked_again_after_a_second(
    kept: KeptVersion, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder above that was renamed is seen by that alone."""
    now = kept._kept[0].until - 0.001
    monkeypatch.setattr(time, "monotonic", lambda: now)
    before = kept.read()
    team = path.parent
    team.rename(team.with_name("old"))
    team.mkdir()
    assert kept.read() == before, "it goes on with the folder that it knows"
    now += 0.002
    assert kept.read() is None
    path.write_text("one")
    assert [kept.read() for _ in range(3)] == 3 * [version_of(path)] != 3 * [before]


def test_a_process_that_was_forked_leaves_the_descriptor_alone(
    kept: KeptVersion, path: Path
) -> None:
    """Its number may be another file's by then."""
    [opened] = kept._kept
    forked = os.fork()
    if forked == 0:
        os.close(opened.fd)
        other = os.open(path.parent, os.O_RDONLY)
        right = other == opened.fd and kept.read() == version_of(path)
        same = os.path.samestat(os.fstat(other), path.parent.stat())
        os._exit(0 if right and same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert kept._kept == [opened]


def test_its_descriptors_are_closed(path: Path) -> None:
    kept = KeptVersion(path)
    kept.read()
    kept.read()
    [opened] = kept._kept
    replace(path)
    kept.read()
    kept.read()
    [another] = kept._kept
    del kept
    gc.collect()
    assert not is_open(another.fd)
    assert opened.fd == another.fd or not is_open(opened.fd)


def test_what_nobody_may_open_is_looked_at_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    kept = KeptVersion(tmp_path / "link")
    found = [kept.read() for _ in range(3)]
    assert found == 3 * [version_of(tmp_path / "link")]
    assert found[0] is not None
    assert not kept._kept
