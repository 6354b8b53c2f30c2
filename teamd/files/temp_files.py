"""What a kill leaves in a team directory: files that were written aside and never renamed."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from teamd.files import files, os_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from teamd.files.paths import TeamPaths

SECONDS: Final = 3600.0  # nobody takes so long from writing aside to renaming
_ASIDE: Final = ".teamd-*.tmp"


def aside(paths: TeamPaths) -> list[Path]:
    """Files that were written aside so long ago that whoever wrote them is gone."""
    with os_errors.translate_os_errors(paths.root):
        return list(older(paths.root.rglob(_ASIDE), seconds=SECONDS))


def older(found: Iterable[Path], *, seconds: float) -> Iterator[Path]:
    """Those that nobody has written to for so long; what goes meanwhile is passed over."""
    for path in found:
        written = _written(path)
        if written is not None and time.time() - written >= seconds:
            yield path


def sweep(paths: TeamPaths) -> list[Path]:
    """Remove what was written aside and left; returns what that was.

    Raises:
        StoreError: something cannot be removed.
    """
    found = aside(paths)
    for path in found:
        files.remove(path)
    return found


def _written(path: Path) -> float | None:
    with os_errors.translate_os_errors(path), suppress(FileNotFoundError):
        return path.lstat().st_mtime
    return None
