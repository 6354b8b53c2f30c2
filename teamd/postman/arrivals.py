"""What becomes of lines that arrive: mail into inboxes, requests to teamd, answers to who waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from teamd.errors import NotAMessage, TeamError
from teamd.files import files
from teamd.hosts.asking import keep_answer
from teamd.hosts.lines import ANSWER, REQUEST
from teamd.mail.trace import texts_sent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from teamd.hosts.outbox import Outbox
    from teamd.journal import Journal
    from teamd.postman.commands import Commands
    from teamd.postman.delivery import FarDelivery


@dataclass(slots=True)
class Arrivals:
    """The receiver of all that other hosts send.

    Attributes:
        outbox: returns the one of a host.
    """

    delivery: FarDelivery
    commands: Commands
    outbox: Callable[[str], Outbox]
    journal: Journal
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def deliver(self, host: str, lines: Sequence[Mapping[str, Any]], *, suspected: bool) -> None:
        """Put mail into inboxes; see `Receiver`."""
        if suspected:
            lines = [line for line in lines if not self._is_known(host, line)]
        self.delivery.deliver(host, lines)

    def act(self, host: str, line: Mapping[str, Any]) -> None:
        """Carry out a request, or hand over an answer; see `Receiver`."""
        match line.get("kind"):
            case str(kind) if kind == REQUEST:
                task = asyncio.create_task(self._carry_out(host, line))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case str(kind) if kind == ANSWER:
                try:
                    keep_answer(self.delivery.post.paths, line)
                except (NotAMessage, TeamError) as error:
                    self.journal.warn("no answer", host=host, reason=str(error))
            case kind:
                self.journal.warn("unknown line", host=host, kind=str(kind))

    async def _carry_out(self, host: str, line: Mapping[str, Any]) -> None:
        try:
            answer = await self.commands.carry_out(host, line)
            if answer is not None:
                self.outbox(host).append(ANSWER, **answer.encode())
        except TeamError as error:  # the asker's time runs out
            self.journal.error("not answered", error, host=host)

    def _is_known(self, host: str, line: Mapping[str, Any]) -> bool:
        """Return whether a message is here already: this host was stopped before it noted that."""
        match line.get("message"):
            case {"id": str(made), "from": str(sender)} if made:
                pass
            case _:
                return False
        paths, to = self.delivery.post.paths, str(line.get("to"))
        try:
            name, _ = self.delivery.post.receiver(to)
        except TeamError:  # whoever delivers it says so
            return False
        if not texts_sent(paths, name, f"{sender}@{self.delivery.team}@{host}", made):
            return False
        files.make_durable(paths.inbox(name))  # whoever put it there may have been killed at that
        return True
