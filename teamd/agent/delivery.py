"""Delivery into a conversation: mail, each message once, and news."""

from __future__ import annotations

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


class Delivery:
    """The way into one conversation.

    Args:
        opening: says how a conversation begins, by the role of that moment.
        news: returns what there is to tell, told already or not.
        claim: looks for work where there is no mail; returns whether there is some now.
    """

    def __init__(
        self,
        *,
        conversation: Conversation,
        mailbox: Mailbox,
        shutdown: Shutdown,
        plans: Plans,
        opening: Callable[[], Opened],
        news: Callable[[], Iterable[NewsAdded]],
        claim: Callable[[], bool],
    ) -> None:
        self._conversation = conversation
        self._mailbox = mailbox
        self._shutdown = shutdown
        self._plans = plans
        self._opening = opening
        self._news = news
        self.claim_task = claim

    def waiting(self) -> bool:
        """Return whether there is mail that has not been taken."""
        return self._mailbox.waiting()

    def deliver(self) -> list[Message]:
        """Take mail and put it into the conversation, once; then what is news.

        Returns:
            The messages that were not in it before.
        """
        batch = self._mailbox.take(BATCH_LIMIT)
        fresh = self._select_fresh(batch.messages)
        if fresh:
            self._put(fresh, taken=moment_of(batch.id))
        self._mailbox.done(batch)
        for news in self._news():
            if news.about not in self._conversation.told:
                self._conversation.add_news(news)
        return fresh

    def _select_fresh(self, messages: Iterable[Message]) -> list[Message]:
        fresh: list[Message] = []
        for message in messages:
            known = self._conversation.has_seen(message)
            if not known and not any(map(message.is_same_as, fresh)):  # a retried send
                fresh.append(message)
        return fresh

    def _put(self, messages: list[Message], *, taken: float | None) -> None:
        for message in messages:
            if _begins_anew(message) or not self._conversation.opened.system:
                self._conversation.open(self._opening())
        new_task = self._plans.is_new_task(messages)
        self._conversation.deliver(messages, taken=taken, new_task=new_task)
        if new_task:
            self._plans.withdraw()
        self._shutdown.close_old_requests()


def _begins_anew(message: Message) -> bool:
    """Return whether a spawn says so; what another program calls fresh is its own business."""
    return all(message.extra.get(key) is True for key in (PROMPT_KEY, FRESH_KEY))
