"""What unit tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from teamd.files.paths import TeamPaths

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    """A team in a project of its own, so that other files can stand outside."""
    made = TeamPaths(tmp_path / "project" / ".team")
    made.create()
    return made
