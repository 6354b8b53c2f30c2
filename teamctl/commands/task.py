"""`teamctl task`: one task of the board, whether or not teamd runs."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click

from teamctl import arguments
from teamctl.mail.router import team_post
from teamctl.render import output
from teamctl.render.task_table import task_facts, task_state
from teamd.board.board import Board, Changed
from teamd.board.files import Tasks
from teamd.board.rules import Change
from teamd.board.task import Task, TaskStatus
from teamd.command_line import terminal
from teamd.command_line.options import NUMBER, SuggestingGroup, TextCommand, team_options
from teamd.command_line.run import TeamOptions
from teamd.files import pidfile
from teamd.messages import LEAD

# The statuses that a person can set; `checking` follows from the others.
_STATUSES = [str(status) for status in TaskStatus if status is not TaskStatus.CHECKING]

_id_argument = click.argument("task_id", metavar="ID", shell_complete=arguments.tasks)
_name_option = partial(click.option, metavar="NAME", shell_complete=arguments.boxes)
_check_option = partial(click.option, "--check", metavar="COMMAND")
_tasks_option = partial(click.option, multiple=True, metavar="ID", shell_complete=arguments.tasks)


_MEANT: Final = {
    **dict.fromkeys(("list", "ls"), "`teamctl tasks` shows the board"),
    **dict.fromkeys(
        ("close", "complete", "done", "finish"),
        "`teamctl task update ID --status completed` completes a task",
    ),
    **dict.fromkeys(
        ("delete", "remove", "rm"), "`teamctl task update ID --status deleted` deletes a task"
    ),
    **dict.fromkeys(("create", "new"), '`teamctl task add "…"` makes a task'),
    "edit": "`teamctl task update ID` changes a task",
    NUMBER: "`teamctl task show {word}` shows the task",
}


@click.group(cls=SuggestingGroup, meant=_MEANT)
@team_options
def command(_: TeamOptions) -> None:
    """Add, show, change or claim a task; `teamctl tasks` shows the board."""


@command.command(cls=TextCommand)
@click.argument("subject")
@click.option(
    "--description", "-d", default="", help="What to do, in full; - reads standard input."
)
@_tasks_option("--blocked-by", help="A task to complete first; may be repeated.")
@click.option(
    "--role", default="", help="For this role; with [tasks] auto_claim only it takes the task."
)
@_name_option("--owner", default="", help="Give it to a teammate, which gets mail about it.")
@_check_option(default="", help="A command that must exit with 0 for it to be completed.")
@output.json_option
@team_options
def add(
    choice: TeamOptions, subject: str, *, description: str, as_json: bool, **facts: Any
) -> None:
    """Put a task on the board and print its id."""
    board = _board(choice)
    made = board.add(subject, description=arguments.text_or_stdin(description), **facts)
    said = f"task {made.id} is made"
    taken = made.role and choice.settings(board.paths).tasks.auto_claim
    if not (made.owner or taken or made.blocked_by):
        claim = f"`teamctl task claim {made.id} --for NAME` gives it to a teammate"
        said = f"{said}; {board.paths.add_team_option(claim)}"
    output.print_either(said, made.to_json(), as_json=as_json)


@command.command()
@_id_argument
@output.json_option
@team_options
def show(choice: TeamOptions, task_id: str, *, as_json: bool) -> None:
    """Show everything about a task."""
    board = _board(choice)
    tasks = board.read()
    task = tasks.get(task_id)
    if as_json:
        output.print_json({**task.to_json(), "blocked": bool(tasks.blockers(task))})
        return
    _print_line(task, tasks)
    for line in task_facts(task, board.check):
        click.echo(line)


@command.command()
@_id_argument
@click.option("--subject", help="The subject, in a few words.")
@click.option("--description", "-d", help="What to do, in full; - reads standard input.")
@click.option(
    "--status",
    type=click.Choice(_STATUSES),
    help="The new status; pending removes the owner, or reopens the task.",
)
@_name_option("--owner", help='Give it to a teammate; "" removes the owner.')
@_check_option(help='The command that must exit with 0 for it to be completed; "" for none.')
@_tasks_option(
    "--add-blocked-by", "--blocked-by", "add_blocked_by",
    help="A task to complete first; may be repeated.",
)  # fmt: skip
@_tasks_option(
    "--remove-blocked-by", help="A task that no longer blocks this one; may be repeated."
)
@output.json_option
@team_options
def update(choice: TeamOptions, task_id: str, *, as_json: bool, **facts: Any) -> None:
    """Change a task, even if a teammate owns it."""
    if facts["description"] is not None:
        facts["description"] = arguments.text_or_stdin(facts["description"])
    if facts["status"] is not None:
        facts["status"] = TaskStatus(facts["status"])
    change = Change(**facts)
    if change == Change():
        raise click.UsageError("say what to change; for example `--status completed`")
    board = _board(choice)
    _print_changed(board.update(task_id, change), board, as_json=as_json)


@command.command()
@_id_argument
@_name_option("--owner", "--for", "owner", default=LEAD, show_default=True, help="The new owner.")
@output.json_option
@team_options
def claim(choice: TeamOptions, task_id: str, *, owner: str, as_json: bool) -> None:
    """Claim a free task. Its status is in_progress from then on.

    If several try at the same time, one of them gets it.
    """
    board = _board(choice)
    _print_changed(board.claim(task_id, owner=owner), board, as_json=as_json)


def _board(choice: TeamOptions) -> Board:
    post = team_post(choice)
    paths = post.paths
    check = "" if choice.without_settings(paths) else choice.settings(paths).tasks.check
    return Board(paths, post, LEAD, check=check, durable=post.durable)


def _print_changed(changed: Changed, board: Board, *, as_json: bool) -> None:
    if as_json:
        output.print_json({**changed.task.to_json(), "freed": list(changed.freed)})
        return
    tasks = board.read()
    _print_line(changed.task, tasks)
    if changed.freed:
        click.echo(f"no longer blocked: {', '.join(changed.freed)}")
    if changed.task.status is TaskStatus.CHECKING:
        nobody = pidfile.is_teamd_down(board.paths)
        when = "its check runs as soon as teamd does" if nobody else "its check runs"
        click.echo(f"{when}; `teamctl task show {changed.task.id}` has its end")


def _print_line(task: Task, tasks: Tasks) -> None:
    heading = terminal.style(f"task {task.id}", bold=True)
    click.echo(f"{heading} ({task_state(task, tasks)}): {output.plain(task.subject)}")
