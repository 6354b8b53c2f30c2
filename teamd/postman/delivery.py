"""Put mail from other hosts into the inboxes of this host.

It is delivered like local mail: with the same locks and syncs, and readers recognize repeated ids.
The sender's name is taken from the message, and its host from the subject, which the broker
verifies.

Undeliverable mail does not delay other mail: `teamd` tells the sender the reason by mail. This
applies to an unknown name, another team, a message too long for this host's settings, and a full
inbox. Waiting for room would stop all mail from that host, and a teammate that is shut down may
never make room. Disk errors are temporary: nothing is confirmed to the sender's host, and it sends
all mail again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, TypeAlias

from teamd.errors import (
    BadName,
    InboxFull,
    NotAMessage,
    TeamError,
    UnknownTeammate,
)
from teamd.files import files
from teamd.hosts.places import HostPlaces
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.messages import HELD_TYPE, TEAMD, Message, is_moment, parse_object

# Other types have effects: an interrupt ends a turn, a task needs no approval. They are delivered
# as plain messages.
_TALK: Final = frozenset({"message", "broadcast", HELD_TYPE})
_LONGEST_SENDER: Final = 200  # characters
_QUOTED: Final = 100  # characters of an undelivered message
_Receivers: TypeAlias = Callable[[str], tuple[str, str | None]]
_REFUSED: Final = (BadName, InboxFull, NotAMessage, UnknownTeammate)


@dataclass(frozen=True, slots=True)
class FarDelivery:
    """Delivers mail from other hosts.

    Attributes:
        post: the router of this host's team, also for the answers.
        team: the team's name.
    """

    post: MailRouter
    team: str
    journal: Journal
    _answers: list[Message] = field(default_factory=list)  # to be sent

    def deliver(self, host: str, lines: Sequence[bytes]) -> None:
        """Put mail from a host into inboxes; it is durable when this returns.

        Messages to one receiver are written together, in their order.

        Args:
            host: the sending host, by the subject.
            lines: the received lines; lines that are not mail are skipped.

        Raises:
            StoreError: the disk failed. Deliver all lines again: readers recognize repeated ids.
        """
        self._answers.clear()
        boxes: defaultdict[str, list[bytes]] = defaultdict(list)
        found = cache(self.post.receiver)  # reads the roster once for each name
        for line in lines:
            message = self._read_checked(host, line, found)
            if message is not None:
                try:
                    boxes[message.to].append(message.encode())
                except NotAMessage as error:
                    self._answer(message, "was not delivered", str(error))
        for to, encoded in boxes.items():
            there, warning = self._put(to, encoded), _warning(found, to)
            if warning is not None:
                for raw in there:
                    self._answer(Message.decode(raw, to=to), "is there", warning)
        if self._answers:
            self._send_answers(host)

    def read(self, host: str, line: bytes) -> Message | None:
        """Return a message with its receiver's name; `None` if it cannot be delivered."""
        with suppress(*_REFUSED):
            message = self._read(host, parse_object(line))
            return replace(message, to=self.post.receiver(message.to)[0])
        return None

    def _put(self, to: str, encoded: Sequence[bytes]) -> Sequence[bytes]:
        """Put messages into an inbox; return the delivered ones, and answer the others."""
        try:
            self.post.mailbox(to).put_lines(encoded)
        except _REFUSED as error:
            if len(encoded) > 1:
                return [line for one in encoded for line in self._put(to, [one])]
            message = Message.decode(encoded[0], to=to)
            self._answer(message, "was not delivered", str(error))
            return []
        return encoded

    def _read_checked(self, host: str, line: bytes, found: _Receivers) -> Message | None:
        """Return a message with its receiver's name; `None` after telling the sender why not."""
        try:
            fields = parse_object(line)
            message = self._read(host, fields)
        except NotAMessage as error:
            self.journal.warn("no mail", host=host, reason=str(error))
            return None
        try:
            team = fields.get("team")
            if not isinstance(team, str) or team.lower() != self.team.lower():
                why = f"the team there is {self.team!r}; give both hosts the same [team] name"
                raise NotAMessage(why)
            return replace(message, to=found(message.to)[0])
        except _REFUSED as error:
            self._answer(message, "was not delivered", str(error))
            return None

    def _read(self, host: str, line: Mapping[str, Any]) -> Message:
        """Decode a message as readers here see it.

        Raises:
            NotAMessage: it is invalid, or its sender claims to be elsewhere.
        """
        to, found = line.get("to"), line.get("message")
        if not isinstance(to, str) or not isinstance(found, dict):
            raise NotAMessage("it has no receiver, or no message")
        sender, content, made = found.get("from"), found.get("content"), found.get("id")
        if not (isinstance(content, str) and isinstance(made, str) and made):
            raise NotAMessage("it has no text, or no id")
        if not isinstance(sender, str) or not sender or "@" in sender:
            raise NotAMessage(f"it claims to be from {sender!r}, and comes from {host}")
        kind, summary, sent = found.get("type"), found.get("summary"), found.get("timestamp")
        decoded = Message(
            id=made,
            type=kind if isinstance(kind, str) and kind in _TALK else "message",
            sender=f"{sender[:_LONGEST_SENDER]}@{self.team}@{host}",
            to=to,
            content=content,
            extra={"summary": summary} if isinstance(summary, str) else {},
            timestamp=float(sent) if is_moment(sent) else time.time(),
        )
        if content.isascii() and all(map(str.isascii, decoded.extra.values())):
            return decoded
        # As any line is read, without lone surrogates.
        return Message.decode(decoded.encode(), to=to)

    def _answer(self, message: Message, how: str, why: str) -> None:
        """Queue an answer about a message to its sender; messages from `teamd` are not answered."""
        if message.sender.partition("@")[0].lower() == TEAMD:
            return
        gist = " ".join(message.content.replace("\0", " ").split())[:_QUOTED]
        to = message.to.replace("\0", " ")
        text = f"your message to {to} {how}: {why}\nIt began: {gist}"
        self._answers.append(
            Message(id=f"{message.id}-told", sender=TEAMD, to=message.sender, content=text)
        )

    def _send_answers(self, host: str) -> None:
        """Send the answers to a host's senders with a single sync.

        Raises:
            StoreError: the disk failed.
        """
        hosts = self.post.other_hosts()
        post = replace(self.post, hosts=replace(hosts, durable=False)).for_notices()
        unsafe = False
        for answer in self._answers:
            try:
                post.send(answer)
                unsafe = hosts.durable
            except TeamError as error:  # for example a full outbox, which must not delay other mail
                self.journal.error("a sender was not told", error, to=answer.to, id=answer.id)
        if unsafe:
            files.make_durable(HostPlaces(self.post.paths).outbox(host))


def _warning(found: _Receivers, name: str) -> str | None:
    """Return the warning for the sender about a receiver."""
    try:
        return found(name)[1]
    except _REFUSED:  # it was just removed
        return None
