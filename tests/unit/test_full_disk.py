"""A full disk: the error says so, and every file is as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamd.errors import StoreError
from teamd.files import files
from tests.children import said

TRIES = """
import sys
from pathlib import Path
from teamd.errors import StoreError
from teamd.files import files
try:
    getattr(files, sys.argv[1])(Path(sys.argv[2]), b"x" * int(sys.argv[3]) + b"\\n")
except StoreError as error:
    print(error)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bob.jsonl"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


@pytest.mark.parametrize("old", [b"old\n", None])
def test_a_failed_replace_keeps_the_old_content(path: Path, old: bytes | None) -> None:
    """Otherwise a full disk would leave a roster of 0 bytes and a temporary file for each try."""
    if old is not None:
        path.write_bytes(old)
    error = said(TRIES, "replace", path, 5000, file_bytes=1000)
    assert error == f"no space left for {path}; free some and try again\n"
    assert files.read(path) == old
    assert names(path.parent) == ([path.name] if old is not None else [])


def test_a_failed_append_leaves_no_partial_line(path: Path) -> None:
    """The kernel writes the bytes that fit, and only the next write fails."""
    path.write_bytes(b"old\n")
    error = said(TRIES, "append", path, 5000, file_bytes=1000)
    assert error == f"no space left for {path}; free some and try again\n"
    assert path.read_bytes() == b"old\n"


def test_a_full_disk_holds_whole_lines_only(small_disk: Path) -> None:
    """The same on a real full disk: a page may be free for a part of the line."""
    path = small_disk / "bob.jsonl"
    line = b"x" * 2999 + b"\n"
    with pytest.raises(StoreError, match="no space left"):
        list(map(files.append, [path] * 100, [line] * 100))
    count, rest = divmod(path.stat().st_size, len(line))
    assert (count > 10, rest) == (True, 0)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no space left"):
        files.replace(path, before + b"x" * 60_000)
    assert path.read_bytes() == before
    assert names(small_disk) == [path.name]
