"""Receive mail from other hosts, in each sender's order, and confirm it.

A confirmation is a value in the broker: the number of messages so far, the key of the last one and
its number in the stream. It is written after the mail is in its inboxes, and before the broker may
forget the messages. So a message is never lost, and comes again only if this host or the broker
fails in between; then its id is looked for in the receiver's files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from teamd.errors import StoreError
from teamd.files import files
from teamd.hosts.outbox import read_counts
from teamd.hosts.places import HostPlaces
from teamd.journal import Journal
from teamd.mail.trace import find_ids, texts_sent
from teamd.messages import Message
from teamd.postman.connection import CONFIRMED, MAIL, BrokerConnection, decode_value
from teamd.postman.delivery import FarDelivery
from teamd.postman.sending import AFTER, AGAIN, KEY

_MOST_AT_ONCE: Final = 256
_FETCH_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0


class Received(NamedTuple):
    """How far this host has received a sender's mail.

    Attributes:
        n: the number of messages so far, without repeated ones.
        key: the key of the last one.
        number: the number of that message in the broker's stream.
    """

    n: int = 0
    key: str = ""
    number: int = 0

    @classmethod
    def decode(cls, value: bytes) -> Received | None:
        """Decode a confirmation in the broker; `None` if it is invalid."""
        match decode_value(value):
            case {"n": int(n), "key": str(key), "number": int(number)}:
                return cls(n, key, number)
        return None

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


@dataclass(slots=True)
class _Batch:
    """Messages that were fetched together.

    Attributes:
        lines: the messages to deliver, by sending host and key.
        again: those of them that may have been delivered before.
        finished: what the broker may forget afterwards.
        later: what the broker is to deliver again.
    """

    lines: defaultdict[str, dict[str, bytes]] = field(default_factory=lambda: defaultdict(dict))
    again: set[bytes] = field(default_factory=set)
    finished: list[Any] = field(default_factory=list)
    later: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Receiver:
    """Receives this host's mail over one connection.

    Attributes:
        own: the name of this host.
        report: called with a host and a problem that could not be resolved.
    """

    own: str
    link: BrokerConnection
    delivery: FarDelivery
    report: Callable[[str, str], None]
    journal: Journal
    durable: bool
    _received: dict[str, Received] = field(default_factory=dict)
    _suspected: int = 0  # messages up to this number may have been received before

    async def run(self, confirmed: Mapping[str, Received]) -> None:
        """Receive until cancelled.

        Args:
            confirmed: the confirmations of this host that the broker knows, by sender.
        """
        self._suspected = await self.link.last_number()
        for host in {*confirmed, *HostPlaces(self.delivery.post.paths).known()}:
            self._resume(host, confirmed.get(host))
        await self.link.bind()
        while True:
            messages = await self.link.fetch(_MOST_AT_ONCE, seconds=_FETCH_SECONDS)
            if messages:
                await self._take(messages)

    def _resume(self, host: str, confirmed: Received | None) -> None:
        """Compare the broker's count of a sender's messages with this host's."""
        counts = read_counts(self._file(host))
        n = counts["n"] if counts else 0
        if confirmed is None:
            self._received[host] = Received(n)
            return
        if counts is None:
            self.report(
                host,
                f"this team's folder is a new one: {confirmed.n} messages from it came to an "
                "earlier one",
            )
        elif confirmed.n > n:
            gap = confirmed.n - n
            self.report(host, f"this team's folder is an old copy: {gap} messages from it are gone")
        number = min(confirmed.number, self._suspected)  # a broker may have lost its last messages
        self._received[host] = confirmed._replace(n=max(n, confirmed.n), number=number)
        if self._received[host].n > n or counts is None:
            self._count(host, 0)

    async def _take(self, messages: Sequence[Any]) -> None:
        """Deliver messages in their order, confirm them, and let the broker forget them."""
        before, batch = dict(self._received), _Batch()
        for message in messages:
            self._sort(message, batch)
        try:
            for host, lines in batch.lines.items():
                self._deliver(host, [*lines.values()], batch.again, is_new=host not in before)
        except StoreError as error:
            self._received = before
            self.journal.error("mail not delivered, and tried again", error)
            batch.later, batch.finished = list(messages), []
        else:
            for host in batch.lines:
                key = f"{host}.{self.own}"
                await self.link.put(CONFIRMED, key, self._received[host].encode())
        for message in batch.finished:
            await message.ack()
        for message in batch.later:
            await message.nak(delay=_RETRY_SECONDS)

    def _deliver(self, host: str, lines: list[bytes], again: set[bytes], *, is_new: bool) -> None:
        if is_new:
            self._count(host, 0)  # the host is known now, so its senders can be answered
        fresh, count = self._without_known(host, lines, again)
        self.delivery.deliver(host, fresh)
        self._count(host, count)

    def _sort(self, message: Any, batch: _Batch) -> None:
        """Put a message into a batch, and note it as received if it is the sender's next."""
        host, headers = self._sender(message), message.headers or {}
        if host is None or AFTER not in headers or KEY not in headers:
            batch.finished.append(message)  # for example an answer of the broker to somebody else
            return
        last, number = self._received.get(host, Received()), message.metadata.sequence.stream
        if number <= last.number:
            batch.finished.append(message)  # delivered already
        elif headers[AFTER] in ("", last.key):
            batch.lines[host].setdefault(headers[KEY], message.data)
            if self._may_be_known(message, number):
                batch.again.add(message.data)
            self._received[host] = Received(last.n, headers[KEY], number)
            batch.finished.append(message)
        else:
            batch.later.append(message)  # one before it is missing

    def _may_be_known(self, message: Any, number: int) -> bool:
        repeated = AGAIN in message.headers or message.metadata.num_delivered > 1
        return repeated or number <= self._suspected

    def _sender(self, message: Any) -> str | None:
        """Return the sending host, which the broker verifies by the subject."""
        match message.subject.split("."):
            case [kind, to, host] if (kind, to) == (MAIL, self.own):
                return str(host)
        return None

    def _file(self, host: str) -> Any:
        return HostPlaces(self.delivery.post.paths).received(host)

    def _count(self, host: str, more: int) -> None:
        n = self._received[host].n + more
        self._received[host] = self._received[host]._replace(n=n)
        files.replace(self._file(host), b'{"n": %d}\n' % n, durable=self.durable)

    def _without_known(
        self, host: str, found: list[bytes], again: set[bytes]
    ) -> tuple[list[bytes], int]:
        """Return the lines without those whose message the receiver has got before.

        Also returns how many of them were certainly not counted before: a repeated line that
        cannot be delivered leaves no trace here.
        """
        paths = self.delivery.post.paths
        suspects = {line: mail for line in found if line in again
                    and (mail := self.delivery.read(host, line)) is not None}  # fmt: skip
        by_name = defaultdict[str, set[str]](set)
        for mail in suspects.values():
            by_name[mail.to].add(mail.id)
        there = {name: find_ids(paths, name, ids) for name, ids in by_name.items()}
        for name in filter(there.get, there):
            files.make_durable(paths.inbox(name))  # a killed process may have left it unsynced
        known = {line for line, mail in suspects.items() if self._is_known(mail, there[mail.to])}
        fresh = [line for line in found if line not in known]
        return fresh, sum(line not in again or line in suspects for line in fresh)

    def _is_known(self, mail: Message, ids: set[str]) -> bool:
        paths = self.delivery.post.paths
        return mail.id in ids and bool(texts_sent(paths, mail.to, mail.sender, mail.id))
