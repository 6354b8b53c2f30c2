"""Talk without work: teammates' mail waits until the person, the lead or the board wakes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.prompts import render_hold
from teamd.mail.mailbox import Mailbox
from teamd.messages import HELD_TYPE, LEAD, NAME, USER, Message
from teamd.team.roster import Roster
from teamd.transcript.records import MailHeld

_TALK: Final = frozenset({"message", "broadcast", HELD_TYPE})


@dataclass(frozen=True, slots=True)
class MailHold:
    """The hold on one teammate's mail.

    Attributes:
        name: the teammate's.
        most: how many wakes of talk in a row there may be; 0 for any number.
        roster: says who is of the team.
    """

    name: str
    most: int
    conversation: Conversation
    mailbox: Mailbox
    roster: Roster

    @property
    def reason(self) -> str | None:
        """Why mail waits, in a sentence, if it does."""
        talk = self.conversation.talk
        return render_hold(self.name, talk.wakes) if self._begun and talk.told else None

    def is_idle_talk(self, messages: Iterable[Message]) -> bool:
        """Return whether mail is all from other teammates, and none of it from the board."""
        return all(_is_idle_talk(message, self.roster) for message in messages)

    def holds(self) -> bool:
        """Return whether what waits is held back; whose mail it is and was not told is noted."""
        if not self._begun:
            return False
        waiting = self.mailbox.peek()
        if not self.is_idle_talk(waiting):
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


def _is_idle_talk(message: Message, roster: Roster) -> bool:
    """Return whether a message is a teammate's own words; other programs speak for a person."""
    name, _, elsewhere = message.sender.partition("@")
    if name.lower() in (LEAD, USER) or message.type not in _TALK or "task_id" in message.extra:
        return False
    if not elsewhere:
        return roster.find(name) is not None
    return all(map(NAME.fullmatch, elsewhere.split("@")))  # a team, and it may be a host
