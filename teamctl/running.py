"""A teamd that runs: commands that need one start it where there is none, and say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from teamd.command_line import terminal
from teamd.files import directories, pidfile
from teamd.files.paths import TeamPaths
from teamd.team import teams

if TYPE_CHECKING:
    from teamd.command_line.run import TeamOptions

no_start_option = click.option(
    "--no-start", is_flag=True, help="Do not start teamd where none runs: fail with status 3."
)


def ensure_running(choice: TeamOptions, *, no_start: bool) -> TeamPaths:
    """Return the team that is meant; a teamd serves it then, unless it is not to be started.

    What is said goes to standard error: the output is the command's own.

    Raises:
        TeamError: teamd did not start, or a setting is wrong.
    """
    if no_start:
        return choice.existing()
    # A name that is misspelt must not make a team.
    paths = choice.existing() if choice.team or choice.team_dir else choice.existing_or_here()
    if pidfile.supervisor(paths) is not None:
        return paths
    file = choice.settings_file(paths)
    directories.make_private_directory(paths.home)
    if not choice.without_settings(paths):
        choice.settings(paths)  # a mistake is told before anything is begun
    _say(f"no teamd runs for {paths.root}; starting it")
    import asyncio  # noqa: PLC0415 -- 40 ms, only where a teamd is started

    for line in asyncio.run(teams.start(paths, file if choice.config else None)):
        _say(line)
    stop = paths.add_team_option("`teamd stop` ends it")
    _say(f"teamd (pid {pidfile.check(paths).pid}) runs; {stop}")
    return paths


def _say(text: str) -> None:
    click.echo(terminal.plain(f"teamctl: {text}"), err=True)
