"""Waits for what becomes of a message: that it is read, and how the turn ends in which it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from teamctl.mail.router import open_approvals
from teamctl.render import output
from teamctl.tail import GrowingFile
from teamd.approvals.approval import Kind, find_waiting
from teamd.budget.ledger import Ledger
from teamd.errors import DeadlinePassed, TeamError
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.files.watch import wait_for
from teamd.mail.routing import MailRouter
from teamd.masking import may_be_masked
from teamd.messages import Message
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript import records
from teamd.transcript.file import decode, message_in, parse
from teamd.transcript.records import PAUSED, Record, TurnEnded, mail_in

_MAIL: Final = b'"mail"'
GONE: Final = (Status.FAILED, Status.SHUTDOWN)
_TOLD_SECONDS: Final = 1.0
_BEGINNING_SECONDS: Final = 2.0  # a new process takes its mail before it meets the limit again


class Arrival:
    """A conversation as it grows, from that record on in which a message stands.

    Args:
        transcript: need not be there yet.
        is_it: recognises the message.

    Attributes:
        arrived: whether the message has been found.
    """

    def __init__(self, transcript: Path, is_it: Callable[[Message], bool]) -> None:
        self._growing = GrowingFile(transcript)
        self._is_it = is_it
        self.arrived = False

    def records(self) -> Iterator[Record]:
        """Yield the records that came since the last call; the one with the message is first."""
        for line in self._growing.lines():
            if not self.arrived and _MAIL not in line:
                continue  # what is long is not mail, and need not be parsed to be passed over
            record = decode(line)
            self.arrived = self.arrived or any(map(self._is_it, mail_in(record)))
            if self.arrived and record is not None:
                yield record


class Receipt:
    """The fate of one message that was sent.

    Args:
        post: of the receiver's team.
        message: as it was sent, `to` being the name that the roster has.
        told: what its sender knows already of why it has to wait.
    """

    def __init__(self, post: MailRouter, message: Message, *, told: str | None) -> None:
        self._paths = paths = post.paths
        self._post = post
        self._message = Message.decode(message.encode(), to=message.to)  # as its receiver reads it
        self._told = told
        self._arrivals = [Arrival(path, self._is_it) for path in paths.delivered(message.to)]
        self._rejected = GrowingFile(paths.rejected(message.to))

    def look(self) -> Record | None:
        """The record in which it stands; why it does not is said on standard error as it changes.

        Raises:
            TeamError: it was rejected, or its receiver is in the team no more.
        """
        for arrival in self._arrivals:
            for record in arrival.records():
                return record
        rejected = (message_in(parse(line)) for line in self._rejected.lines())
        if any(self._is_it(mail) for mail in rejected if mail is not None):
            to = self._message.to
            why = self._paths.add_team_option(
                f"{to} rejected the message; `teamctl logs {to}` says why"
            )
            raise TeamError(f"{why}, and it is kept in {self._paths.rejected(to)}")
        obstacle = self._obstacle()
        if obstacle is not None and obstacle != self._told:
            output.warn(obstacle)
        self._told = obstacle
        return None

    def _is_it(self, mail: Message) -> bool:
        sent = self._message
        if mail.id != sent.id or not may_be_masked(sent.content, mail.content):
            return False
        # From another team, its name.
        return mail.sender == sent.sender or mail.sender.startswith(f"{sent.sender}@")

    def _obstacle(self) -> str | None:
        if self._message.to == self._post.person():  # who reads when it is time
            return None
        if pidfile.supervisor(self._paths) is None:
            when = "once `teamd start` has started it"
            why = f"no teamd runs for {self._paths.root}; the message is delivered {when}"
            return self._paths.add_team_option(why)
        return self._post.receiver(self._message.to)[1]


def wait_for_last_words(paths: TeamPaths, name: str, message: str, seconds: float) -> str:
    """Wait for the end of the turn in which the message was read; return its final text.

    Raises:
        DeadlinePassed: it did not end within `seconds`.
        TeamError: it ended otherwise than by itself, the teammate has gone, or does not read.
    """
    look = LastWords(paths, name, message).look
    ended = wait_for(paths.transcripts, look, timeout_seconds=seconds, also=[paths.root])
    if ended is None:
        hint = f"`teamctl transcript {name} --follow` shows what it does"
        raise DeadlinePassed(f"{name} is still at work after {seconds:g} s; {hint}")
    if (why := explain_end(name, ended)) is not None:
        raise TeamError(why)
    return ended.text


def explain_end(name: str, ended: records.TurnEnded) -> str | None:
    """Return why a turn ended otherwise than by itself, in a sentence; `None` where it did not."""
    used_up = f"{name} used up the model calls of one wake; send it a message to let it go on"
    reasons = {
        records.PAUSED: f"{name} is paused: {ended.text}",
        records.LIMIT: used_up,
        records.REPEATED: f"{name} repeated one call until its turn was ended; send it a message "
        "to let it go on",
        "refusal": f"the model of {name} refused to go on; ask differently",
        records.INTERRUPTED: f"the turn of {name} was interrupted",
    }
    return reasons.get(ended.outcome)


def explain_wait(paths: TeamPaths, member: Member) -> str | None:
    """Return why mail stays in the inbox of a teammate, in a sentence; `None` where it is taken.

    At a limit none is taken, nor while it waits for a permission, nor until somebody resumes it.
    Any other pause ends with mail.
    """
    if member.pause is not None and member.status.wants_process:
        return f"{member.name} is {member.pause}; the message waits in its inbox until then"
    if member.status is not Status.PAUSED or member.since is None:
        return None
    if 0 <= time.time() - member.since < _BEGINNING_SECONDS:
        return None
    at_limit = member.name in Ledger(paths.ledger).read().refused
    if not at_limit and not find_waiting(open_approvals(paths), member.name, Kind.PERMISSION):
        return None
    return f"{member.name} is paused: {member.reason}; the message waits in its inbox until then"


class LastWords:
    """The end of the turn in which a teammate reads a message.

    Args:
        paths: the team.
        name: the teammate's.
        message: the id of the message.
    """

    def __init__(self, paths: TeamPaths, name: str, message: str) -> None:
        self._paths, self._name = paths, name
        self._arrival = Arrival(paths.transcript(name), lambda mail: mail.id == message)
        self._ended: TurnEnded | None = None

    def look(self) -> TurnEnded | None:
        """Return the record that ends the turn, if it has ended.

        Raises:
            TeamError: the teammate has gone, or does not read.
        """
        name = self._name
        member = Roster(self._paths).read().get(name)  # before the look: what it wrote, it wrote
        why_waiting = explain_wait(self._paths, member)
        records = () if self._ended else self._arrival.records()
        self._ended = self._ended or next(
            (record for record in records if isinstance(record, TurnEnded)), None
        )
        if self._ended is not None:
            return self._ended if _is_known(member, self._ended) else None
        if member.status in GONE:
            why = f": {member.reason}" if member.reason else ""
            raise TeamError(f"{name} is {member.status}{why}; `teamctl logs {name}`")
        if why_waiting is not None and not self._arrival.arrived:
            raise TeamError(why_waiting)
        return None


def _is_known(member: Member, ended: TurnEnded) -> bool:
    """Return whether the roster knows of a pause; until then, the next spawn would be refused.

    It is told right after the record is written. A teammate that was killed in between tells
    nothing, and one that has gone on since is at work again: so that is waited for a moment only.
    """
    told = ended.outcome != PAUSED or member.status is not Status.WORKING
    return told or not 0 <= time.time() - ended.time < _TOLD_SECONDS
