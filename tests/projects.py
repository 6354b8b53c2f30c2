"""Projects with working copies: made once by each worker for all its tests, and copied."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from teamd.copies.clone import make_copy
from teamd.files.paths import TeamPaths
from tests.repositories import make_repository


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
