"""Delivery into a conversation: mail, each message once, and news."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teamd.mail.spool import BatchLimit
from teamd.messages import FRESH_KEY, PROMPT_KEY, moment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from teamd.agent.conversation.conversation import Conversation
    from teamd.agent.plans import Plans
    from teamd.agent.shutdown import Shutdown
    from teamd.mail.mailbox import Mailbox
    from teamd.messages import Message
    from teamd.transcript.records import NewsAdded, Opened

# A flood is read in batches that a context bears, each of them answered before the next.
BATCH_LIMIT: Final = BatchLimit(messages=100, bytes=128 * 1024, wary=True)


@dataclass(kw_only=True, slots=True)
class Delivery:
    """The way into one conversation.

    Attributes:
        opening: says how a conversation begins, by the role of that moment.
        news: returns what there is to tell, told already or not.
        claim: looks for work where there is no mail; returns whether there is some now.
    """

    conversation: Conversation
    mailbox: Mailbox
    shutdown: Shutdown
    plans: Plans
    opening: Callable[[], Opened]
    news: Callable[[], Iterable[NewsAdded]]
    claim: Callable[[], bool]

    def deliver(self) -> list[Message]:
        """Take mail and put it into the conversation, once; then what is news.

        Returns:
            The messages that were not in it before.
        """
        batch = self.mailbox.take(BATCH_LIMIT)
        fresh = self._select_fresh(batch.messages)
        if fresh:
            self._put(fresh, taken=moment_of(batch.id))
        self.mailbox.done(batch)
        for news in self.news():
            if news.about not in self.conversation.told:
                self.conversation.add_news(news)
        return fresh

    def _select_fresh(self, messages: Iterable[Message]) -> list[Message]:
        fresh: list[Message] = []
        for message in messages:
            known = self.conversation.has_seen(message)
            if not known and not any(map(message.is_same_as, fresh)):  # a retried send
                fresh.append(message)
        return fresh

    def _put(self, messages: list[Message], *, taken: float | None) -> None:
        for message in messages:
            if _begins_anew(message) or not self.conversation.opened.system:
                self.conversation.open(self.opening())
        new_task = self.plans.is_new_task(messages)
        self.conversation.deliver(messages, taken=taken, new_task=new_task)
        if new_task:
            self.plans.withdraw()
        self.shutdown.close_old_requests()


def _begins_anew(message: Message) -> bool:
    """Return whether a spawn says so; what another program calls fresh is its own business."""
    return all(message.extra.get(key) is True for key in (PROMPT_KEY, FRESH_KEY))
