"""`teamctl top`: the team on the whole screen, starting with the requests for the person."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import click

from teamctl.render.roster_table import show
from teamctl.top import drawing
from teamd.command_line.installation import install_command
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.overview.overview import OverviewReader


@click.command()
@click.option("--readonly", is_flag=True, help="Only look: no key changes anything.")
@click.option(
    "--mouse", is_flag=True, help="Take the mouse, which the terminal's own selection then lacks."
)
@team_options
def command(choice: TeamOptions, *, readonly: bool, mouse: bool) -> None:
    """Show the team on the whole screen: the requests for you, and the work of each teammate.

    Answer requests with `a` and `r`, look at a teammate with Enter; `?` shows all keys. The left
    and right arrows change the tab: members, board, queue, usage and mail. Without a terminal, it
    prints the output of `teamctl team`.

    It needs textual, from the extra teamd[top].
    """
    if not _has_screen():
        paths = choice.existing()
        show(OverviewReader(paths).read(choice.waiting(paths)))
        return
    if find_spec("textual") is None:
        raise click.UsageError(f"top needs textual; `{install_command('top')}` installs it")
    _run(choice, readonly=readonly, mouse=mouse)


def _has_screen() -> bool:
    # textual draws on standard error.
    terminals = all(one.isatty() for one in (sys.stdin, sys.stdout, sys.stderr))
    return terminals and os.environ.get("TERM", "dumb") != "dumb"


def _run(choice: TeamOptions, *, readonly: bool, mouse: bool) -> None:
    seen = OverviewReader(choice.existing()).read()  # the watcher reads the settings, which is slow
    with drawing.taken_terminal(seen):
        from teamctl.top.app import Top  # noqa: PLC0415 -- textual takes longer than a glance

        Top(choice, seen, readonly=readonly).run(mouse=mouse)
