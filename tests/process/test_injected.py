"""Every system call of send, take, done and roster update fails once, or is the last one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from teamd.protocol import Message
from teamd.store.mailbox import Mailbox
from teamd.store.paths import TeamPaths
from teamd.store.roster import Roster
from teamd.store.transcript import Transcript
from tests.process.injections import (
    STRACE,
    Injection,
    injections,
    program,
    run,
    run_short,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed")
strides = pytest.mark.parametrize(
    "stride",
    [
        pytest.param(11, id="some"),
        pytest.param(1, id="all", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
TEAMCTL: Final = str(Path(sys.executable).with_name("teamctl"))
READ: Final = """
import sys
from pathlib import Path
from teamd.store.mailbox import Mailbox
from teamd.store.paths import TeamPaths
from teamd.store.transcript import Transcript
paths = TeamPaths(Path(sys.argv[1]))
box = Mailbox(paths, "bob")
batch = box.take()
if batch.messages:
    Transcript(paths.transcript("bob")).append(*({"id": m.id} for m in batch.messages))
box.done(batch)
"""
UPDATE: Final = """
import sys
from dataclasses import replace
from pathlib import Path
from teamd.store.paths import TeamPaths
from teamd.store.roster import Roster
def one_more_turn(team):
    bob = team.get("bob")
    return team.with_member(replace(bob, turns=bob.turns + 1))
Roster(TeamPaths(Path(sys.argv[1]))).update(one_more_turn)
"""


class Teams:
    """A new team for each fault.

    Attributes:
        made: how many there were.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = folder / "trace"
        self.made = 0

    def new(self) -> TeamPaths:
        """A team of bob, with two messages in his inbox."""
        self.made += 1
        paths = TeamPaths(self._folder / f"{self.made}x" / ".team")
        paths.create()
        roster = {"members": [{"name": "bob"}, {"name": "eve"}], "format": 1}
        paths.config.write_text(json.dumps(roster), encoding="utf-8")
        paths.config_lock.touch()
        put(paths, "a", "b")
        return paths


@pytest.fixture
def teams(tmp_path: Path) -> Iterator[Teams]:
    made = Teams(tmp_path)
    yield made
    print(f"{made.made} teams, each with another fault")  # noqa: T201


def put(paths: TeamPaths, *ids: str) -> None:
    messages = [Message(id=one, sender="eve", to="bob", content=one) for one in ids]
    Mailbox(paths, "bob").put(*messages)


def conversation(paths: TeamPaths) -> list[str]:
    """The ids that a reader finds from now on, each once, behind those that were read already."""
    box = Mailbox(paths, "bob")
    read = [record["id"] for record in Transcript(paths.transcript("bob")).records()]
    found = [message.id for message in box.peek()]
    assert box.rejected() == 0
    return list(dict.fromkeys([*read, *found]))


def chosen(found: Iterable[Injection], stride: int) -> list[Injection]:
    return list(found)[::stride]


def check_ended(status: int, injection: Injection) -> bool:
    """A process is killed, or ends by itself; returns whether it said that all is well."""
    assert (status == -signal.SIGKILL) == injection.deadly, str(injection)
    return status == 0


def command(paths: TeamPaths, message_id: str) -> list[str]:
    words = ["--id", message_id, "--from", "eve", "--team-dir", str(paths.root)]
    return [TEAMCTL, "send", "bob", message_id, *words]


@needs_strace
@strides
@pytest.mark.parametrize("first", [False, True])
def test_a_send_is_there_once_or_said_to_have_failed(
    teams: Teams, stride: int, first: bool
) -> None:
    """And may be repeated under its id; `first`: the inbox is not there yet."""
    sample = new_for_send(teams, first=first)
    old = [] if first else ["a", "b"]
    for injection in chosen(injections(command(sample, "c"), sample.root, teams.log), stride):
        paths = new_for_send(teams, first=first)
        well = check_ended(run(command(paths, "c"), injection, teams.log), injection)
        found = conversation(paths)
        if well:
            assert found == [*old, "c"], str(injection)
        elif injection.late:
            assert found in (old, [*old, "c"]), str(injection)
        else:
            assert found == old, str(injection)
        put(paths, "c", "d")
        assert conversation(paths) == [*old, "c", "d"], str(injection)


def new_for_send(teams: Teams, *, first: bool) -> TeamPaths:
    paths = teams.new()
    if first:
        paths.inbox("bob").unlink()
    return paths


@strides
def test_a_send_onto_a_full_disk_leaves_the_inbox_as_it_was(teams: Teams, stride: int) -> None:
    """The disk takes some bytes of the line, as a full one does, and then none."""
    for room in range(0, 90, 3 * stride):
        paths = teams.new()
        before = paths.inbox("bob").read_bytes()
        assert run_short(command(paths, "c"), len(before) + room) == 1, room
        assert paths.inbox("bob").read_bytes() == before, room


@needs_strace
@strides
@pytest.mark.parametrize("again", [False, True])
def test_what_is_taken_arrives_whatever_fails(teams: Teams, stride: int, again: bool) -> None:
    """In order; what the reader did twice has the same id. `again`: one was killed before."""
    sample = new_for_take(teams, again=again)
    old = conversation(sample)
    found = chosen(injections(program(READ, sample.root), sample.root, teams.log), stride)
    for injection in found:
        paths = new_for_take(teams, again=again)
        check_ended(run(program(READ, paths.root), injection, teams.log), injection)
        assert conversation(paths) == old, str(injection)
        put(paths, "z")
        for _ in range(2):  # what a dead reader had taken comes alone, and the rest behind it
            assert subprocess.run(program(READ, paths.root), check=False).returncode == 0
        assert conversation(paths) == [*old, "z"], str(injection)
        assert not Mailbox(paths, "bob").waiting(), str(injection)


def new_for_take(teams: Teams, *, again: bool) -> TeamPaths:
    paths = teams.new()
    if again:
        Mailbox(paths, "bob").take()
        put(paths, "c")
    return paths


@strides
def test_a_take_on_a_full_disk_loses_nothing(teams: Teams, stride: int) -> None:
    for room in range(0, 300, 5 * stride):
        paths = teams.new()
        assert run_short(program(READ, paths.root), room) in (0, 1), room
        assert conversation(paths) == ["a", "b"], room
        assert subprocess.run(program(READ, paths.root), check=False).returncode == 0
        assert conversation(paths) == ["a", "b"], room


@needs_strace
@strides
def test_a_roster_is_the_old_or_the_new_one(teams: Teams, stride: int) -> None:
    sample = teams.new()
    for injection in chosen(
        injections(program(UPDATE, sample.root), sample.root, teams.log), stride
    ):
        paths = teams.new()
        well = check_ended(run(program(UPDATE, paths.root), injection, teams.log), injection)
        turns = Roster(paths).read().get("bob").turns
        if well:
            assert turns == 1, str(injection)
        elif injection.late:
            assert turns in (0, 1), str(injection)
        else:
            assert turns == 0, str(injection)
        assert injection.deadly or not list(paths.root.glob(".teamd-*")), str(injection)
        assert subprocess.run(program(UPDATE, paths.root), check=False).returncode == 0
        assert Roster(paths).read().get("bob").turns == turns + 1, str(injection)


@strides
def test_a_roster_on_a_full_disk_stays_the_old_one(teams: Teams, stride: int) -> None:
    for room in range(0, 300, 5 * stride):
        paths = teams.new()
        before = paths.config.read_bytes()
        assert run_short(program(UPDATE, paths.root), room) == 1, room
        assert paths.config.read_bytes() == before, room
        assert not list(paths.root.glob(".teamd-*")), room
