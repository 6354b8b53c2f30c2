"""Any sequence of actions of teammates leaves the board consistent."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from teamd.board.board import Board
from teamd.board.files import Tasks
from teamd.board.rules import Change
from teamd.board.task import Task, TaskStatus
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.team.states import Status
from tests.unit.life import enrol

WHO = ("alice", "bob", "lead")
IDS = st.sampled_from([str(number) for number in range(1, 7)])
LINKS = st.lists(IDS, max_size=3).map(tuple)
CHANGES = st.builds(
    Change,
    status=st.none() | st.sampled_from(TaskStatus),
    owner=st.none() | st.sampled_from(["", *WHO]),
    add_blocked_by=LINKS,
    remove_blocked_by=LINKS,
)
DEEDS: st.SearchStrategy[Callable[[Board], object]] = st.one_of(
    st.builds(lambda links: lambda board: board.add("x", blocked_by=links), LINKS),
    st.builds(lambda task: lambda board: board.claim(task), IDS),
    st.builds(lambda task, change: lambda board: board.update(task, change), IDS, CHANGES),
    st.just(lambda board: board.take_next("coder")),
    st.just(lambda board: board.release(lambda owner: "gone" if owner == "bob" else None)),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(WHO), DEEDS), max_size=40))
def test_random_changes_never_make_a_cycle(
    deeds: list[tuple[str, Callable[[Board], object]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = TeamPaths(Path(folder) / ".team")
        enrol(paths, alice=Status.IDLE, bob=Status.IDLE)
        post = MailRouter(paths, durable=False, max_bytes=100_000)
        boards = {who: Board(paths, post, who, durable=False) for who in WHO}
        ids: list[str] = []
        for who, deed in deeds:
            with suppress(TeamError):
                deed(boards[who])
            tasks = boards[who].read()
            assert_sound(tasks)
            assert list(tasks.by_id)[: len(ids)] == ids, "no id is lost or given twice"
            ids = list(tasks.by_id)


def assert_sound(tasks: Tasks) -> None:
    assert not tasks.damaged
    for task in tasks.by_id.values():
        assert tasks.cycle(task.id) == []
        assert set(task.blocked_by) <= set(tasks.by_id)
        assert not task.untold
        if task.status is TaskStatus.IN_PROGRESS:
            assert task.owner in WHO


def reaches(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return all tasks that a task waits for, computed in another way than the board does."""
    seen: set[str] = set()
    edge = graph.get(start, set())
    while edge - seen:
        seen |= edge
        edge = set().union(*(graph.get(one, set()) for one in edge))
    return seen


@given(st.dictionaries(IDS, st.frozensets(IDS, max_size=3).map(set), max_size=6))
def test_a_cycle_is_found_if_and_only_if_there_is_one(graph: dict[str, set[str]]) -> None:
    tasks = Tasks({one: Task(id=one, subject="x", blocked_by=tuple(graph[one])) for one in graph})
    for start in graph:
        cycle = tasks.cycle(start)
        assert bool(cycle) is (start in reaches(graph, start))
        if cycle:
            assert cycle[0] == cycle[-1] == start
            assert all(after in graph[one] for one, after in pairwise(cycle))


TEXTS = st.text(max_size=20)


@given(
    st.builds(
        Task,
        id=IDS,
        subject=TEXTS,
        description=TEXTS,
        status=st.sampled_from(TaskStatus),
        owner=TEXTS,
        blocked_by=LINKS.map(lambda links: tuple(dict.fromkeys(links))),
        role=TEXTS,
        key=TEXTS,
        notes=st.lists(TEXTS, unique=True, max_size=3).map(tuple),
        extra=st.just({"priority": 3}),
    )
)
def test_a_task_is_decoded_as_it_was_encoded(task: Task) -> None:
    again = Task.decode(task.encode(), named=task.id)
    assert again.to_json() == task.to_json()
    assert again.key == task.key


KEYS = st.sampled_from(["id", "subject", "status", "owner", "blocked_by", "untold", "notes"])
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=8,
)


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_file_content_is_read_as_a_task_or_refused_with_a_sentence(content: bytes) -> None:
    with suppress(ValueError):
        assert Task.decode(content, named="1").id == "1"
