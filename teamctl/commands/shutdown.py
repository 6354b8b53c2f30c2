"""`teamctl shutdown`: ask a teammate to end, or all of them, and say what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from teamctl import output
from teamctl.completion import teammates
from teamd import control
from teamd.cli import INTERRUPTED, Choice, Seconds, pass_choice, team_options
from teamd.errors import ExitCode

if TYPE_CHECKING:
    from teamd.control import ControlReply

GRACE_SECONDS: Final = 10.0
_MARGIN_SECONDS: Final = 10.0  # from the deadline to the kill, and to the answer


@click.command()
@click.argument("name", required=False, shell_complete=teammates)
@click.option("--all", "everybody", is_flag=True, help="Ask every teammate.")
@click.option("--force", is_flag=True, help="Kill at once, without asking.")
@click.option(
    "--timeout",
    type=Seconds(zero=True),
    default=GRACE_SECONDS,
    show_default=True,
    help="How many seconds a teammate has to answer before it is ended.",
)
@team_options
@pass_choice
def command(
    choice: Choice, name: str | None, *, everybody: bool, force: bool, timeout: float
) -> int:
    """Ask NAME to end. It keeps its conversation, and `teamctl spawn NAME …` continues it.

    A working teammate approves, or rejects with a reason and goes on. An idle one approves. The
    exit status is 0 if it approved, 1 if it rejected, and 4 if the deadline or force ended it.
    With --all, one rejection makes it 1; otherwise one deadline makes it 4.
    """
    if (name is None) == (not everybody):
        raise click.UsageError("name a teammate, or give --all")
    arguments = {"all": True} if everybody else {"name": name}
    try:
        reply = control.ask(
            choice.existing(),
            "shutdown",
            {**arguments, "seconds": timeout, "force": force},
            timeout_seconds=(0.0 if force else timeout) + _MARGIN_SECONDS,
        )
    except KeyboardInterrupt:
        click.echo(
            choice.addressed(
                "teamctl: the request stands: who does not reject it is shut down, at the deadline "
                "at the latest; `teamctl team` shows it"
            ),
            err=True,
        )
        return INTERRUPTED
    choice.done = "the shutdown is done" if reply.exit_code == ExitCode.DONE else ""
    _show(reply)
    return reply.exit_code


def _show(reply: ControlReply) -> None:
    """Print a line for each teammate: on standard error unless it shut down as asked.

    Raises:
        TeamError: the request itself was refused.
    """
    members = reply.data.get("members")
    if members is None:
        click.echo(reply.raise_unless_done().text)
        return
    for member in members:
        click.echo(output.plain(member["text"]), err=member["exit_code"] != ExitCode.DONE)
