"""The rules of the board: the changes that each member may make, and their results."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from teamd.board.files import Tasks
from teamd.board.rules import Change, apply_change, claim_for, free_for, release
from teamd.board.task import Task, TaskStatus
from teamd.errors import TeamError

PENDING, IN_PROGRESS, CHECKING, COMPLETED, DELETED = TaskStatus
NOBODY = ""


def board(*tasks: Task) -> Tasks:
    return Tasks({task.id: task for task in tasks})


def task(status: TaskStatus = PENDING, owner: str = NOBODY, *blocked_by: str) -> Task:
    return Task(
        id="2",
        subject="Test it",
        status=status,
        owner=owner,
        created_by="carol",
        blocked_by=tuple(blocked_by),
    )


def outcome_of(deed: Callable[[], Task]) -> str:
    """Return status and owner, or the sentence of the refusal."""
    try:
        after = deed()
    except TeamError as error:
        return str(error)
    return f"{after.status}/{after.owner}"


BLOCKER = Task(id="1", subject="Write it")

CLAIMS = [
    (task(), "in_progress/alice"),
    (task(PENDING, "alice"), "in_progress/alice"),
    (task(IN_PROGRESS, "alice"), "in_progress/alice"),
    (task(IN_PROGRESS, "Alice"), "in_progress/Alice"),
    (task(IN_PROGRESS), "in_progress/alice"),
    (task(PENDING, "bob"), "task 2 is bob's already; take one that has no owner"),
    (task(IN_PROGRESS, "bob"), "task 2 is bob's already; take one that has no owner"),
    (task(COMPLETED, "alice"), "task 2 is completed; to open it again set its status to pending"),
    (task(DELETED), "task 2 is deleted; to open it again set its status to pending"),
    (task(PENDING, NOBODY, "1"), "task 2 is blocked by task 1; take another one until that"),
]


@pytest.mark.parametrize(("before", "outcome"), CLAIMS, ids=[o for _, o in CLAIMS])
def test_a_claim_succeeds_or_says_why_not(before: Task, outcome: str) -> None:
    came = outcome_of(lambda: claim_for(before, owner="alice", tasks=board(BLOCKER, before)))
    assert came.startswith(outcome)


UPDATES = [
    # the task, the member, its change, and the outcome
    (task(IN_PROGRESS, "alice"), "alice", Change(status=COMPLETED), "completed/alice"),
    (task(PENDING, "alice"), "alice", Change(status=COMPLETED), "completed/alice"),
    (task(COMPLETED, "alice"), "alice", Change(status=COMPLETED), "completed/alice"),
    (task(IN_PROGRESS, "alice"), "lead", Change(status=COMPLETED), "completed/alice"),
    (task(IN_PROGRESS, "alice"), "bob", Change(status=COMPLETED), "task 2 is alice's; only alice"),
    (task(), "bob", Change(status=COMPLETED), "task 2 has no owner; claim it before"),
    (task(), "lead", Change(status=COMPLETED), "completed/"),
    (task(DELETED), "carol", Change(status=COMPLETED), "task 2 has no owner; claim it before"),
    (task(DELETED), "lead", Change(status=COMPLETED), "task 2 is deleted; to open it again"),
    (task(IN_PROGRESS, "alice"), "alice", Change(status=PENDING), "pending/"),
    (task(IN_PROGRESS, "alice"), "bob", Change(status=PENDING), "task 2 is alice's; only alice"),
    (task(IN_PROGRESS, "alice"), "alice", Change(owner=NOBODY), "pending/"),
    (task(PENDING, "alice"), "alice", Change(owner=NOBODY), "pending/"),
    (task(PENDING, "alice"), "alice", Change(status=PENDING), "pending/alice"),
    (task(COMPLETED, "alice"), "alice", Change(status=PENDING), "pending/"),
    (task(COMPLETED, "alice"), "alice", Change(status=IN_PROGRESS), "in_progress/alice"),
    (task(COMPLETED, "alice"), "bob", Change(status=PENDING), "task 2 is alice's; only alice"),
    (task(COMPLETED), "bob", Change(status=PENDING), "task 2 was made by carol; only carol"),
    (task(COMPLETED), "carol", Change(status=PENDING), "pending/"),
    (task(COMPLETED, "alice"), "lead", Change(owner="bob"), "task 2 is completed; set its status"),
    (
        task(COMPLETED, "alice"),
        "lead",
        Change(owner="bob", status=PENDING),
        "pending/bob",
    ),
    (task(), "alice", Change(status=IN_PROGRESS), "in_progress/alice"),
    (task(), "lead", Change(status=IN_PROGRESS), "in_progress/lead"),
    (task(), "lead", Change(status=IN_PROGRESS, owner="bob"), "in_progress/bob"),
    (task(), "lead", Change(status=IN_PROGRESS, owner=NOBODY), "task 2 cannot be in progress"),
    (task(), "alice", Change(owner="bob"), "pending/bob"),
    (task(IN_PROGRESS, "alice"), "alice", Change(owner="bob"), "pending/bob"),
    (task(IN_PROGRESS, "alice"), "alice", Change(owner="alice"), "in_progress/alice"),
    (task(IN_PROGRESS, "alice"), "bob", Change(owner="bob"), "task 2 is alice's; only alice"),
    (task(), "bob", Change(status=DELETED), "task 2 was made by carol; only carol or lead"),
    (task(), "carol", Change(status=DELETED), "deleted/"),
    (task(PENDING, "alice"), "alice", Change(status=DELETED), "deleted/alice"),
    (task(DELETED), "carol", Change(status=PENDING), "pending/"),
    (task(DELETED), "bob", Change(status=PENDING), "task 2 was made by carol; only carol"),
    (task(PENDING, "alice", "1"), "alice", Change(status=COMPLETED), "task 2 is blocked by task 1"),
    (task(PENDING, "bob", "1"), "bob", Change(status=IN_PROGRESS), "task 2 is blocked by task 1"),
    (task(PENDING, "bob", "1"), "lead", Change(status=COMPLETED), "completed/bob"),
    (task(), "bob", Change(add_blocked_by=("7",)), "no task has the id '7'; there are: 1, 2"),
    (task(), "bob", Change(add_blocked_by=("2",)), "task 2 would wait for itself: 2 waits for 2;"),
    (task(), "lead", Change(subject=" \n "), "a task needs a subject; say in a few words"),
    (task(), "lead", Change(subject="x" * 201), "a subject of 201 characters is over the limit"),
]


@pytest.mark.parametrize(("before", "who", "change", "outcome"), UPDATES)
def test_an_update_respects_the_rights_of_the_member(
    before: Task, who: str, change: Change, outcome: str
) -> None:
    """The rights depend on the member that calls, whatever its prompt says."""
    came = outcome_of(lambda: apply_change(before, change, who=who, tasks=board(BLOCKER, before)))
    assert came.startswith(outcome)
    assert came == outcome or "/" not in outcome


def test_a_cycle_through_several_tasks_is_reported() -> None:
    first = Task(id="1", subject="a", blocked_by=("2",))
    second = Task(id="2", subject="b", blocked_by=("3",))
    third = Task(id="3", subject="c")
    tasks = board(first, second, third)
    with pytest.raises(TeamError, match="3 waits for 1 waits for 2 waits for 3; leave one of"):
        apply_change(third, Change(add_blocked_by=("1",)), who="lead", tasks=tasks)


def test_a_deleted_task_blocks_nothing_and_cannot_become_a_blocker() -> None:
    deleted = Task(id="1", subject="a", status=DELETED)
    waiting = task(PENDING, NOBODY, "1")
    tasks = board(deleted, waiting)
    assert claim_for(waiting, owner="alice", tasks=tasks).owner == "alice"
    with pytest.raises(TeamError, match="task 1 is deleted and would never block task 2"):
        apply_change(waiting, Change(add_blocked_by=("1",)), who="lead", tasks=tasks)


def test_ids_are_understood_as_models_write_them() -> None:
    after = apply_change(
        task(), Change(add_blocked_by=("#1", " 1 ")), who="bob", tasks=board(BLOCKER)
    )
    assert after.blocked_by == ("1",)
    gone = apply_change(after, Change(remove_blocked_by=("#1",)), who="bob", tasks=board(BLOCKER))
    assert gone.blocked_by == ()


def test_a_release_is_noted_and_old_notes_are_removed() -> None:
    after = task(IN_PROGRESS, "alice")
    for _ in range(50):
        after = release(after, "alice is shut down")
    assert (after.status, after.owner) == (PENDING, NOBODY)
    assert set(after.notes) == {"released: alice is shut down"}
    assert len(after.notes) == 20


@pytest.mark.parametrize(
    ("candidate", "free"),
    [
        (task(), True),
        (task(PENDING, "Alice"), True),
        (task(PENDING, "bob"), False),
        (task(IN_PROGRESS, "alice"), False),
        (task(COMPLETED), False),
        (task(PENDING, NOBODY, "1"), False),
        (Task(id="2", subject="x", role="Coder"), True),
        (Task(id="2", subject="x", role="tester"), False),
        (Task(id="2", subject="x", given_back=("alice",)), False),
    ],
)
def test_a_teammate_starts_only_free_tasks_by_itself(candidate: Task, free: bool) -> None:
    tasks = board(BLOCKER, candidate)
    assert free_for(candidate, name="alice", role="coder", tasks=tasks) is free


def test_a_returned_task_is_not_claimed_by_the_same_teammate_again() -> None:
    """Otherwise it would claim and return the task forever, and pay each time."""
    back = apply_change(
        task(IN_PROGRESS, "alice"), Change(status=PENDING), who="alice", tasks=board()
    )
    assert not free_for(back, name="alice", role="coder", tasks=board(back))
    assert free_for(back, name="bob", role="coder", tasks=board(back))
    assert claim_for(back, owner="alice", tasks=board(back)).owner == "alice", "unless it asks to"
