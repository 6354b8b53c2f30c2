"""What is given to teammates to read: the files of roles and skills."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamctl.doctor import Finding, Level
from teamd.settings import roles, skills

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.files.paths import TeamPaths
    from teamd.settings import Settings


def texts(settings: Settings, team: TeamPaths) -> Iterator[Finding]:
    """Name each file that cannot be understood: whoever needs it would be refused, or lack it."""
    workspace = settings.team.workspace
    _, unread = skills.find(skills.folders(team.skills, workspace))
    for error in (*roles.mistakes(roles.folders(team.agents, workspace)), *unread):
        for mistake in error.mistakes:
            yield Finding(Level.FAIL, f"{error.path}: {mistake}", "mend it in the file")
