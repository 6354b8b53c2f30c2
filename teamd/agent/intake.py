"""What comes into a conversation from outside: mail, each message once, and news."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from teamd.protocol import FRESH_KEY, PROMPT_KEY, moment_of
from teamd.store.mailbox import Portion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from teamd.agent.conversation import Conversation
    from teamd.agent.leaving import Leaving
    from teamd.agent.plans import Plans
    from teamd.protocol import Message
    from teamd.store.mailbox import Mailbox

# A flood is read in portions that a context bears, each of them answered before the next.
PORTION = Portion(messages=100, bytes=128 * 1024, wary=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """What a teammate is told to be when its conversation begins.

    Attributes:
        model: the one that its role asks for; `None` for that of the team.
        tools: those of the workspace that it may use; `None` for all.
    """

    system: str
    role: str = ""
    team: str = ""
    model: str | None = None
    tools: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Something that happened beside the conversation.

    Attributes:
        about: names what happened; it is told once.
        text: what the model reads.
    """

    about: str
    text: str


class Intake:
    """The way into one conversation.

    Args:
        name: the teammate's.
        persona: asked when a conversation begins: it takes the role of that moment.
        news: what there is to tell, told already or not.
    """

    def __init__(
        self,
        *,
        name: str,
        persona: Callable[[], Persona],
        news: Callable[[], Iterable[News]],
        conversation: Conversation,
        mailbox: Mailbox,
        leaving: Leaving,
        plans: Plans,
    ) -> None:
        self._name = name
        self._persona = persona
        self._news = news
        self._conversation = conversation
        self._mailbox = mailbox
        self._leaving = leaving
        self._plans = plans

    def waiting(self) -> bool:
        """Whether there is mail that has not been taken."""
        return self._mailbox.waiting()

    def deliver(self) -> list[Message]:
        """Take mail and put it into the conversation, once; then what is news.

        Returns:
            The messages that were not in it before.
        """
        batch = self._mailbox.take(PORTION)
        fresh: list[Message] = []
        for message in filter(self._conversation.is_new, batch.messages):
            if not any(message.is_same_as(other) for other in fresh):  # a retried send
                fresh.append(message)
        for message in fresh:
            if _begins_anew(message) or not self._conversation.system:
                self._open()
        if fresh:
            new_task = self._plans.is_new_task(fresh)
            self._conversation.deliver(fresh, taken=moment_of(batch.id), new_task=new_task)
            if new_task:
                self._plans.withdraw()
            self._leaving.close_old()
        self._mailbox.done(batch)
        self._tell_news()
        return fresh

    def _tell_news(self) -> None:
        for news in self._news():
            if news.about not in self._conversation.told:
                self._conversation.add_news(news.about, news.text)

    def _open(self) -> None:
        persona = self._persona()
        self._conversation.open(
            persona.system,
            name=self._name,
            role=persona.role,
            team=persona.team,
            model=persona.model,
            tools=None if persona.tools is None else sorted(persona.tools),
        )


def _begins_anew(message: Message) -> bool:
    """Whether a spawn says so; what another program calls fresh is its own business."""
    return all(message.extra.get(key) is True for key in (PROMPT_KEY, FRESH_KEY))
