"""`teamctl tasks`: the board, whether or not teamd runs."""

from __future__ import annotations

import click

from teamctl.render import output, tables
from teamctl.render.tables import Shape
from teamd.board import rules
from teamd.board.files import Tasks, read_all
from teamd.board.task import Task, TaskStatus
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions

_SHAPE = Shape(
    elastic={"SUBJECT": 16, "BLOCKED BY": 10, "ROLE": 6, "OWNER": 8},
    spare=("PROOF", "ROLE", "BLOCKED BY"),
    dispensable=("OWNER",),
)
_COLOURS = {
    "in_progress": "green",
    "checking": "cyan",
    "completed": "bright_black",
    "deleted": "red",
}


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also show deleted tasks.")
@output.json_option
@team_options
def command(choice: TeamOptions, *, everything: bool, as_json: bool) -> None:
    """Show the tasks of the team.

    ROLE names the role that may claim a task; BLOCKED BY lists the tasks to complete first; PROOF
    says whether a task passed its check. A column is left out if no task needs it. `teamctl task
    show ID` shows all of one task.
    """
    tasks = read_all(choice.existing())
    hidden = () if everything else (TaskStatus.DELETED,)
    shown = [task for task in tasks.by_id.values() if task.status not in hidden]
    for sentence in tasks.damaged.values():
        output.warn(sentence)
    if as_json:
        documents = [{**task.to_json(), "blocked": bool(tasks.blockers(task))} for task in shown]
        output.print_json({"tasks": documents})
    elif shown:
        _draw(shown, tasks)
    else:
        click.echo(choice.add_team_option('no tasks; `teamctl task add "…"` makes one'))


def _draw(shown: list[Task], tasks: Tasks) -> None:
    columns = {
        "ID": [task.id for task in shown],
        "STATUS": [(task.status, _COLOURS.get(task.status, "")) for task in shown],
        "OWNER": [task.owner or "-" for task in shown],
        "ROLE": [task.role or "-" for task in shown],
        "BLOCKED BY": [", ".join(tasks.blockers(task)) or "-" for task in shown],
        "PROOF": [rules.describe_proof(task) for task in shown],
        "SUBJECT": [task.subject for task in shown],
    }
    if not any(task.role for task in shown):
        del columns["ROLE"]
    if not any(map(tasks.blockers, shown)):
        del columns["BLOCKED BY"]
    if all(task.proven is None for task in shown):
        del columns["PROOF"]
    tables.print_table(list(columns), list(zip(*columns.values(), strict=True)), ("ID",), _SHAPE)
