"""Tools of the lead agent, the only one that may spawn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from teamd.control import Asking
from teamd.errors import ExitCode
from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts, describe_absence
from teamd.hosts.places import is_far
from teamd.programs import Sink
from teamd.team import teams
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.tools import Input, InputT, Tool, ToolError
from teamd.tools.background import Jobs

NOT_FROM_HERE: Final = (
    "commands for a teammate on another host are the person's: ask that teammate, or who leads "
    "it there, by mail"
)
SUBAGENT: Final = "helper"
TEAMMATE: Final = "teammate"
_ANSWER_SECONDS: Final = 60.0  # that a teammate has for its answer
_BEGIN_SECONDS: Final = 30.0  # until the supervisor must have begun
_MARGIN_SECONDS: Final = 10.0


class InterruptTeammateInput(Input):
    """Input of `interrupt_teammate`."""

    teammate: str = Field(description="its name; name@team for one that you put into another team")
    text: str = Field(default="", description="what it reads next; without it, it waits for mail")


class PauseTeammateInput(Input):
    """Input of `pause_teammate` and `resume_teammate`."""

    teammate: str = Field(description="its name; name@team for one that you put into another team")


@dataclass
class _TurnTool(Tool[InputT]):
    """A tool by which the supervisor of a team acts on one teammate."""

    asking: Callable[[str | None], Asking]

    async def _ask(self, command: str, teammate: str, key: str, **facts: str) -> str:
        """Ask the supervisor, under an id derived from the call; return the answer."""
        _check_near(teammate)
        name, _, team = teammate.partition("@")
        answer = await self.asking(team or None).ask(command, {"name": name, **facts}, key=key)
        return answer.text


class InterruptTeammate(_TurnTool[InterruptTeammateInput]):
    """Interrupts a teammate's turn."""

    name = "interrupt_teammate"
    description = (
        "Break off what a teammate does at the moment, such as a command that goes wrong. It reads "
        "your text next, or is idle. To tell it something without that, send it a message."
    )

    async def call(self, arguments: InterruptTeammateInput, key: str) -> str:
        return await self._ask("interrupt", arguments.teammate, key, text=arguments.text)


class PauseTeammate(_TurnTool[PauseTeammateInput]):
    """Pauses a teammate."""

    name = "pause_teammate"
    description = (
        "Have a teammate rest at the end of its step until you resume it. Its mail waits, and what "
        "it was doing stays as it is."
    )

    async def call(self, arguments: PauseTeammateInput, key: str) -> str:
        return await self._ask("pause", arguments.teammate, key)


class ResumeTeammate(_TurnTool[PauseTeammateInput]):
    """Resumes a teammate that was paused by the same agent."""

    name = "resume_teammate"
    description = "Let a teammate go on that you have paused. A limit only the person raises."

    async def call(self, arguments: PauseTeammateInput, key: str) -> str:
        return await self._ask("resume", arguments.teammate, key)


def _check_near(teammate: str) -> None:
    if is_far(teammate):
        raise ToolError(NOT_FROM_HERE)


class SpawnTeammateInput(Input):
    """Input of `spawn_teammate`."""

    name: str = Field(description="up to 64 of A-Z a-z 0-9 _ -")
    role: str = Field(description="what it is, in a word or two, such as coder")
    prompt: str = Field(description="its task, with all that it has to know: it sees nothing else")
    team: str | None = Field(default=None, description="another team than this one")


@dataclass
class SpawnTeammate(Tool[SpawnTeammateInput]):
    """Starts or wakes a teammate."""

    asking: Callable[[str | None], Asking]

    name = "spawn_teammate"
    description = (
        "Start a teammate, or wake one that is idle or shut down: it goes on with its memory. It "
        "works on its own and reports by mail. Send mail to one that is at work already."
    )

    async def call(self, arguments: SpawnTeammateInput, key: str) -> str:
        _check_near(arguments.name)
        facts = arguments.model_dump(exclude={"team"})
        answer = await self.asking(arguments.team).ask("spawn", facts, key=key)
        warning = answer.data.get("warning")
        return answer.text + (f" (warning: {warning})" if warning else "")


class ListTeammatesInput(Input):
    """Input of `list_teammates`, which takes none."""


@dataclass
class ListTeammates(Tool[ListTeammatesInput]):
    """The roster."""

    roster: Roster
    member: str
    hosts: FarHosts | None = None

    name = "list_teammates"
    description = "See who is in the team: name, role and status. One that is idle waits for mail."

    async def call(self, _: ListTeammatesInput, _key: str) -> str:
        lines = [
            f"{member.name} ({member.role}): {member.status}"
            + (f", {member.reason}" if member.reason else "")
            for member in self.roster.read().members
            if member.name != self.member
        ]
        lines += () if self.hosts is None else _list_far(self.hosts)
        return "\n".join(lines) or "nobody yet; spawn_teammate starts one"


def _list_far(hosts: FarHosts) -> Iterator[str]:
    """Yield a line for each teammate on another host, as that host reported it."""
    for view in hosts.views():
        roster, absent = hosts.roster(view.name), describe_absence(view)
        if roster is not None:
            for member in roster.members:
                address = f"{member.name}@{roster.team}@{view.name}"
                yield f"{address} ({member.role}): {absent or member.status}"


class ShutdownRequestInput(Input):
    """Input of `shutdown_request`."""

    teammate: str = Field(description="its name")


@dataclass
class ShutdownRequest(Tool[ShutdownRequestInput]):
    """Asks a teammate to shut down."""

    asking: Callable[[str | None], Asking]
    roster: Roster

    name = "shutdown_request"
    description = (
        "Ask a teammate to shut down. It approves, or rejects with a reason; the answer comes as "
        "mail. One that does not answer within a minute is ended, and mail tells you so. It can be "
        "spawned again, and remembers everything then."
    )

    async def call(self, arguments: ShutdownRequestInput, key: str) -> str:
        """Have the teammate asked, by a request whose id is derived from the call."""
        _check_near(arguments.teammate)
        member = self.roster.read().get(arguments.teammate)
        if member.status is Status.SHUTDOWN:
            return f"{member.name} is shut down already"
        facts = {"name": member.name, "seconds": _ANSWER_SECONDS, "by_mail": True}
        self.asking(None).begin("shutdown", facts, key=key, seconds=_BEGIN_SECONDS)
        return f"{member.name} is asked; the answer comes as mail"


class DelegateTaskInput(Input):
    """Input of `task`."""

    prompt: str = Field(description="the whole task: whoever does it sees nothing else")
    background: bool = Field(
        default=False, description="go on at once; you are told when the subagent is done"
    )
    name: str | None = Field(
        default=None, description="a teammate of this name does it, and stays; else a subagent"
    )
    team: str | None = Field(default=None, description="with a name: another team than this one")
    role: str | None = Field(default=None, description="in a word or two, such as researcher")


@dataclass
class DelegateTask(Tool[DelegateTaskInput]):
    """Has a task done in one of three ways."""

    delegate: Callable[..., Awaitable[str]]
    jobs: Jobs
    asking: Callable[[str | None], Asking]

    name = "task"
    description = (
        "Have a task done. By a subagent, which has its own short conversation and the tools of "
        "the workspace, and of which you get only its summary: in the foreground, or in the "
        "background with a job_id for check_background and stop_background. Or, with a name, by "
        "a teammate that is spawned, keeps its memory and reports by mail."
    )

    async def call(self, arguments: DelegateTaskInput, key: str) -> str:
        """Have the task done; the call's key names the subagent's conversation."""
        if arguments.name is not None:
            if arguments.background:
                raise ToolError("a teammate always works in the background; leave `background` out")
            facts = arguments.model_dump(include={"name", "prompt", "team"})
            teammate = SpawnTeammateInput(role=arguments.role or TEAMMATE, **facts)
            return await SpawnTeammate(self.asking).call(teammate, key)
        if arguments.team is not None:
            raise ToolError("only a teammate with a `name` can be in another team")
        role = arguments.role or SUBAGENT
        if not arguments.background:
            return await self.delegate(arguments.prompt, role, key, background=False)

        async def work(output: Sink) -> str:
            summary = await self.delegate(arguments.prompt, role, key, background=True)
            output(summary.encode())
            return "done"

        job = self.jobs.start(f"task: {arguments.prompt}", work, subagent=True)
        return f"job_id: {job.id}"


class TeamInput(Input):
    """Input of `create_team` and `delete_team`."""

    name: str = Field(description="up to 64 of A-Z a-z 0-9 _ -")


@dataclass
class CreateTeam(Tool[TeamInput]):
    """Makes a team in the same project and starts its supervisor."""

    paths: TeamPaths

    name = "create_team"
    description = (
        "Make another team, with limits of its own. spawn_teammate with `team` puts somebody into "
        "it, and mail reaches its members as name@team."
    )

    async def call(self, arguments: TeamInput, _key: str) -> str:
        await teams.start(teams.make(self.paths.home, arguments.name))
        return f"the team {arguments.name} is there"


@dataclass
class DeleteTeam(Tool[TeamInput]):
    """Asks the members of another team of the project to shut down and removes it."""

    paths: TeamPaths
    address: Callable[[], str]

    name = "delete_team"
    description = (
        "Ask everybody in a team to shut down, then remove it with all that it has written. While "
        "somebody rejects, it stays."
    )

    async def call(self, arguments: TeamInput, key: str) -> str:
        """Ask, wait, remove; the request has an id derived from the call."""
        team = teams.deletable(teams.found(self.paths.home, arguments.name))
        if team.paths.root == self.paths.root:
            command = f"`teamctl delete {team.name}`"
            raise ToolError(f"you are in this team; the person deletes it with {command}")
        if teams.must_be_asked(team):
            asking, limit = Asking(team.paths, self.address()), _ANSWER_SECONDS + _MARGIN_SECONDS
            facts = {"all": True, "seconds": _ANSWER_SECONDS}
            # Members that did not answer in time have been ended: the team has no members left.
            enough = (ExitCode.DONE, ExitCode.DEADLINE)
            await asking.ask("shutdown", facts, key=key, timeout_seconds=limit, enough=enough)
        await teams.stop(team.paths)
        teams.remove(team.paths)
        return f"the team {team.name} is deleted"
