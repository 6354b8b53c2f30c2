"""`teamctl team --watch`: the overview of a team as it changes."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from teamctl import output
from teamctl.roster_table import drawn
from teamd.errors import WrongUsage
from teamd.files.watch import wait_for
from teamd.overview.overview import OverviewReader

if TYPE_CHECKING:
    from teamd.cli import Choice
    from teamd.files.paths import TeamPaths


def watch_team(choice: Choice, paths: TeamPaths) -> None:
    """Show the team until interrupted."""
    from rich.live import Live  # noqa: PLC0415 -- only where something is drawn

    if not sys.stdout.isatty():
        raise WrongUsage("--watch needs a terminal; `teamctl team --json` is for programs")
    reader = OverviewReader(paths)
    with Live(console=output.console(), auto_refresh=False, screen=True) as live:

        def look() -> None:
            live.update(drawn(reader.read(choice.waiting(paths))), refresh=True)

        wait_for(paths.root, look, timeout_seconds=math.inf)
