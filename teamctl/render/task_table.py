"""The task board as a table, the notes below it, and the lines about one task."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from teamctl.render import output, tables
from teamctl.render.tables import FittedTable, Shape
from teamd.board import rules
from teamd.board.files import Tasks
from teamd.board.task import Task, TaskStatus
from teamd.overview.standstill import find_idle_owners
from teamd.team.roster import Team

NO_TASKS: Final = 'no tasks; `teamctl task add "…"` makes one'
SHAPE: Final = Shape(
    elastic={"CHECK": 10, "SUBJECT": 16, "BLOCKED BY": 10, "ROLE": 6, "OWNER": 8},
    spare=("PROOF", "ROLE", "CHECK", "BLOCKED BY"),
    dispensable=("OWNER",),
)
_COLOURS: Final = {
    "in_progress": "green",
    "checking": "cyan",
    "completed": "bright_black",
    "deleted": "red",
}
_FACTS: Final = ("description", "role", "created_by", "check")


def task_table(shown: Sequence[Task], tasks: Tasks, team_check: str) -> FittedTable:
    """Return the table of some tasks; a column is left out if none of them needs it.

    Args:
        shown: the tasks.
        tasks: the whole board.
        team_check: the command that must pass for every task; may be empty.
    """
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
    rows = list(zip(*columns.values(), strict=True))
    return tables.make_table(list(columns), rows, ("ID",), SHAPE)


def task_notes(team: Team, tasks: Tasks) -> Iterator[tuple[str, str]]:
    """Yield the id of each task that nobody will start unasked, and a line about it."""
    members = [one for one in team.members if one.status.wants_process]
    roles = {member.role for member in members}
    for task in tasks.by_id.values():
        free = task.status is TaskStatus.PENDING and not task.owner
        if free and task.role and task.role not in roles and not tasks.blockers(task):
            hint = f"`teamctl spawn NAME {shlex.quote(task.role)} PROMPT` starts one"
            yield task.id, f"task {task.id} waits for a {task.role}, and there is none; {hint}"
    for task, owner in find_idle_owners(members, tasks):
        hint = f"`teamctl send {owner} TEXT` gives it a reason to go on"
        yield task.id, f"task {task.id} is in progress, but {owner} is idle; {hint}"


def task_state(task: Task, tasks: Tasks) -> str:
    """Return the status of a task, its owner, and the tasks that block it."""
    facts = [str(task.status)]
    if task.owner:
        facts.append(f"owner {output.plain(task.owner)}")
    if blockers := tasks.blockers(task):
        facts.append(f"blocked by {', '.join(blockers)}")
    return "; ".join(facts)


def task_facts(task: Task, team_check: str) -> Iterator[str]:
    """Yield the lines about a task: its text, proof, times, attempts and notes."""
    facts = {key: task.to_json()[key] for key in _FACTS} | {"check of the team": team_check}
    for key, value in facts.items():
        if value:
            yield f"{key.replace('_', ' ')}: {output.plain(value)}"
    yield f"proof: {rules.describe_proof(task, team_check)}"
    for key, moment in (("created", task.created), ("updated", task.updated)):
        if moment:
            yield f"{key}: {output.moment(moment)}"
    said = {task.check, team_check, *(attempt.command for attempt in task.attempts)} - {""}
    describe = rules.describe if len(said) > 1 else rules.describe_briefly
    for attempt in task.attempts:
        ended = output.plain(describe(attempt))
        yield f"attempt: {output.moment(attempt.time)}: {ended}"
    if task.attempts and task.owner and not task.proven:
        yield f"output: `teamctl transcript {task.owner}` shows it; it came as mail"
    for note in task.notes:
        yield f"note: {output.plain(note)}"
