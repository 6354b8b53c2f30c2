"""Files left by a kill are removed once no process can be using them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from teamd.files import directories
from teamd.files.paths import TeamPaths


def left(path: Path, *, hours: float) -> Path:
    path.write_bytes(b"x")
    then = time.time() - hours * 3600
    os.utime(path, (then, then))
    return path


def test_only_old_temporary_files_are_swept(paths: TeamPaths) -> None:
    """A young temporary file may be about to be renamed."""
    old = [
        left(folder / f".teamd-{number}.tmp", hours=1.1)
        for number, folder in enumerate((paths.root, paths.inboxes, paths.replies))
    ]
    kept = [
        left(paths.inboxes / ".teamd-young.tmp", hours=0.9),
        left(paths.inbox("bob"), hours=1000),
        left(paths.root / "mine.tmp", hours=1000),
        left(paths.home / ".teamd-elsewhere.tmp", hours=1000),
    ]
    assert sorted(directories.sweep(paths)) == sorted(old)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in kept)
    assert directories.sweep(paths) == []


def test_a_link_is_removed_and_its_target_is_kept(paths: TeamPaths, tmp_path: Path) -> None:
    outside = left(tmp_path / "outside", hours=0)
    link = paths.root / ".teamd-link.tmp"
    link.symlink_to(outside)
    then = time.time() - 7200
    os.utime(link, (then, then), follow_symlinks=False)
    assert directories.sweep(paths) == [link]
    assert outside.exists()


def test_a_file_that_disappears_meanwhile_is_skipped(paths: TeamPaths) -> None:
    there = left(paths.root / "there", hours=1)
    found = directories.older([paths.root / "gone", there], seconds=1)
    assert list(found) == [there]
