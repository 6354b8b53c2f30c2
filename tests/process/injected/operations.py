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
    """An action of a program on a team."""

    def prepare(self, paths: TeamPaths) -> None:
        """Turn an empty team directory into a valid start of the operation."""

    def argv(self, paths: TeamPaths) -> list[str]:
        """Return the command line."""

    def name(self, injection: Injection, /) -> str:
        """Return the name in the table of the operation that fails."""

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """Check that nothing is lost, doubled or torn, and that the operation can be repeated."""


class Send:
    """`teamctl send`: delivered once, or reported as failed and repeatable under its id.

    Args:
        first: whether the inbox does not exist yet.
    """

    def __init__(self, *, first: bool = False) -> None:
        self._old = [] if first else ["a", "b"]

    def prepare(self, paths: TeamPaths) -> None:
        """Put two messages into the inbox, unless it is the first send."""
        enlist(paths)
        if self._old:
            put(paths, *self._old)

    def argv(self, paths: TeamPaths) -> list[str]:
        words = ["send", "bob", "c", "--id", "c", "--from", "eve", "--team-dir", str(paths.root)]
        return [sys.executable, TEAMCTL, *words]

    def name(self, _: Injection) -> str:
        return "send"

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """Check that acknowledged mail is there, and other mail at most after a late failure."""
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
    """Take, transcript, done: all mail arrives in order; a repeated message has the same id.

    Args:
        again: whether an earlier reader was killed before it was done.
    """

    def __init__(self, *, again: bool = False) -> None:
        self._again = again
        self._old = ["a", "f", "f", "b", "c"] if again else ["a", "f", "f", "b"]

    def prepare(self, paths: TeamPaths) -> None:
        """Put mail into the inbox; two lines without ids are equal but separate messages."""
        enlist(paths)
        put(paths, "a")
        with paths.inbox("bob").open("ab") as inbox:
            inbox.write(2 * b'{"from": "eve", "content": "f"}\n')
        put(paths, "b")
        if self._again:
            Mailbox(paths, "bob").take()
            put(paths, "c")

    def argv(self, paths: TeamPaths) -> list[str]:
        return program("read", paths.root)

    def name(self, injection: Injection) -> str:
        """Return the part of the call, divided by the transcript's record."""
        if injection.fault == FULL:
            return "take to done"
        return self._part.get((injection.call, injection.number), "take")

    def split(self, found: list[Injection]) -> None:
        """Record the part of each call."""
        self._part: dict[tuple[str, int], str] = {}
        part = "take"
        for injection in found:
            if "transcripts" in injection.what:
                part = "transcript"
            elif part == "transcript":
                part = "done"
            self._part[injection.call, injection.number] = part

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """Check that all mail is there, and that two more readers get each message once."""
        ended.check(injection)
        assert conversation(paths) == self._old, str(injection)
        put(paths, "z")
        for _ in range(2):  # the first reader gets only the mail that a killed one had taken
            programs.read(paths)
        assert conversation(paths) == [*self._old, "z"], str(injection)
        assert not Mailbox(paths, "bob").waiting(), str(injection)


class RosterWrite:
    """A change of the roster: the file holds either the old or the new version, complete."""

    def prepare(self, paths: TeamPaths) -> None:
        enlist(paths)

    def argv(self, paths: TeamPaths) -> list[str]:
        return program("update", paths.root)

    def name(self, _: Injection) -> str:
        return "roster write"

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """Check that an acknowledged change is there, and another at most after a late failure."""
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
    """Create a team of bob and eve without processes."""
    paths.create()
    roster = {"members": [{"name": "bob"}, {"name": "eve"}], "format": 1}
    paths.config.write_text(json.dumps(roster), encoding="utf-8")
    paths.config_lock.touch()


def put(paths: TeamPaths, *ids: str) -> None:
    """Send messages to bob."""
    messages = [Message(id=one, sender="eve", to="bob", content=one) for one in ids]
    Mailbox(paths, "bob").put(*messages)


def conversation(paths: TeamPaths) -> list[str]:
    """Return the mail in bob's transcript and inbox, each id once."""
    box = Mailbox(paths, "bob")
    records = Transcript(paths.transcript("bob")).records()
    read = [(mail.id, mail.content) for record in records for mail in mail_in(record)]
    found = [(message.id, message.content) for message in box.peek()]
    assert box.rejected() == 0
    return list(dict([*read, *found]).values())


def torn(paths: TeamPaths) -> bytes:
    """Return the torn line at the end of an inbox, if any."""
    return (files.read(paths.inbox("bob")) or b"").rpartition(b"\n")[2]


_MAIL: Final = ["mail-one", "mail-two"]


class Drain:
    """`teamctl inbox`: all mail is recorded once, and none is recorded without being displayed."""

    def prepare(self, paths: TeamPaths) -> None:
        enlist(paths)
        mail = [Message(id=one, sender="bob", to=LEAD, content=one) for one in _MAIL]
        Mailbox(paths, LEAD).put(*mail)

    def argv(self, paths: TeamPaths) -> list[str]:
        return [sys.executable, TEAMCTL, "inbox", "--team-dir", str(paths.root)]

    def name(self, _: Injection) -> str:
        return "drain"

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """Check that recorded mail was displayed, and that the next reader gets the rest."""
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
