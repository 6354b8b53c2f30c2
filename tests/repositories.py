"""Repositories of a person's, for tests of working copies."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from teamd.copies.clone import make_copy
from teamd.files.paths import TeamPaths

_FILES = {"a": "one\n", "b": "two\n"}
_IDENTITY = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")


def git(folder: Path, *words: str, check: bool = True) -> str:
    """Run git as the person does, without the settings of whoever runs the tests."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "file",
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *_IDENTITY, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, f"git {words}: {done.stderr}"
    return done.stdout.strip()


def make_repository(folder: Path, **files: str) -> Path:
    """Make a repository with a commit of some files on `main`; names have `.txt` behind them.

    Without any it is a.txt and b.txt, and the copy of one that each worker makes once: that takes
    a fifth of the time.
    """
    if files or (folder / ".git").exists():
        return _make(folder, files or _FILES)
    return Path(shutil.copytree(_prepared(), folder, symlinks=True, dirs_exist_ok=True))


@cache
def _prepared() -> Path:
    folder = Path(tempfile.mkdtemp(), "repository")
    atexit.register(shutil.rmtree, folder.parent)
    return _make(folder, _FILES)


def _make(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "user.name", "ann")
    git(folder, "config", "user.email", "ann@example.org")
    commit(folder, "first", **files)
    return folder


def commit(folder: Path, message: str, **files: str) -> str:
    """Write files and commit them; the commit."""
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    if files:
        git(folder, "add", *(f"{name}.txt" for name in files))
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def copy_project(
    folder: Path, *names: str, make: Callable[[Path], object] = make_repository
) -> TeamPaths:
    """Make a project in which these have working copies, as `make_copy` makes them.

    To copy one takes a tenth of the time.

    Args:
        folder: of the project.
        names: the teammates'.
        make: makes the repository.
    """
    made, paths = _make_project(make, names), TeamPaths(folder / ".team")
    shutil.copytree(made, folder, symlinks=True, dirs_exist_ok=True)
    for file in (*paths.work.glob("*.json"), *paths.work.glob("*/.git/objects/info/alternates")):
        file.write_text(file.read_text().replace(str(made), str(folder)))  # no other names it
    return paths


@cache
def _make_project(make: Callable[[Path], object], names: tuple[str, ...]) -> Path:
    folder = Path(tempfile.mkdtemp(), "project")
    atexit.register(shutil.rmtree, folder.parent)
    make(folder)
    paths = TeamPaths(folder / ".team")
    paths.create()
    for name in names:
        make_copy(paths, name, "default", folder)
    return folder
