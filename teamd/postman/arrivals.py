"""Dispatch received lines: mail to inboxes, requests to teamd, answers to waiting commands."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from teamd.errors import NotAMessage, TeamError
from teamd.files import files
from teamd.hosts.asking import keep_answer
from teamd.hosts.lines import ANSWER, REQUEST, OutLine, read_fields
from teamd.hosts.outbox import Outbox
from teamd.journal import Journal
from teamd.mail.trace import find_ids, texts_sent
from teamd.postman.commands import Commands
from teamd.postman.delivery import FarDelivery


@dataclass(slots=True)
class Arrivals:
    """The receiver of all lines from other hosts.

    Attributes:
        outbox: returns the outbox for a host.
    """

    delivery: FarDelivery
    commands: Commands
    outbox: Callable[[str], Outbox]
    journal: Journal
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def deliver(self, host: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
        """Put mail into inboxes; see `Receiver`."""
        if suspected:
            lines = self._unknown(host, lines)
        self.delivery.deliver(host, lines)

    def act(self, host: str, line: Mapping[str, Any]) -> None:
        """Execute a request, or deliver an answer; see `Receiver`."""
        match line.get("kind"):
            case str(kind) if kind == REQUEST:
                task = asyncio.create_task(self._carry_out(host, line))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case str(kind) if kind == ANSWER:
                try:
                    keep_answer(self.delivery.post.paths, host, line)
                except (NotAMessage, TeamError) as error:
                    self.journal.warn("no answer", host=host, reason=str(error))
            case kind:
                self.journal.warn("unknown line", host=host, kind=str(kind))

    async def _carry_out(self, host: str, line: Mapping[str, Any]) -> None:
        try:
            answer = await self.commands.carry_out(host, line)
            if answer is not None:
                self.outbox(host).append(ANSWER, **answer.encode())
        except TeamError as error:  # the sender's request times out
            self.journal.error("not answered", error, host=host)

    def _unknown(self, host: str, lines: Sequence[OutLine]) -> Sequence[OutLine]:
        """Return the lines not delivered yet; this host may have stopped during the delivery."""
        named: defaultdict[str, set[str]] = defaultdict(set)
        found = [(line, read_fields(line)) for line in lines]
        for name, made in filter(None, (self._told(fields) for _, fields in found)):
            named[name].add(made)
        paths = self.delivery.post.paths
        there = {name: find_ids(paths, name, ids) for name, ids in named.items()}
        for name in filter(there.get, there):
            files.make_durable(paths.inbox(name))  # a killed process may have left it unsynced
        return [line for line, fields in found if not self._is_known(host, fields, there)]

    def _is_known(self, host: str, line: Mapping[str, Any], there: Mapping[str, set[str]]) -> bool:
        """Return whether a message is delivered, given the known ids by receiver."""
        told = self._told(line)
        if told is None or told[1] not in there[told[0]]:
            return False
        name, made = told
        sender = f"{line['message'].get('from')}@{self.delivery.team}@{host}"
        return bool(texts_sent(self.delivery.post.paths, name, sender, made))

    def _told(self, line: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the receiver's name as in the roster, and the message id; `None` if unknown."""
        match line:
            case {"to": str(to), "message": {"id": str(made)}} if made:
                pass
            case _:
                return None
        try:
            return self.delivery.post.receiver(to)[0], made
        except TeamError:  # reported on delivery
            return None
