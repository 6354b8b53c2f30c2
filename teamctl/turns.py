"""Turns: from the mail that a teammate reads to the last words that follow from it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from teamctl.receipts import Arrival, wait_for_conversation
from teamd.errors import DeadlinePassed, TeamError
from teamd.states import Status
from teamd.store.ledger import Ledger
from teamd.store.roster import Roster

if TYPE_CHECKING:
    from teamd.store.paths import TeamPaths
    from teamd.store.roster import Member
    from teamd.store.transcript import Record

_GONE: Final = (Status.FAILED, Status.SHUTDOWN)
_BEGINNING_SECONDS: Final = 2.0  # a new process takes its mail before it meets the limit again


def last_words(paths: TeamPaths, name: str, message: str, seconds: float | None) -> str:
    """Wait for the end of the turn in which the message was read; returns its final text.

    Raises:
        DeadlinePassed: it did not end within `seconds`.
        TeamError: it ended otherwise than by itself, the teammate has gone, or does not read.
    """
    turn = Turn(paths, name, message)
    ended = wait_for_conversation(paths, turn.end, seconds=seconds)
    if ended is None:
        raise DeadlinePassed(
            f"{name} is still at work after {seconds:g} s; `teamctl transcript {name} --follow` "
            "shows what it does"
        )
    match ended["outcome"]:
        case "paused":
            raise TeamError(f"{name} is paused: {ended['text']}")
        case "limit":
            raise TeamError(f"{name} used up the model calls of one wake; send it mail to go on")
        case "refusal":
            raise TeamError(f"the model of {name} refused the task; ask differently")
        case "interrupted":
            raise TeamError(f"the turn of {name} was interrupted")
    return str(ended["text"])


def held(paths: TeamPaths, member: Member) -> str | None:
    """Why mail stays in the inbox of a teammate, in a sentence; `None` where it is taken.

    At a limit none is taken. Any other pause ends with the mail.
    """
    if member.status is not Status.PAUSED or member.since is None:
        return None
    if 0 <= time.time() - member.since < _BEGINNING_SECONDS:
        return None
    if member.name not in Ledger(paths.ledger).read().refused:
        return None
    return f"{member.name} is paused: {member.reason}; the message waits in its inbox until then"


class Turn:
    """The turn of a teammate in which it reads one message."""

    def __init__(self, paths: TeamPaths, name: str, message: str) -> None:
        self._arrival = Arrival(paths.transcript(name), lambda mail: mail.get("id") == message)
        self._paths = paths
        self._roster = Roster(paths)
        self._name = name

    def end(self) -> Record | None:
        """The record that ends it, if it has ended.

        Raises:
            TeamError: the teammate has gone, or does not read.
        """
        member = self._roster.read().get(self._name)  # before the look: what it wrote, it wrote
        why_held = held(self._paths, member)
        for record in self._arrival.records():
            if record.get("record") == "ended":
                return record
        if member.status in _GONE:
            why = f": {member.reason}" if member.reason else ""
            raise TeamError(f"{self._name} is {member.status}{why}; `teamctl logs {self._name}`")
        if why_held is not None and not self._arrival.arrived:
            raise TeamError(why_held)
        return None
