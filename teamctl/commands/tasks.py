"""`teamctl tasks`: the board, whether or not teamd runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click

from teamctl.render import output, tables
from teamctl.render.tables import Shape
from teamd.board import rules
from teamd.board.files import Tasks, read_all
from teamd.board.task import Task, TaskStatus
from teamd.command_line import terminal
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.files.paths import TeamPaths
from teamd.team.roster import Roster
from teamd.team.states import Status

_SHAPE = Shape(
    elastic={"SUBJECT": 16, "CHECK": 10, "BLOCKED BY": 10, "ROLE": 6, "OWNER": 8},
    spare=("PROOF", "ROLE", "CHECK", "BLOCKED BY"),
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

    ROLE names the role that may claim a task; BLOCKED BY lists the tasks to complete first; CHECK
    is the command that must pass, and PROOF says whether it did. A column is left out if no task
    needs it. Lines below the table name tasks that nobody works on. `teamctl task show ID` shows
    all of one task.
    """
    paths = choice.existing()
    tasks = read_all(paths)
    paths.note_seen()
    hidden = () if everything else (TaskStatus.DELETED,)
    shown = [task for task in tasks.by_id.values() if task.status not in hidden]
    for sentence in tasks.damaged.values():
        output.warn(sentence)
    check = "" if choice.without_settings(paths) else choice.settings(paths).tasks.check
    notes = dict(_notes(paths, tasks))
    if as_json:
        documents = [
            {
                **task.to_json(),
                "check_in_force": task.check or check,
                "blocked": bool(tasks.blockers(task)),
                "note": notes.get(task.id),
            }
            for task in shown
        ]
        output.print_json({"tasks": documents})
    elif shown:
        _draw(shown, tasks, check)
        for line in notes.values():
            click.echo(terminal.style(output.plain(paths.add_team_option(line)), fg="yellow"))
    else:
        click.echo(choice.add_team_option('no tasks; `teamctl task add "…"` makes one'))


def _notes(paths: TeamPaths, tasks: Tasks) -> Iterator[tuple[str, str]]:
    """Yield the id of each task that nobody will work on by themselves, and a line about it."""
    members = [one for one in Roster(paths).read().members if one.status.wants_process]
    roles = {member.role for member in members}
    for task in tasks.by_id.values():
        owner = next((one for one in members if one.name == task.owner), None)
        if task.status is TaskStatus.PENDING and not task.owner and task.role:
            if task.role not in roles and not tasks.blockers(task):
                hint = f"`teamctl spawn NAME {shlex.quote(task.role)} PROMPT` starts one"
                yield task.id, f"task {task.id} waits for a {task.role}, and there is none; {hint}"
        elif task.status is TaskStatus.IN_PROGRESS and owner and owner.status is Status.IDLE:
            hint = f"`teamctl send {owner.name} TEXT` gives it a reason to go on"
            yield task.id, f"task {task.id} is in progress, but {owner.name} is idle; {hint}"


def _draw(shown: list[Task], tasks: Tasks, team_check: str) -> None:
    columns = {
        "ID": [task.id for task in shown],
        "STATUS": [(task.status, _COLOURS.get(task.status, "")) for task in shown],
        "OWNER": [task.owner or "-" for task in shown],
        "ROLE": [task.role or "-" for task in shown],
        "BLOCKED BY": [", ".join(tasks.blockers(task)) or "-" for task in shown],
        "CHECK": [task.check or team_check or "-" for task in shown],
        "PROOF": [rules.describe_proof(task, team_check) for task in shown],
        "SUBJECT": [task.subject for task in shown],
    }
    if not any(task.role for task in shown):
        del columns["ROLE"]
    if not any(map(tasks.blockers, shown)):
        del columns["BLOCKED BY"]
    if not team_check and not any(task.check for task in shown):
        del columns["CHECK"]
    if all(task.proven is None for task in shown):
        del columns["PROOF"]
    tables.print_table(list(columns), list(zip(*columns.values(), strict=True)), ("ID",), _SHAPE)
