"""The operations that get injected failures, and the invariants after a failure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final, Protocol

from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, USER, Message
from teamd.team.roster import Roster
from teamd.transcript.file import Transcript
from teamd.transcript.records import mail_in
from tests.process.injected import programs
from tests.process.injected.injections import FULL, Ended, Injection, clean, program

TEAMCTL: Final = str(Path(sys.executable).with_name("teamctl"))


class Operation(Protocol):
    """Something that a program does to a team."""

    def prepare(self, paths: TeamPaths) -> None:
        """Make an empty team directory one to which it can be done."""

    def argv(self, paths: TeamPaths) -> list[str]:
        """The command line."""

    def name(self, injection: Injection, /) -> str:
        """The table's name for the operation that fails."""

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """See that nothing is lost, doubled or half written, and that it can be done again."""


class Send:
    """`teamctl send`: there once, or said to have failed; it may be repeated under its id.

    Args:
        first: whether the inbox is not there yet.
    """

    def __init__(self, *, first: bool = False) -> None:
        self._old = [] if first else ["a", "b"]

    def prepare(self, paths: TeamPaths) -> None:
        """Two messages wait already, unless it is the first."""
        enlist(paths)
        if self._old:
            put(paths, *self._old)

    def argv(self, paths: TeamPaths) -> list[str]:
        """Send c."""
        words = ["send", "bob", "c", "--id", "c", "--from", "eve", "--team-dir", str(paths.root)]
        return [sys.executable, TEAMCTL, *words]

    def name(self, _: Injection) -> str:
        """One operation."""
        return "send"

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """Acknowledged: once. Not acknowledged: not there, unless all but the disk was done."""
        well = ended.check(injection)
        found = conversation(paths)
        if well:
            assert found == [*self._old, "c"], str(injection)
        elif injection.late:
            assert found in (self._old, [*self._old, "c"]), str(injection)
        else:
            assert found == self._old, str(injection)
        assert injection.deadly or not torn(paths), f"{torn(paths)!r} after {injection}"
        put(paths, "c", "d")
        assert conversation(paths) == [*self._old, "c", "d"], str(injection)


class Read:
    """Take, transcript, done: all arrives, in order; what is done twice has the same id.

    Args:
        again: whether an earlier reader was killed with mail in hand.
    """

    def __init__(self, *, again: bool = False) -> None:
        self._again = again
        self._old = ["a", "f", "f", "b", "c"] if again else ["a", "f", "f", "b"]

    def prepare(self, paths: TeamPaths) -> None:
        """Mail waits; two of its lines are alike and have no id yet, and are two messages."""
        enlist(paths)
        put(paths, "a")
        with paths.inbox("bob").open("ab") as inbox:
            inbox.write(2 * b'{"from": "eve", "content": "f"}\n')
        put(paths, "b")
        if self._again:
            Mailbox(paths, "bob").take()
            put(paths, "c")

    def argv(self, paths: TeamPaths) -> list[str]:
        """Read it."""
        return program("read", paths.root)

    def name(self, injection: Injection) -> str:
        """By the transcript's record, which stands between the two, and is neither."""
        if injection.fault == FULL:
            return "take to done"
        return self._part.get((injection.call, injection.number), "take")

    def split(self, found: list[Injection]) -> None:
        """Learn which calls belong to which part."""
        self._part: dict[tuple[str, int], str] = {}
        part = "take"
        for injection in found:
            if "transcripts" in injection.what:
                part = "transcript"
            elif part == "transcript":
                part = "done"
            self._part[injection.call, injection.number] = part

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """All is there, and two more readers get it all, each once."""
        ended.check(injection)
        assert conversation(paths) == self._old, str(injection)
        put(paths, "z")
        for _ in range(2):  # what a dead reader had taken comes alone, and the rest behind it
            programs.read(paths)
        assert conversation(paths) == [*self._old, "z"], str(injection)
        assert not Mailbox(paths, "bob").waiting(), str(injection)


class RosterWrite:
    """A change to the roster: the file holds the old or the new one, whole."""

    def prepare(self, paths: TeamPaths) -> None:
        """A team."""
        enlist(paths)

    def argv(self, paths: TeamPaths) -> list[str]:
        """Change it."""
        return program("update", paths.root)

    def name(self, _: Injection) -> str:
        """One operation."""
        return "roster write"

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """Acknowledged: the new one. Not acknowledged: the old one, unless it is late."""
        well = ended.check(injection)
        turns = Roster(paths).read().get("bob").turns
        if well:
            assert turns == 1, str(injection)
        elif injection.late:
            assert turns in (0, 1), str(injection)
        else:
            assert turns == 0, str(injection)
        assert injection.deadly or not list(paths.root.glob(".teamd-*")), str(injection)
        programs.update(paths)
        assert Roster(paths).read().get("bob").turns == turns + 1, str(injection)


def enlist(paths: TeamPaths) -> None:
    """A team of bob and eve, and no process."""
    paths.create()
    roster = {"members": [{"name": "bob"}, {"name": "eve"}], "format": 1}
    paths.config.write_text(json.dumps(roster), encoding="utf-8")
    paths.config_lock.touch()


def put(paths: TeamPaths, *ids: str) -> None:
    """Send bob messages."""
    messages = [Message(id=one, sender="eve", to="bob", content=one) for one in ids]
    Mailbox(paths, "bob").put(*messages)


def conversation(paths: TeamPaths) -> list[str]:
    """What a reader finds from now on, each id once, behind what was read already."""
    box = Mailbox(paths, "bob")
    records = Transcript(paths.transcript("bob")).records()
    read = [(mail.id, mail.content) for record in records for mail in mail_in(record)]
    found = [(message.id, message.content) for message in box.peek()]
    assert box.rejected() == 0
    return list(dict([*read, *found]).values())


def torn(paths: TeamPaths) -> bytes:
    """The half line at the end of an inbox, if there is one."""
    return (files.read(paths.inbox("bob")) or b"").rpartition(b"\n")[2]


_MAIL: Final = ["mail-one", "mail-two"]


class Drain:
    """`teamctl inbox`: all is kept once, and nothing is kept that was not shown."""

    def prepare(self, paths: TeamPaths) -> None:
        """Mail waits."""
        enlist(paths)
        mail = [Message(id=one, sender="bob", to=LEAD, content=one) for one in _MAIL]
        Mailbox(paths, LEAD).put(*mail)

    def argv(self, paths: TeamPaths) -> list[str]:
        """Read it."""
        return [sys.executable, TEAMCTL, "inbox", "--team-dir", str(paths.root)]

    def name(self, _: Injection) -> str:
        """One operation."""
        return "drain"

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """Kept mail was shown; the next reader gets the rest."""
        well = ended.check(injection)
        kept = _kept(paths)
        assert all(one in ended.output for one in kept), f"{kept} unseen after {injection}"
        assert kept == _MAIL or not well, str(injection)
        again = clean(self.argv(paths))
        assert again.status == 0, f"{injection}: {again}"
        assert _kept(paths) == _MAIL, str(injection)
        assert all(one in ended.output + again.output for one in _MAIL), str(injection)
        assert not Mailbox(paths, LEAD).waiting(), str(injection)


def _kept(paths: TeamPaths) -> list[str]:
    records = Transcript(paths.transcript(USER)).records()
    return [mail.content for record in records for mail in mail_in(record)]
