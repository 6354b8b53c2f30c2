"""Fixtures that unit tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from teamd.files import pidfile
from teamd.files.paths import TeamPaths


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    """Paths of a team in its own project folder, so that tests can put other files outside it."""
    made = TeamPaths(tmp_path / "project" / ".team")
    made.create()
    return made


@pytest.fixture
def supervising(paths: TeamPaths) -> Iterator[ExitStack]:
    """Register this process as the running teamd until the stack is closed."""
    with ExitStack() as claimed:
        claimed.callback(os.close, pidfile.claim(paths))
        yield claimed
