"""`teamctl team`: the members of the team, and how they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamctl import output, roster_table
from teamd import commandline
from teamd.commandline import team_options
from teamd.errors import WrongUsage
from teamd.overview.overview import OverviewReader

if TYPE_CHECKING:
    from teamd.cli import Choice


@commandline.command()
@commandline.option(
    "--watch", "watched", is_flag=True, help="Keep showing it as it changes; q ends."
)
@output.json_option
@team_options
def command(choice: Choice, *, watched: bool, as_json: bool) -> None:
    """Show who needs you, the members of the team and what they do.

    FOR is how long that has lasted, CONTEXT the used share of the model's window, UP how long the
    process has run, CPU its computing time, MEM its memory, MAIL the number of messages in the
    inbox. IN and OUT are tokens, COST is in USD; `teamctl usage` shows more. RESTARTS is how often
    a crashed process was started again. A narrow terminal shows fewer columns.
    """
    if watched and as_json:
        raise WrongUsage("--watch never ends and --json is one document: take one of them")
    paths = choice.existing()
    if watched:
        from teamctl.watch import watch_team  # noqa: PLC0415 -- only where somebody watches

        watch_team(choice, paths)
        return
    seen = OverviewReader(paths).read(choice.waiting(paths))
    if not as_json:
        roster_table.show(seen)
        return
    if seen.trouble:
        output.warn(seen.trouble)
    output.print_json(seen.to_json())
