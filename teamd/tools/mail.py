"""Mail tools: send mail, to one or to all, and see whether any waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from teamd.errors import TeamError
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.messages import Message
from teamd.tools import Input, InputT, Tool, ToolError

_MOST_COUNTED: Final = 100


@dataclass
class _PostTool(Tool[InputT]):
    """A tool with which one member sends mail."""

    post: MailRouter
    member: str


class SendMessageInput(Input):
    """Input of `send_message`."""

    to: str = Field(description="a teammate's name, or lead; name@team in another team")
    content: str = Field(description="the whole message")
    summary: str | None = Field(default=None, description="what it is about, in a few words")


@dataclass
class SendMessage(_PostTool[SendMessageInput]):
    """Puts a message into an inbox.

    The same text to the same receiver within ten minutes is sent once: models that thank each other
    repeat themselves. A person who repeats a message means it.
    """

    receivers: Callable[[str], Iterable[str]] = lambda _: ()

    name = "send_message"
    description = (
        "Send a message to a teammate or to the lead. It is delivered even while the receiver "
        "works, and wakes one that is idle. An answer comes as mail, not as this call's result."
    )

    async def call(self, arguments: SendMessageInput, key: str) -> str:
        to = self.post.address(arguments.to)
        if to.lower() == self.member.lower():
            raise ToolError("that is you; a message to yourself is of no use")
        if any(self._is(to, known) for known in self.receivers(arguments.content)):
            why = f"{to} got the same text from you less than 10 minutes ago"
            raise ToolError(f"not sent again: {why}")
        extra = {} if arguments.summary is None else {"summary": arguments.summary}
        text, sender = arguments.content, self.member
        message = Message(id=f"{key}-{to}", sender=sender, to=to, content=text, extra=extra)
        sent = self.post.send(message)
        return f"sent to {sent.to}" + (f" ({sent.warning})" if sent.warning else "")

    def _is(self, to: str, known: str) -> bool:
        with suppress(TeamError):  # a receiver that has left the team
            return self.post.address(known) == to
        return False


class ReadInboxInput(Input):
    """Input of `read_inbox`, which takes none."""


@dataclass
class ReadInbox(Tool[ReadInboxInput]):
    """Says whether mail waits.

    It does not take any: mail enters the conversation only by the delivery before each model call.
    """

    mailbox: Mailbox

    name = "read_inbox"
    description = (
        "See whether mail waits. There is seldom need for it: mail is delivered to you by itself."
    )

    async def call(self, _: ReadInboxInput, _key: str) -> str:
        waiting = len(self.mailbox.peek(_MOST_COUNTED + 1))
        if not waiting:
            return "no new mail"
        if waiting > _MOST_COUNTED:
            return f"more than {_MOST_COUNTED} new messages; the first are delivered right below"
        return f"{waiting} new message{'s' if waiting > 1 else ''}, delivered right below"


class BroadcastInput(Input):
    """Input of `broadcast`."""

    content: str


class Broadcast(_PostTool[BroadcastInput]):
    """Sends one message to the whole team."""

    name = "broadcast"
    description = "Send one message to every teammate that is not shut down."

    async def call(self, arguments: BroadcastInput, key: str) -> str:
        text, sender = arguments.content, self.member
        message = Message(id=key, type="broadcast", sender=sender, to="all", content=text)
        sent = self.post.broadcast(message)
        if not sent:
            raise ToolError("there is nobody to send to; list_teammates shows who is in the team")
        return f"sent to {', '.join(one.to for one in sent)}"


# A wake in which no other tool is called is talk.
MAIL_TOOLS: Final = frozenset(tool.name for tool in (SendMessage, ReadInbox, Broadcast))
