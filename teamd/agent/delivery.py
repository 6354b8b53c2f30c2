"""Delivery into a conversation: mail, each message once, and news."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teamd.mail.spool import BatchLimit
from teamd.messages import FRESH_KEY, PROMPT_KEY, moment_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from teamd.agent.environment import Environment, Equipment
    from teamd.messages import Message

# A flood is read in batches that a context bears, each of them answered before the next.
BATCH_LIMIT: Final = BatchLimit(messages=100, bytes=128 * 1024, wary=True)


@dataclass(slots=True)
class Delivery:
    """The way into one conversation."""

    env: Environment
    equipment: Equipment

    def deliver(self) -> list[Message]:
        """Take mail and put it into the conversation, once; then what is news.

        Returns:
            The messages that were not in it before.
        """
        batch = self.env.mailbox.take(BATCH_LIMIT)
        fresh = self._select_fresh(batch.messages)
        if fresh:
            self._put(fresh, taken=moment_of(batch.id))
        self.env.mailbox.done(batch)
        for news in self.equipment.news():
            if news.about not in self.env.conversation.told:
                self.env.conversation.record(news)
        return fresh

    def _select_fresh(self, messages: Iterable[Message]) -> list[Message]:
        fresh: list[Message] = []
        for message in messages:
            known = self.env.conversation.has_seen(message)
            if not known and not any(map(message.is_same_as, fresh)):  # a retried send
                fresh.append(message)
        return fresh

    def _put(self, messages: list[Message], *, taken: float | None) -> None:
        for message in messages:
            if _begins_anew(message) or not self.env.conversation.opened.system:
                self.env.conversation.open(self.equipment.opening())
        new_task = self.env.plans.is_new_task(messages)
        self.env.conversation.deliver(messages, taken=taken, new_task=new_task)
        if new_task:
            self.env.plans.withdraw()
        self.env.shutdown.close_old_requests()


def _begins_anew(message: Message) -> bool:
    """Return whether a spawn says so; what another program calls fresh is its own business."""
    return all(message.extra.get(key) is True for key in (PROMPT_KEY, FRESH_KEY))
