"""The rules of the board: which member may change a task in which way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from teamd.board.files import Tasks
from teamd.board.task import Attempt, Task, TaskStatus
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD, TEAMD, USER, new_id
from teamd.team.roster import Roster, Team
from teamd.team.states import Status

_LONGEST_COMMAND: Final = 300
NOTES_KEPT: Final = 20


def mark_done(task: Task, team_check: str) -> Task:
    """Return a task that its owner marks done: `checking` if there is a check, else completed."""
    if not (task.check or team_check):
        return replace(task, status=TaskStatus.COMPLETED, proven=None)
    checking = replace(task, status=TaskStatus.CHECKING, proven=False)
    return replace(checking, claim=new_id(), kills=0)


def is_claimed(task: Task, claim: str) -> bool:
    """Return whether this claim of a task is still being checked."""
    return task.status is TaskStatus.CHECKING and task.claim == claim


def apply_attempt(task: Task, attempt: Attempt | None) -> Task:
    """Return a task after a run of its check; `attempt` is `None` if the check was removed."""
    if attempt is None:
        return replace(task, status=TaskStatus.COMPLETED, proven=None, claim="", kills=0)
    tried = replace(task, attempts=(*task.attempts, attempt), claim="", kills=0)
    if attempt.passed:
        return replace(tried, status=TaskStatus.COMPLETED, proven=True)
    begun = TaskStatus.IN_PROGRESS if task.owner else TaskStatus.PENDING
    return replace(tried, status=begun, proven=False)


def reopen(task: Task, tasks: Tasks, *, note: str) -> Task:  # noqa: ARG001 -- a rule of the board
    """Reopen a completed task that could not be merged, once for each note; return the task."""
    if task.status is not TaskStatus.COMPLETED or note in task.notes:
        return task
    begun = TaskStatus.IN_PROGRESS if task.owner else TaskStatus.PENDING
    return replace(task, status=begun, proven=False, notes=(*task.notes, note)[-NOTES_KEPT:])


def count_failures(task: Task) -> int:
    """Return how often the check has failed since it last passed."""
    count = 0
    for attempt in task.attempts:
        count = 0 if attempt.passed else count + 1
    return count


def describe_proof(task: Task, team_check: str = "") -> str:
    """Return the state of a task's proof in a word or two."""
    if task.status is TaskStatus.COMPLETED:
        return "proven" if task.proven else "unproven"
    if task.status is TaskStatus.CHECKING:
        return "checking"
    if count := count_failures(task):
        return f"failed {count} times" if count > 1 else "failed once"
    return "not yet" if task.check or team_check else "no check"


def describe(attempt: Attempt) -> str:
    """Return how a run of a check ended, with its command."""
    command = " ".join(attempt.command.split())
    if len(command) > _LONGEST_COMMAND:
        command = f"{command[:_LONGEST_COMMAND]} …"
    if attempt.why:
        return f"`{command}`: {attempt.why}"
    return f"`{command}` ended with {_ending(attempt)}"


def describe_briefly(attempt: Attempt) -> str:
    """Return how a run of a check ended, without its command."""
    return attempt.why or _ending(attempt)


def _ending(attempt: Attempt) -> str:
    return f"exit status {attempt.status} after {attempt.seconds:.1f} s"


LONGEST_SUBJECT: Final = 200
LONGEST_CHECK: Final = 4000
_GONE: Final = {Status.SHUTDOWN: "is shut down", Status.FAILED: "has failed"}
_LEADING: Final = frozenset({LEAD, USER, TEAMD})
_BEGUN: Final = (TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED)


class TaskRefused(TeamError):
    """A change that the state of a task, or the member's rights, do not allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that a member wants; `None` leaves a field as it is.

    Attributes:
        owner: a name as the roster spells it; empty to return the task.
        check: the command that must pass; empty for only the team's check.
    """

    subject: str | None = None
    description: str | None = None
    status: TaskStatus | None = None
    owner: str | None = None
    check: str | None = None
    add_blocked_by: tuple[str, ...] = ()
    remove_blocked_by: tuple[str, ...] = ()


def claim_for(task: Task, *, owner: str, tasks: Tasks) -> Task:
    """Return the task in progress with a new owner; unchanged if the owner has it already."""
    if not task.status.open:
        raise TaskRefused(
            f"task {task.id} is {task.status}; to open it again set its status to pending"
        )
    if task.owner and not task.is_of(owner):
        raise TaskRefused(f"task {task.id} is {task.owner}'s already; take one that has no owner")
    if task.status is TaskStatus.CHECKING:
        raise TaskRefused(
            f"task {task.id} is being checked; wait for the result: its owner gets mail if it fails"
        )
    if task.status is TaskStatus.IN_PROGRESS and task.owner:
        return task
    _check_unblocked(task, tasks)
    return replace(task, status=TaskStatus.IN_PROGRESS, owner=owner)


def apply_change(task: Task, change: Change, *, who: str, tasks: Tasks, check: str = "") -> Task:
    """Return a task after a change by a member.

    Args:
        task: the task before it.
        change: the wanted change.
        who: the member.
        tasks: all tasks.
        check: the team's check.
    """
    said = replace(
        task,
        subject=task.subject if change.subject is None else clean_subject(change.subject),
        description=task.description if change.description is None else change.description,
    )
    if change.check is not None and change.check.strip() != task.check:
        command = _checked_by(task, change.check, who)
        said = replace(said, check=command, proven=False if command else None)
    moved = _moved(_linked(said, change, tasks), change, who, tasks)
    status, anew = moved.status, moved.status is not task.status
    if status is TaskStatus.CHECKING and moved.check != task.check:
        return mark_done(moved, check)  # it starts again with the new check
    if not anew:
        return moved
    if status is TaskStatus.COMPLETED:
        return mark_done(moved, check)
    return replace(moved, claim="", kills=0, proven=False if moved.check else None)


def release(task: Task, why: str) -> Task:
    """Return an open task without its owner, which is gone."""
    notes = (*task.notes, f"released: {why}")[-NOTES_KEPT:]
    return replace(task, status=TaskStatus.PENDING, owner="", notes=notes)


def free_for(task: Task, *, name: str, role: str, tasks: Tasks) -> bool:
    """Return whether a teammate may start a task without being assigned to it.

    The task must be pending, unblocked, for its role, and free or its own. A task that the teammate
    has returned is left to others: otherwise it would claim and return the task forever.
    """
    return (
        task.status is TaskStatus.PENDING
        and name not in task.given_back
        and (not task.owner or task.is_of(name))
        and (not task.role or task.role.lower() == role.lower())
        and not tasks.blockers(task)
    )


def clean_subject(text: str) -> str:
    """Return a subject on one line.

    Raises:
        TaskRefused: the subject is empty or too long.
    """
    subject = " ".join(text.split())
    if not subject:
        raise TaskRefused("a task needs a subject; say in a few words what is to be done")
    if len(subject) > LONGEST_SUBJECT:
        raise TaskRefused(
            f"a subject of {len(subject)} characters is over the limit of {LONGEST_SUBJECT}; "
            "put the rest into the description"
        )
    return subject


def _checked_by(task: Task, command: str, who: str) -> str:
    """Return a check if the member may set it for a task."""
    if who not in _LEADING and who.lower() != task.created_by.lower():
        maker = task.created_by or LEAD
        others = "" if maker == LEAD else " or lead"
        raise TaskRefused(
            f"the check of task {task.id} is {maker}'s; only {maker}{others} may change it: "
            f"mail {maker}"
        )
    if not task.status.open:
        raise TaskRefused(f"task {task.id} is {task.status}; set its status to pending as well")
    return clean_check(command)


def clean_check(text: str) -> str:
    """Return a check as bash accepts it.

    Raises:
        TaskRefused: the command is too long, or holds NULs or lone surrogates.
    """
    command = text.strip()
    if len(command) > LONGEST_CHECK:
        raise TaskRefused(
            f"a check of {len(command)} characters is over the limit of {LONGEST_CHECK}; "
            "put it into a file and name that"
        )
    if "\0" in command or command.encode(errors="replace").decode() != command:
        raise TaskRefused("a check cannot hold NULs or lone surrogates; leave them out")
    return command


def check_links(task_id: str, links: tuple[str, ...], tasks: Tasks) -> tuple[str, ...]:
    """Return the ids of the tasks that block a task, without duplicates.

    Raises:
        TeamError: a task does not exist or is deleted.
    """
    found = [tasks.get(link) for link in links]
    for other in found:
        if other.status is TaskStatus.DELETED:
            raise TaskRefused(
                f"task {other.id} is deleted and would never block task {task_id}; leave it out"
            )
    return tuple(dict.fromkeys(other.id for other in found))


def resolve_owner(paths: TeamPaths, name: str) -> str:
    """Return an owner's name as the roster spells it; empty for an empty name.

    Raises:
        TeamError: the teammate does not exist, is shut down or has failed.
    """
    wanted = name.strip()
    if not wanted:
        return ""
    if wanted.lower() in (LEAD, USER):
        return LEAD
    team = Roster(paths).read()
    member = team.get(wanted.removesuffix(f"@{team.name}"))
    if member.status in _GONE:
        raise TaskRefused(
            f"{member.name} {_GONE[member.status]} and cannot own a task; "
            f"`teamctl spawn {member.name} …` resumes it"
        )
    return member.name


def gone_from(team: Team) -> Callable[[str], str | None]:
    """Return a function that returns why an owner is gone, or `None` if it is not."""

    def why(owner: str) -> str | None:
        if owner.lower() in _LEADING:
            return None
        member = team.find(owner)
        if member is None:
            return f"{owner} is not in the team any more"
        words = _GONE.get(member.status)
        return f"{member.name} {words}" if words else None

    return why


def _linked(task: Task, change: Change, tasks: Tasks) -> Task:
    removed = {link.strip().removeprefix("#") for link in change.remove_blocked_by}
    kept = tuple(link for link in task.blocked_by if link not in removed)
    added = check_links(task.id, change.add_blocked_by, tasks)
    linked = replace(task, blocked_by=tuple(dict.fromkeys((*kept, *added))))
    if added and (cycle := tasks.with_task(linked).cycle(task.id)):
        raise TaskRefused(
            f"task {task.id} would wait for itself: {' waits for '.join(cycle)}; "
            "leave one of these out"
        )
    return linked


def _moved(task: Task, change: Change, who: str, tasks: Tasks) -> Task:
    if change.status is None and (change.owner is None or change.owner == task.owner):
        return task
    if change.status is None and not task.status.open:
        raise TaskRefused(f"task {task.id} is {task.status}; set its status to pending as well")
    status = change.status or TaskStatus.PENDING  # a new owner starts the task
    owner = _usual_owner(task, status, who) if change.owner is None else change.owner
    under_way = (TaskStatus.COMPLETED, TaskStatus.CHECKING)
    if owner == task.owner and (status is task.status or (status, task.status) == under_way):
        return task
    _check_right(task, status, who)
    _check_possible(task, status, owner)
    if status in _BEGUN and who not in _LEADING:
        _check_unblocked(task, tasks)
    moved = replace(task, status=status, owner=owner)
    if task.is_of(who) and not owner:
        return replace(moved, given_back=tuple(dict.fromkeys((*task.given_back, who))))
    return moved


def _check_possible(task: Task, status: TaskStatus, owner: str) -> None:
    if status is TaskStatus.CHECKING:
        raise TaskRefused(
            f"task {task.id} is checked once its status is set to completed; set that"
        )
    if status is TaskStatus.IN_PROGRESS and not owner:
        raise TaskRefused(f"task {task.id} cannot be in progress without an owner; name one")
    if task.status is TaskStatus.DELETED and status is not TaskStatus.PENDING:
        raise TaskRefused(f"task {task.id} is deleted; to open it again set its status to pending")


def _usual_owner(task: Task, status: TaskStatus, who: str) -> str:
    """Return the owner of a task in its new status if the change does not name one."""
    if status is TaskStatus.IN_PROGRESS:
        return task.owner or who
    if status is TaskStatus.PENDING and task.status is not TaskStatus.PENDING:
        return ""
    return task.owner


def _check_right(task: Task, status: TaskStatus, who: str) -> None:
    """Check that a member may set this status."""
    if who in _LEADING or task.is_of(who):
        return
    if task.owner:
        raise TaskRefused(
            f"task {task.id} is {task.owner}'s; only {task.owner} or lead may change it: "
            f"mail {task.owner}"
        )
    if status is TaskStatus.COMPLETED:
        raise TaskRefused(f"task {task.id} has no owner; claim it before you complete it")
    over = status is TaskStatus.DELETED or not task.status.open
    if over and task.created_by.lower() != who.lower():
        maker = task.created_by or LEAD
        raise TaskRefused(
            f"task {task.id} was made by {maker}; only {maker} or lead may delete or reopen it"
        )


def _check_unblocked(task: Task, tasks: Tasks) -> None:
    if blockers := tasks.blockers(task):
        word = "task" if len(blockers) == 1 else "tasks"
        raise TaskRefused(
            f"task {task.id} is blocked by {word} {', '.join(blockers)}; "
            "take another one until that is completed"
        )
