"""What unit tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.files.paths import TeamPaths


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    """A team in a project of its own, so that other files can stand outside."""
    made = TeamPaths(tmp_path / "project" / ".team")
    made.create()
    return made
