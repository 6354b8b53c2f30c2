"""Growth: the cost of a team at three sizes, with growth factors.

A broadcast wakes all teammates; a spawn includes each one's first turn. A flip is one status change
in the roster, compared with safely replacing a file of that size by hand. A look at the board comes
after one task has changed, and is compared with listing as many files with their time stamps.

There is no other program to compare with: none keeps a process for each teammate.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path

from teamd.board.board import Board
from teamd.board.task import Task
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.messages import TEAMD
from teamd.supervisor.roster_writer import RosterWriter
from teamd.team.member import Member
from teamd.team.roster import Roster, Team
from teamd.team.states import Status
from tests.bench.crowd import Crowd, crowd
from tests.bench.ruler import interleave, machine, median, options, table

_IDLE_SECONDS = 6.0  # a connection to a server is kept for 5


def _team(root: Path, size: int) -> TeamPaths:
    paths = TeamPaths(root / f"{size}" / ".team")
    paths.root.parent.mkdir()
    paths.create()
    members = tuple(
        Member(name=f"t{n}", agent_id=f"t{n}@default", role="clerk", status=Status.IDLE, pid=n)
        for n in range(size)
    )
    Roster(paths).update(lambda _: Team(members=members))
    return paths


def _flips(paths: TeamPaths, journal: Journal) -> Callable[[], None]:
    writer = RosterWriter(
        MailRouter(paths, durable=True, max_bytes=1000), journal, team_name="default"
    )
    statuses = cycle((Status.WORKING, Status.IDLE))

    def flip() -> None:
        writer.change("t0", status=next(statuses))
        writer.publish()

    return flip


def roster(root: Path, sizes: Sequence[int], rounds: int) -> str:
    """Measure a status change, and a reader that sees it."""
    cases: dict[str, Callable[[], None]] = {}
    with ExitStack() as stack:
        for size in sizes:
            paths = _team(root, size)
            journal = stack.enter_context(closing(Journal(paths.log(TEAMD), TEAMD)))
            content = paths.config.read_bytes()
            cases[f"flip {size}"] = _flips(paths, journal)
            cases[f"limit {size}"] = partial(files.replace, paths.root / "copy", content)
            reader = Roster(paths)
            cases[f"read {size}"] = lambda reader=reader: reader.read() and None  # type: ignore[misc]
        found = interleave(cases, rounds)
    heads = [("flip", "limit"), ("read", "")]
    return table("Roster, ms", _rows(heads, sizes, found))


def board(root: Path, sizes: Sequence[int], rounds: int) -> str:
    """Measure a look at a board on which one task has changed."""
    cases: dict[str, Callable[[], None]] = {}
    for size in sizes:
        paths = TeamPaths(root / f"board{size}" / ".team")
        paths.root.parent.mkdir()
        paths.create()
        for number in range(1, size + 1):
            task = Task(id=f"{number}", subject=f"Task {number}", description="x" * 400)
            path = paths.task(task.id)
            path.write_bytes(task.encode())
            os.utime(path, (1e9, 1e9))
        kept = Board(paths, MailRouter(paths, durable=False, max_bytes=1000), TEAMD, durable=False)
        cases[f"first look {size}"] = partial(_look_anew, kept)
        cases[f"look {size}"] = partial(_look, kept)
        cases[f"limit {size}"] = partial(_stamps, paths.tasks)
    found = interleave(cases, rounds)
    return table("Board, ms", _rows([("first look", "limit"), ("look", "limit")], sizes, found))


def _look_anew(kept: Board) -> None:
    replace(kept).read()


def _look(kept: Board) -> None:
    task = next(iter(kept.read().by_id.values()))
    files.replace(kept.paths.task(task.id), task.encode(), durable=False)
    kept.read()


def _stamps(folder: Path) -> None:
    with os.scandir(folder) as found:
        for entry in found:
            entry.stat(follow_symlinks=False)


def _rows(
    heads: Sequence[tuple[str, str]], sizes: Sequence[int], found: Mapping[str, Sequence[float]]
) -> list[tuple[str, ...]]:
    rows = [("what", *map(str, sizes), "growth", "of the limit, at each")]
    for what, limit in heads:
        figures = [median(found[f"{what} {size}"]) for size in sizes]
        bounds = [median(found[f"{limit} {size}"]) for size in sizes] if limit else []
        ratios = [f"{one / bound:.1f}" for one, bound in zip(figures, bounds, strict=False)]
        shown = [f"{1000 * figure:.2f}" for figure in figures]
        rows.append((what, *shown, f"{figures[-1] / figures[0]:.1f}", " ".join(ratios)))
    return rows


def teams(sizes: Sequence[int], rounds: int) -> str:
    """Measure the spawn of a team, and broadcasts to it; fail on a lost turn or a crash."""
    spawns: list[float] = []
    casts: list[float] = []
    for size in sizes:
        with crowd(size) as made:
            spawns.append(made.spawn_seconds)
            casts.append(median([_broadcast(made, rounds) for _ in range(rounds)]))
            assert made.crashes() == 0, "a teammate has crashed"
    rows = [("what", *map(str, sizes), "growth from the last but one")]
    for what, figures in (("spawn", spawns), ("broadcast", casts)):
        grown = figures[-1] / figures[-2]
        rows.append((what, *(f"{figure:.2f}" for figure in figures), f"{grown:.1f}"))
    return table("Teams, s; lost turns and crashes: 0", rows)


def _broadcast(made: Crowd, rounds: int) -> float:
    """Return the seconds of a broadcast; with several rounds, all connections are closed first."""
    if rounds > 1:
        time.sleep(_IDLE_SECONDS)
    return max(made.broadcast())


def main() -> None:
    given = options(__doc__, thousand=False)
    sizes = (10, 100) if given.short else (10, 100, 300, 1000)
    rounds = 5 if given.short else 50
    print(machine())
    with tempfile.TemporaryDirectory(prefix="bench") as root:
        print(roster(Path(root), sizes, rounds))
        print(board(Path(root), sizes, min(rounds, 10)))
    crowds = (2, 5) if given.short else (10, 100, 300) + (1000,) * given.thousand
    print(teams(crowds, 1 if given.short else 3))


if __name__ == "__main__":
    main()
