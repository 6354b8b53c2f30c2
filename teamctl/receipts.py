"""Receipts: whether a message stands in its receiver's conversation yet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeVar

import click

from teamctl import output
from teamctl.following import Growing
from teamd.commandline import Seconds
from teamd.errors import TeamError
from teamd.protocol import Message
from teamd.store import running
from teamd.store.transcript import mail_in, parse
from teamd.store.watch import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from teamd.store.paths import TeamPaths
    from teamd.store.post import Post
    from teamd.store.transcript import Record

T = TypeVar("T")

_MAIL: Final = b'"mail"'

timeout_option = click.option(
    "--timeout",
    type=Seconds(zero=False),
    help="How many seconds to wait at most  [default: no limit].",
)


def wait_for_conversation(
    paths: TeamPaths, look: Callable[[], T | None], *, seconds: float | None
) -> T | None:
    """Return what `look` finds in the conversations; `None` when the time is over, if it ever is.

    It looks whenever one of them grows, and once a second for whatever else it looks at.
    """
    limit = math.inf if seconds is None else seconds
    return wait_for(paths.transcripts, look, timeout_seconds=limit)


class Arrival:
    """A conversation as it grows, from that record on in which a message stands.

    Args:
        transcript: need not be there yet.
        is_it: knows the message among those of the mail.

    Attributes:
        path: of the conversation.
        arrived: whether the message has been found.
    """

    def __init__(self, transcript: Path, is_it: Callable[[Record], bool]) -> None:
        self.path = transcript
        self._growing = Growing(transcript)
        self._is_it = is_it
        self.arrived = False

    def records(self) -> Iterator[Record]:
        """Yield the records that came since the last call; the one with the message is first."""
        for line in self._growing.lines():
            if not self.arrived and _MAIL not in line:
                continue  # what is long is not mail, and need not be parsed to be passed over
            record = parse(line) or {}
            self.arrived = self.arrived or any(map(self._is_it, mail_in(record)))
            if self.arrived:
                yield record


class Receipt:
    """What becomes of one message that was sent.

    Args:
        post: of the receiver's team.
        message: as it was sent, `to` being the name that the roster has.
        told: what its sender knows already of why it has to wait.
    """

    def __init__(self, post: Post, message: Message, *, told: str | None) -> None:
        self._paths = paths = post.paths
        self._post = post
        self._message = Message.decode(message.encode(), to=message.to)  # as its receiver reads it
        self._told = told
        self._arrivals = [Arrival(path, self._is_it) for path in paths.delivered(message.to)]
        self._rejected = Growing(paths.rejected(message.to))

    def look(self) -> Record | None:
        """The record in which it stands; why it does not is said on standard error as it changes.

        Raises:
            TeamError: it was rejected, or its receiver is in the team no more.
        """
        for arrival in self._arrivals:
            for record in arrival.records():
                return record
        if any(self._is_it(parse(line) or {}) for line in self._rejected.lines()):
            to = self._message.to
            raise TeamError(
                self._paths.addressed(f"{to} rejected the message; `teamctl logs {to}` says why, ")
                + f"and it is kept in {self._paths.rejected(to)}"
            )
        self._tell(self._obstacle())
        return None

    def _is_it(self, mail: Record) -> bool:
        wanted = (self._message.id, self._message.content)
        if (mail.get("id"), mail.get("content")) != wanted:
            return False
        sender, found = self._message.sender, str(mail.get("from"))
        return found == sender or found.startswith(f"{sender}@")  # from another team, its name

    def _obstacle(self) -> str | None:
        if self._message.to == self._post.person():  # who reads when it is time
            return None
        if running.supervisor(self._paths) is None:
            return self._paths.addressed(
                f"no teamd runs for {self._paths.root}; the message is delivered "
                "once `teamd start` has started it"
            )
        return self._post.obstacle(self._message.to)

    def _tell(self, obstacle: str | None) -> None:
        if obstacle is not None and obstacle != self._told:
            output.warn(obstacle)
        self._told = obstacle
