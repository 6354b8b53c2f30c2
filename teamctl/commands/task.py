"""`teamctl task`: add, show, change or claim a task, whether or not teamd runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from teamctl import output
from teamctl.completion import boxes
from teamctl.completion import tasks as task_ids
from teamctl.input import text_or_stdin
from teamd.board.board import Board
from teamd.board.rules import Change
from teamd.board.task import TaskStatus
from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode
from teamd.mail.routing import Post
from teamd.messages import LEAD

if TYPE_CHECKING:
    from teamd.board.board import Changed
    from teamd.board.files import Tasks
    from teamd.board.task import Task

_SHOWN = ("description", "role", "created_by")


@click.group()
@team_options
def command() -> None:
    """Add, show, change or claim a task; `teamctl tasks` shows the board."""


@command.command()
@click.argument("subject")
@click.option(
    "--description", "-d", default="", help="What to do, in full; - reads standard input."
)
@click.option(
    "--blocked-by",
    multiple=True,
    metavar="ID",
    shell_complete=task_ids,
    help="A task to complete first; may be repeated.",
)
@click.option("--role", default="", help="Only teammates of this role take it by themselves.")
@click.option(
    "--owner",
    default="",
    metavar="NAME",
    shell_complete=boxes,
    help="Give it to a teammate, which gets mail about it.",
)
@output.json_option
@team_options
@pass_choice
def add(
    choice: Choice,
    subject: str,
    *,
    description: str,
    blocked_by: tuple[str, ...],
    role: str,
    owner: str,
    as_json: bool,
) -> int:
    """Put a task on the board and print its id."""
    task = _board(choice).add(
        subject,
        description=text_or_stdin(description),
        blocked_by=blocked_by,
        role=role,
        owner=owner,
    )
    if as_json:
        output.print_json(task.to_json())
    else:
        click.echo(f"task {task.id} is made")
    return ExitCode.DONE


@command.command()
@click.argument("task_id", metavar="ID", shell_complete=task_ids)
@output.json_option
@team_options
@pass_choice
def show(choice: Choice, task_id: str, *, as_json: bool) -> int:
    """Show everything about a task."""
    tasks = _board(choice).read()
    task = tasks.get(task_id)
    if as_json:
        output.print_json({**task.to_json(), "blocked": bool(tasks.blockers(task))})
        return ExitCode.DONE
    _print_line(task, tasks)
    facts = task.to_json()
    for key in _SHOWN:
        if facts[key]:
            click.echo(f"{key.replace('_', ' ')}: {output.plain(facts[key])}")
    for key, moment in (("created", task.created), ("updated", task.updated)):
        if moment:
            click.echo(f"{key}: {output.moment(moment)}")
    for note in task.notes:
        click.echo(f"note: {output.plain(note)}")
    return ExitCode.DONE


@command.command()
@click.argument("task_id", metavar="ID", shell_complete=task_ids)
@click.option("--subject", help="The subject, in a few words.")
@click.option("--description", "-d", help="What to do, in full; - reads standard input.")
@click.option(
    "--status",
    type=click.Choice([str(status) for status in TaskStatus]),
    help="The new status; pending removes the owner, or reopens the task.",
)
@click.option(
    "--owner",
    metavar="NAME",
    shell_complete=boxes,
    help='Give it to a teammate; "" removes the owner.',
)
@click.option(
    "--add-blocked-by",
    "--blocked-by",
    "added",
    multiple=True,
    metavar="ID",
    shell_complete=task_ids,
    help="A task to complete first; may be repeated.",
)
@click.option(
    "--remove-blocked-by",
    "removed",
    multiple=True,
    metavar="ID",
    shell_complete=task_ids,
    help="A task that no longer blocks this one; may be repeated.",
)
@output.json_option
@team_options
@pass_choice
def update(
    choice: Choice,
    task_id: str,
    *,
    subject: str | None,
    description: str | None,
    status: str | None,
    owner: str | None,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    as_json: bool,
) -> int:
    """Change a task, also one that a teammate owns."""
    change = Change(
        subject=subject,
        description=None if description is None else text_or_stdin(description),
        status=None if status is None else TaskStatus(status),
        owner=owner,
        add_blocked_by=added,
        remove_blocked_by=removed,
    )
    if change == Change():
        raise click.UsageError("say what is to be changed; `--status completed`, for one")
    board = _board(choice)
    _print_changed(board.update(task_id, change), board, as_json=as_json)
    return ExitCode.DONE


@command.command()
@click.argument("task_id", metavar="ID", shell_complete=task_ids)
@click.option(
    "--owner",
    "--for",
    "owner",
    default=LEAD,
    show_default=True,
    metavar="NAME",
    shell_complete=boxes,
    help="The new owner.",
)
@output.json_option
@team_options
@pass_choice
def claim(choice: Choice, task_id: str, *, owner: str, as_json: bool) -> int:
    """Claim a free task. Its status is in_progress from then on.

    If several try at the same time, one of them gets it.
    """
    board = _board(choice)
    _print_changed(board.claim(task_id, owner=owner), board, as_json=as_json)
    return ExitCode.DONE


def _board(choice: Choice) -> Board:
    paths = choice.existing()
    mail = choice.settings(paths).mail
    durable = mail.durability == "disk"
    post = Post(paths, durable=durable, max_bytes=mail.max_message_bytes)
    return Board(paths, post, LEAD, durable=durable)


def _print_changed(changed: Changed, board: Board, *, as_json: bool) -> None:
    if as_json:
        output.print_json({**changed.task.to_json(), "freed": list(changed.freed)})
        return
    tasks = board.read()
    _print_line(changed.task, tasks)
    if changed.freed:
        click.echo(f"not blocked any more: {', '.join(changed.freed)}")


def _print_line(task: Task, tasks: Tasks) -> None:
    facts = [str(task.status)]
    if task.owner:
        facts.append(f"owner {output.plain(task.owner)}")
    if blockers := tasks.blockers(task):
        facts.append(f"blocked by {', '.join(blockers)}")
    heading = click.style(f"task {task.id}", bold=True)
    click.echo(f"{heading} ({'; '.join(facts)}): {output.plain(task.subject)}")
