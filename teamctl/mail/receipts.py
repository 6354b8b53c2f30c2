"""Waiting until a message is delivered, and until the turn that read it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from teamctl.mail.router import open_approvals
from teamctl.render import output
from teamctl.tail import GrowingFile
from teamd.approvals.approval import CALLS, find_waiting
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
_BEGINNING_SECONDS: Final = 2.0  # a new process takes mail before it reaches the limit again


class RecordsSinceMessage:
    """A growing conversation, from the record that contains a message.

    Args:
        transcript: its file, which may not exist yet.
        is_it: recognizes the message.

    Attributes:
        arrived: whether the message was found.
    """

    def __init__(self, transcript: Path, is_it: Callable[[Message], bool]) -> None:
        self._growing = GrowingFile(transcript)
        self._is_it = is_it
        self.arrived = False

    def records(self) -> Iterator[Record]:
        """Yield the new records, beginning with the one that contains the message."""
        for line in self._growing.lines():
            if not self.arrived and _MAIL not in line:
                continue  # long records are not mail, and parsing them takes time
            record = decode(line)
            self.arrived = self.arrived or any(map(self._is_it, mail_in(record)))
            if self.arrived and record is not None:
                yield record


class DeliveryWatch:
    """Follows one sent message.

    Args:
        post: the mail router of the receiver's team.
        message: the message as sent, with the receiver's name as in the roster.
        told: the warning about its delivery that the sender has seen.
    """

    def __init__(self, post: MailRouter, message: Message, *, told: str | None) -> None:
        self._paths = paths = post.paths
        self._post = post
        self._message = Message.decode(message.encode(), to=message.to)  # as its receiver reads it
        self._told = told
        self._arrivals = [
            RecordsSinceMessage(path, self._is_it) for path in paths.delivered(message.to)
        ]
        self._rejected = GrowingFile(paths.rejected(message.to))

    def look(self) -> Record | None:
        """Return the record that contains the message, or warn about a new obstacle.

        Raises:
            TeamError: the message was rejected, or its receiver has left the team.
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
        # A sender in another team has the team's name added.
        return mail.sender == sent.sender or mail.sender.startswith(f"{sent.sender}@")

    def _obstacle(self) -> str | None:
        if self._message.to == self._post.person():  # people read when they want
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
        TeamError: it was cut short, the teammate ended, or it does not read its mail.
    """
    look = TurnEndWatch(paths, name, message).look
    ended = wait_for(paths.transcripts, look, timeout_seconds=seconds, also=[paths.root])
    if ended is None:
        hint = f"`teamctl transcript {name} --follow` shows what it does"
        raise DeadlinePassed(f"{name} is still at work after {seconds:g} s; {hint}")
    if (why := explain_end(name, ended)) is not None:
        raise TeamError(why)
    return ended.text


def explain_end(name: str, ended: records.TurnEnded) -> str | None:
    """Return a sentence on why a turn was cut short; `None` if it was not."""
    used_up = f"{name} used up the model calls of one wake; send it a message to make it continue"
    reasons = {
        records.PAUSED: f"{name} is paused: {ended.text}",
        records.LIMIT: used_up,
        records.REPEATED: f"{name} repeated one call until its turn was ended; send it a message "
        "to make it continue",
        "refusal": f"the model of {name} refused to go on; ask differently",
        records.INTERRUPTED: f"the turn of {name} was interrupted",
    }
    return reasons.get(ended.outcome)


def explain_wait(paths: TeamPaths, member: Member) -> str | None:
    """Return a sentence on why a teammate does not take its mail; `None` if it takes it.

    A teammate takes no mail at a limit, while it waits for a permission, or after `teamctl pause`.
    Mail ends any other pause.
    """
    if member.pause is not None and member.status.wants_process:
        return f"{member.name} is {member.pause}; the message waits in its inbox until then"
    if member.status is not Status.PAUSED or member.since is None:
        return None
    if 0 <= time.time() - member.since < _BEGINNING_SECONDS:
        return None
    at_limit = member.name in Ledger(paths.ledger).read().refused
    if not at_limit and not find_waiting(open_approvals(paths), member.name, *CALLS):
        return None
    return f"{member.name} is paused: {member.reason}; the message waits in its inbox until then"


class TurnEndWatch:
    """Waits for the end of the turn in which a teammate reads a message.

    Args:
        paths: the team.
        name: the name of the teammate.
        message: the id of the message.
    """

    def __init__(self, paths: TeamPaths, name: str, message: str) -> None:
        self._paths, self._name = paths, name
        self._arrival = RecordsSinceMessage(paths.transcript(name), lambda mail: mail.id == message)
        self._ended: TurnEnded | None = None

    def look(self) -> TurnEnded | None:
        """Return the record that ends the turn, if it has ended.

        Raises:
            TeamError: the teammate ended, or does not read its mail.
        """
        name = self._name
        member = (
            Roster(self._paths).read().get(name)
        )  # before the transcript, which it may still write to
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
    """Return whether the roster shows the pause that ended a turn; until then a spawn is refused.

    A teammate reports the pause right after it writes the record. It may be killed in between, or
    be at work again, so the wait is short.
    """
    told = ended.outcome != PAUSED or member.status is not Status.WORKING
    return told or not 0 <= time.time() - ended.time < _TOLD_SECONDS
