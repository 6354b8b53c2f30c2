"""Tools of the agent that leads: whoever has them may spawn; nobody else's toolbox holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import Field

from teamd.messages import Message
from teamd.states import Status
from teamd.tools import Input, Tool, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.mail.routing import Post
    from teamd.team.roster import Roster
    from teamd.tools.asking import Asking

_ANSWER_SECONDS: Final = 60.0  # that a teammate has for its answer
_BEGIN_SECONDS: Final = 30.0  # until the supervisor must have begun


class SpawnTeammateInput(Input):
    """What `spawn_teammate` takes."""

    name: str = Field(description="up to 64 of A-Z a-z 0-9 _ -")
    role: str = Field(description="what it is, in a word or two, such as coder")
    prompt: str = Field(description="its task, with all that it has to know: it sees nothing else")
    team: str | None = Field(default=None, description="another team than this one")


class SpawnTeammate(Tool[SpawnTeammateInput]):
    """Starts or wakes a teammate.

    Args:
        asking: the supervisor of a team by its name, of this one for `None`.
    """

    name: ClassVar[str] = "spawn_teammate"
    description: ClassVar[str] = (
        "Start a teammate, or wake one that is idle or shut down: it goes on with its memory. It "
        "works on its own and reports by mail. Send mail to one that is at work already."
    )
    Input = SpawnTeammateInput
    acts: ClassVar[bool] = False
    repeatable: ClassVar[bool] = True  # under the same id, to which the answer is the same

    def __init__(self, asking: Callable[[str | None], Asking]) -> None:
        self._asking = asking

    async def call_once(self, arguments: SpawnTeammateInput, key: str) -> str:
        """Start it, under an id that follows from the call."""
        facts = arguments.model_dump(exclude={"team"})
        answer = await self._asking(arguments.team).ask("spawn", facts, key=key)
        warning = answer.data.get("warning")
        return answer.text + (f" (warning: {warning})" if warning else "")


class ListTeammatesInput(Input):
    """What `list_teammates` takes: nothing."""


class ListTeammates(Tool[ListTeammatesInput]):
    """The roster."""

    name: ClassVar[str] = "list_teammates"
    description: ClassVar[str] = (
        "See who is in the team: name, role and status. One that is idle waits for mail."
    )
    Input = ListTeammatesInput
    acts: ClassVar[bool] = False
    repeatable: ClassVar[bool] = True

    def __init__(self, roster: Roster, own: str) -> None:
        self._roster = roster
        self._own = own

    async def call(self, arguments: ListTeammatesInput) -> str:  # noqa: ARG002 -- there are none
        """A line a teammate."""
        lines = [
            f"{member.name} ({member.role}): {member.status}"
            + (f", {member.reason}" if member.reason else "")
            for member in self._roster.read().members
            if member.name != self._own
        ]
        return "\n".join(lines) or "nobody yet; spawn_teammate starts one"


class BroadcastInput(Input):
    """What `broadcast` takes."""

    content: str


class Broadcast(Tool[BroadcastInput]):
    """One message to everybody."""

    name: ClassVar[str] = "broadcast"
    description: ClassVar[str] = "Send one message to every teammate that is not shut down."
    Input = BroadcastInput
    acts: ClassVar[bool] = False
    repeatable: ClassVar[bool] = True

    def __init__(self, post: Post, own: str) -> None:
        self._post = post
        self._own = own

    async def call_once(self, arguments: BroadcastInput, key: str) -> str:
        """Send it under an id that follows from the call."""
        message = Message(
            id=key,
            type="broadcast",
            sender=self._own,
            to="all",
            content=arguments.content,
        )
        sent = self._post.broadcast(message)
        if not sent:
            raise ToolError("there is nobody to send to; list_teammates shows who is in the team")
        return f"sent to {', '.join(one.to for one in sent)}"


class ShutdownRequestInput(Input):
    """What `shutdown_request` takes."""

    teammate: str = Field(description="its name")


class ShutdownRequest(Tool[ShutdownRequestInput]):
    """Asks a teammate to shut down."""

    name: ClassVar[str] = "shutdown_request"
    description: ClassVar[str] = (
        "Ask a teammate to shut down. It approves, or rejects with a reason; the answer comes as "
        "mail. One that does not answer within a minute is ended, and mail tells you so. It can be "
        "spawned again, and remembers everything then."
    )
    Input = ShutdownRequestInput
    acts: ClassVar[bool] = False
    repeatable: ClassVar[bool] = True  # a teammate is asked once at a time

    def __init__(self, asking: Asking, roster: Roster) -> None:
        self._asking = asking
        self._roster = roster

    async def call_once(self, arguments: ShutdownRequestInput, key: str) -> str:
        """Have it asked, by a request whose id follows from the call."""
        member = self._roster.read().get(arguments.teammate)
        if member.status is Status.SHUTDOWN:
            return f"{member.name} is shut down already"
        facts = {"name": member.name, "seconds": _ANSWER_SECONDS, "by_mail": True}
        self._asking.begin("shutdown", facts, key=key, seconds=_BEGIN_SECONDS)
        return f"{member.name} is asked; the answer comes as mail"
