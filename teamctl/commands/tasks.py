"""`teamctl tasks`: the board, a line a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from teamctl import output
from teamd.board.files import read_all
from teamd.board.task import TaskStatus
from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode

if TYPE_CHECKING:
    from teamd.board.files import Tasks
    from teamd.board.task import Task

_COLOURS = {
    TaskStatus.IN_PROGRESS: "green",
    TaskStatus.COMPLETED: "bright_black",
    TaskStatus.DELETED: "red",
}


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also show deleted tasks.")
@output.json_option
@team_options
@pass_choice
def command(choice: Choice, *, everything: bool, as_json: bool) -> int:
    """Show the tasks of the team.

    BLOCKED BY lists the tasks to complete first. `teamctl task show ID` shows all of one task.
    """
    tasks = read_all(choice.existing())
    shown = [
        task for task in tasks.by_id.values() if everything or task.status is not TaskStatus.DELETED
    ]
    for sentence in tasks.damaged.values():
        output.warn(sentence)
    if as_json:
        documents = [{**task.to_json(), "blocked": bool(tasks.blockers(task))} for task in shown]
        output.print_json({"tasks": documents})
    elif shown:
        _draw(shown, tasks)
    else:
        click.echo(choice.addressed('no tasks; `teamctl task add "…"` makes one'))
    return ExitCode.DONE


def _draw(shown: list[Task], tasks: Tasks) -> None:
    from rich.text import Text  # noqa: PLC0415 -- only where something is drawn

    table = output.table(("ID", "STATUS", "OWNER", "BLOCKED BY", "SUBJECT"), numbers=("ID",))
    for task in shown:
        table.add_row(
            task.id,
            Text(task.status, style=_COLOURS.get(task.status, "")),
            Text(output.plain(task.owner) or "-"),
            ", ".join(tasks.blockers(task)) or "-",
            Text(output.plain(task.subject)),
        )
    output.console().print(table)
