"""The `task` tool: one task, done by a subagent or by a teammate."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import Field

from teamd.tools import Input, Tool, ToolError
from teamd.tools.lead import SpawnTeammateInput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from teamd.programs.program import Sink
    from teamd.tools.background import Jobs
    from teamd.tools.lead import SpawnTeammate


SUBAGENT: Final = "helper"
TEAMMATE: Final = "teammate"


class TaskInput(Input):
    """What `task` takes."""

    prompt: str = Field(description="the whole task: whoever does it sees nothing else")
    background: bool = Field(
        default=False, description="go on at once; you are told when the subagent is done"
    )
    name: str | None = Field(
        default=None, description="a teammate of this name does it, and stays; else a subagent"
    )
    team: str | None = Field(default=None, description="with a name: another team than this one")
    role: str | None = Field(default=None, description="in a word or two, such as researcher")


class Task(Tool[TaskInput]):
    """Has a task done in one of three ways.

    Args:
        delegate: runs a subagent; the call's key names its conversation.
        jobs: where one in the background runs.
        spawn: the tool that starts a teammate.
    """

    name: ClassVar[str] = "task"
    description: ClassVar[str] = (
        "Have a task done. By a subagent, which has its own short conversation and the tools of "
        "the workspace, and of which you get only its summary: in the foreground, or in the "
        "background with a job_id for check_background and stop_background. Or, with a name, by "
        "a teammate that is spawned, keeps its memory and reports by mail."
    )
    Input = TaskInput
    acts: ClassVar[bool] = False

    def __init__(
        self, *, delegate: Callable[..., Awaitable[str]], jobs: Jobs, spawn: SpawnTeammate
    ) -> None:
        self._delegate = delegate
        self._jobs = jobs
        self._spawn = spawn

    async def call_once(self, arguments: TaskInput, key: str) -> str:
        """Have it done; the call's key names the subagent's conversation."""
        if arguments.name is not None:
            if arguments.background:
                raise ToolError("a teammate always works in the background; leave `background` out")
            teammate = SpawnTeammateInput(
                name=arguments.name,
                role=arguments.role or TEAMMATE,
                prompt=arguments.prompt,
                team=arguments.team,
            )
            return await self._spawn.call_once(teammate, key)
        if arguments.team is not None:
            raise ToolError("only a teammate with a `name` can be in another team")
        role = arguments.role or SUBAGENT
        if not arguments.background:
            return await self._delegate(arguments.prompt, role, key, background=False)

        async def work(output: Sink) -> str:
            summary = await self._delegate(arguments.prompt, role, key, background=True)
            output(summary.encode())
            return "done"

        return f"job_id: {self._jobs.start(f'task: {arguments.prompt}', work).id}"
