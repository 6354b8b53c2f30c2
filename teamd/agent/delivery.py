"""Delivery: mail goes from the inbox into the conversation, each message once; then the news.

An interrupt is mail, too. So it is on disk before it takes effect, and a process that replaces
a killed one finds it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Self

from teamd.agent.conversation import prompts
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.prompts import render_hold
from teamd.agent.environment import Environment
from teamd.agent.turn import Cancellation, TurnCancelled
from teamd.mail.mailbox import Mailbox
from teamd.mail.spool import BatchLimit
from teamd.messages import (
    COMPACT_TYPE,
    FRESH_KEY,
    HELD_TYPE,
    INTERRUPT_TYPE,
    LEAD,
    NAME,
    PROMPT_KEY,
    USER,
    Message,
    moment_of,
)
from teamd.team.roster import Roster
from teamd.tools import Result
from teamd.transcript.records import INTERRUPTED, MailHeld, NewsAdded, Opened

# A flood is read in batches that a context bears, each of them answered before the next.
BATCH_LIMIT: Final = BatchLimit(messages=100, bytes=128 * 1024, wary=True)
_TALK: Final = frozenset({"message", "broadcast", HELD_TYPE})


@dataclass(frozen=True, slots=True)
class MailHold:
    """The hold on one teammate's mail.

    Attributes:
        name: the teammate's.
        most: how many wakes of talk in a row there may be; 0 for any number.
        roster: tells who belongs to the team.
    """

    name: str
    most: int
    conversation: Conversation
    mailbox: Mailbox
    roster: Roster

    @classmethod
    def of(cls, env: Environment) -> Self:
        """Return the hold on a teammate's mail; the lead's is never held: leading means writing."""
        most = 0 if env.leads else env.settings.limits.talk_wakes
        return cls(env.name, most, env.conversation, env.mailbox, env.roster)

    @property
    def reason(self) -> str | None:
        """Why mail waits, in a sentence, if it does."""
        talk = self.conversation.talk
        return render_hold(self.name, talk.wakes) if self._begun and talk.told else None

    def holds(self) -> bool:
        """Return whether waiting mail is held back; record its new senders."""
        if not self._begun:
            return False
        waiting = self.mailbox.peek()
        if not is_idle_talk(waiting, self.roster):
            return False
        self._note(dict.fromkeys(mail.sender for mail in waiting if mail.type != HELD_TYPE))
        return True

    @property
    def _begun(self) -> bool:
        return 0 < self.most <= self.conversation.talk.wakes

    def _note(self, senders: Iterable[str]) -> None:
        talk = self.conversation.talk
        untold = tuple(sender for sender in senders if sender not in talk.told)
        if untold:
            notice = "" if talk.told else render_hold(self.name, talk.wakes)
            self.conversation.record(MailHeld(senders=untold, notice=notice))


def is_idle_talk(messages: Iterable[Message], roster: Roster) -> bool:
    """Return whether all mail was written by teammates; other programs speak for a person."""
    for message in messages:
        name, _, elsewhere = message.sender.partition("@")
        if name.lower() in (LEAD, USER) or message.type not in _TALK or "task_id" in message.extra:
            return False
        if not elsewhere and roster.find(name) is None:
            return False
        if elsewhere and not all(map(NAME.fullmatch, elsewhere.split("@"))):
            return False  # not the name of a team, or of a team and its host
    return True


@dataclass(kw_only=True, slots=True)
class Delivery:
    """Puts mail and news into one teammate's conversation.

    Attributes:
        opening: returns the first record of a new conversation.
        news: returns events outside the conversation, including those already told.
        summarise: has the conversation summarised before its next reply.
        turn: the running turn, if any.
    """

    env: Environment
    opening: Callable[[], Opened]
    news: Callable[[], Iterable[NewsAdded]]
    summarise: Callable[[], None]
    turn: Cancellation
    hold: MailHold = field(init=False)

    def __post_init__(self) -> None:
        self.hold = MailHold.of(self.env)

    def deliver(self) -> None:
        """Take mail, unless it is held; an interrupt first ends the turn that it refers to.

        Raises:
            TurnCancelled: the turn has to end now; the mail is taken after that.
        """
        if not self.hold.holds():
            self._take_mail()
        for news in self.news():
            if news.about not in self.env.conversation.told:
                self.env.conversation.record(news)

    def find_interrupt(self) -> str | None:
        """Return the sender of a new interrupt, if there is one.

        Raises:
            StoreError: the inbox cannot be read now.
        """
        return _interrupter(self._select_fresh(self.env.mailbox.peek()))

    def break_off(self, by: str) -> None:
        """End the turn, if there is one, and leave a conversation that the API accepts."""
        conversation = self.env.conversation
        if not (conversation.owes_reply or conversation.unfollowed):
            return
        result = Result(text=prompts.BROKEN_OFF_CALL.format(by=by), is_error=True)
        for call in conversation.unanswered:
            conversation.add_result(call, result)
        conversation.end_turn(INTERRUPTED, "")
        self.env.permissions.withdraw()

    def _take_mail(self) -> None:
        batch = self.env.mailbox.take(BATCH_LIMIT)
        fresh = self._select_fresh(batch.messages)
        if (by := _interrupter(fresh)) is not None:
            if self.turn.running:
                raise TurnCancelled(by)  # unfinished mail is taken again
            self.break_off(by)
            self.turn.forget()
        if fresh:
            self._put(fresh, taken=moment_of(batch.id))
        if batch.messages:
            self.env.conversation.settle()  # before the inbox forgets it
            self.env.mailbox.done(batch)
        if any(message.type == COMPACT_TYPE for message in fresh):
            self.summarise()

    def _select_fresh(self, messages: Iterable[Message]) -> list[Message]:
        mask, fresh = self.env.mask, list[Message]()
        for one in messages:
            content, extra = mask.text(one.content), mask.value(dict(one.extra))
            message = replace(one, content=content, extra=extra)
            known = self.env.conversation.has_seen(message)
            if not known and not any(map(message.is_same_as, fresh)):  # a retried send
                fresh.append(message)
        return fresh

    def _put(self, messages: list[Message], *, taken: float | None) -> None:
        for message in messages:
            if _begins_anew(message) or not self.env.conversation.opened.system:
                self.env.conversation.open(self.opening())
                self.env.permissions.withdraw()
        new_task = self.env.plans.is_new_task(one for one in messages if not one.wordless)
        idle_talk = is_idle_talk(messages, self.env.roster)
        self.env.conversation.deliver(messages, taken=taken, new_task=new_task, idle_talk=idle_talk)
        if new_task:
            self.env.plans.withdraw()
        self.env.shutdown.close_old_requests()


def _interrupter(messages: Iterable[Message]) -> str | None:
    return next((one.sender for one in messages if one.type == INTERRUPT_TYPE), None)


def _begins_anew(message: Message) -> bool:
    """Return whether it is a spawn with `fresh`; that key alone, in other mail, has no effect."""
    return all(message.extra.get(key) is True for key in (PROMPT_KEY, FRESH_KEY))
