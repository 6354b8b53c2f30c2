"""`teamctl team`: the members of the team, and how they are."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from teamctl import output
from teamctl.roster_table import drawn, measure, show
from teamd import commandline
from teamd.commandline import team_options
from teamd.errors import WrongUsage
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from teamd.cli import Choice
    from teamd.files.paths import TeamPaths


@commandline.command()
@commandline.option("--watch", "watched", is_flag=True, help="Keep showing it as it changes.")
@output.json_option
@team_options
def command(choice: Choice, *, watched: bool, as_json: bool) -> None:
    """Show the members of the team and their states.

    UP is how long the process has run, CPU its computing time, MAIL the number of messages in the
    inbox. IN and OUT are tokens, COST is in USD; `teamctl usage` shows more.
    """
    if watched and as_json:
        raise WrongUsage("--watch never ends and --json is one document: take one of them")
    paths = choice.existing()
    if as_json:
        keys, _ = choice.waiting(paths)
        team = Roster(paths).read()
        measured, trouble = measure(paths, team)
        if trouble:
            output.warn(trouble)
        members = [row.to_json() for row in measured]
        output.print_json({"team_name": team.name, "members": members, "untrusted": keys})
    elif watched:
        _watch(choice, paths)
    else:
        show(paths, choice.waiting(paths)[1])


def _watch(choice: Choice, paths: TeamPaths) -> None:
    from rich.live import Live  # noqa: PLC0415 -- only where something is drawn

    from teamd.files.watch import wait_for  # noqa: PLC0415 -- the same

    console = output.console()
    if not sys.stdout.isatty():
        raise WrongUsage("--watch needs a terminal; `teamctl team --json` is for programs")
    with Live(console=console, auto_refresh=False, screen=True) as live:

        def look() -> None:
            live.update(drawn(paths, choice.waiting(paths)[1]), refresh=True)

        wait_for(paths.root, look, timeout_seconds=math.inf)
