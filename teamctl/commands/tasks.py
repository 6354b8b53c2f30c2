"""`teamctl tasks`: the board, whether or not teamd runs."""

from __future__ import annotations

import sys
from typing import Final

import click

from teamctl.render import output, tables
from teamctl.render.task_table import NO_TASKS, task_notes, task_table
from teamd.board.files import read_all
from teamd.board.task import TaskStatus
from teamd.command_line import terminal
from teamd.command_line.options import NUMBER, SuggestingCommand, team_options
from teamd.command_line.run import TeamOptions
from teamd.team.roster import Roster

_MEANT: Final = {
    **dict.fromkeys(("add", "claim", "show", "update"), "did you mean `teamctl task {words}`?"),
    NUMBER: "`teamctl task show {word}` shows one task",
}


@click.command(cls=SuggestingCommand, meant=_MEANT)
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
    notes = dict(task_notes(Roster(paths).read(), tasks))
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
        tables.console().print(task_table(shown, tasks, check))
        for line in notes.values():
            told = terminal.fit(paths.add_team_option(line), sys.stdout)
            click.echo(terminal.style(told, fg="yellow"))
    else:
        click.echo(choice.add_team_option(NO_TASKS))
