"""`teamctl web`: the team as a page in the browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from teamctl.render import output
from teamd.command_line.installation import install_command
from teamd.command_line.options import IntRange, team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError

_LAST_PORT: Final = 65_535


@click.command()
@click.option(
    "--socket", "file", metavar="PATH", help="Listen on a socket in a file instead, for `ssh -L`."
)
@click.option(
    "--port",
    type=IntRange(0, _LAST_PORT),
    default=0,
    help="The port, on this machine only  [default: any free one; with --socket 8080].",
)
@click.option(
    "--forwarded-port",
    "forwarded",
    type=IntRange(1, _LAST_PORT),
    help="The port where `ssh -L` begins, on the machine of the browser  [default: the same].",
)
@click.option("--readonly", is_flag=True, help="Let nobody act through the page.")
@click.option("--open", "opening", is_flag=True, help="Also open the page in your browser.")
@output.json_option
@team_options
def command(
    choice: TeamOptions,
    *,
    file: str | None,
    port: int,
    forwarded: int | None,
    readonly: bool,
    opening: bool,
    as_json: bool,
) -> None:
    """Serve the team as a page in the browser, and print its link.

    The link works on this machine only, and for as long as the command runs; Ctrl-C ends it. Anyone
    with the link can act as you or, with --readonly, only look. `teamctl help web` explains how to
    reach it from another machine.
    """
    if opening and (file or forwarded):
        raise click.UsageError("--open is for a browser on this machine; open the link over there")
    choice.existing()  # reports a missing team first
    try:
        from teamctl.web.server import serve  # noqa: PLC0415 -- the extra, only for this command
    except ImportError as error:
        if not (error.name or "").startswith(("starlette", "uvicorn", "sse_starlette", "anyio")):
            raise
        raise TeamError(
            "`teamctl web` needs packages that are not installed; "
            f"`{install_command('web')}` installs them"
        ) from error
    place = None if file is None else Path(file).absolute()

    def announce(url: str, note: str) -> None:
        if as_json:
            output.print_json_line({"url": url})
        else:
            ends = "Ctrl-C ends the page; the team goes on" if sys.stdout.isatty() else ""
            click.echo("\n".join(filter(None, [url, note, ends])))
        if opening:
            click.launch(url)

    serve(choice, announce, file=place, port=port, forwarded=forwarded, readonly=readonly)
