"""Fixtures that unit tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.files.paths import TeamPaths


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    """Paths of a team in its own project folder, so that tests can put other files outside it."""
    made = TeamPaths(tmp_path / "project" / ".team")
    made.create()
    return made
