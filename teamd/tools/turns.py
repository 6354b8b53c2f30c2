"""Tools of the agent that leads: a teammate's turn is broken off, or rests until it is resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pydantic import Field

from teamd.hosts.address import is_far
from teamd.tools import Input, RepeatableTool, ToolError
from teamd.tools.asking import NOT_FROM_HERE, Asking


class InterruptTeammateInput(Input):
    """What `interrupt_teammate` takes."""

    teammate: str = Field(description="its name; name@team for one that you put into another team")
    text: str = Field(default="", description="what it reads next; without it, it waits for mail")


class PauseTeammateInput(Input):
    """What `pause_teammate` and `resume_teammate` take."""

    teammate: str = Field(description="its name; name@team for one that you put into another team")


class Asker:
    """The supervisors of teams, asked about one teammate by its address.

    Args:
        asking: the supervisor of a team by its name, of this one for `None`.
    """

    def __init__(self, asking: Callable[[str | None], Asking]) -> None:
        self._asking = asking

    async def ask(self, command: str, teammate: str, key: str, facts: Mapping[str, str]) -> str:
        """Have it done, under an id that follows from the call; return how it went."""
        if is_far(teammate):
            raise ToolError(NOT_FROM_HERE)
        name, _, team = teammate.partition("@")
        answer = await self._asking(team or None).ask(command, {"name": name, **facts}, key=key)
        return answer.text


class InterruptTeammate(RepeatableTool[InterruptTeammateInput]):
    """Breaks off a teammate's turn."""

    name = "interrupt_teammate"
    description = (
        "Break off what a teammate does at the moment, such as a command that goes wrong. It reads "
        "your text next, or is idle. To tell it something without that, send it a message."
    )
    acts = False

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def call(self, arguments: InterruptTeammateInput, key: str) -> str:
        """Break it off."""
        facts = {"text": arguments.text}
        return await self._asker.ask("interrupt", arguments.teammate, key, facts)


class PauseTeammate(RepeatableTool[PauseTeammateInput]):
    """Has a teammate rest."""

    name = "pause_teammate"
    description = (
        "Have a teammate rest at the end of its step until you resume it. Its mail waits, and what "
        "it was doing stays as it is."
    )
    acts = False

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def call(self, arguments: PauseTeammateInput, key: str) -> str:
        """Pause it."""
        return await self._asker.ask("pause", arguments.teammate, key, {})


class ResumeTeammate(RepeatableTool[PauseTeammateInput]):
    """Lets a teammate go on that was paused by the same agent."""

    name = "resume_teammate"
    description = "Let a teammate go on that you have paused. A limit only the person raises."
    acts = False

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def call(self, arguments: PauseTeammateInput, key: str) -> str:
        """Resume it."""
        return await self._asker.ask("resume", arguments.teammate, key, {})


def turn_tools(
    asking: Callable[[str | None], Asking],
) -> Iterator[InterruptTeammate | PauseTeammate | ResumeTeammate]:
    """Yield all of them."""
    asker = Asker(asking)
    yield InterruptTeammate(asker)
    yield PauseTeammate(asker)
    yield ResumeTeammate(asker)
