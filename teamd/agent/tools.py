"""Makes the tools of one teammate, and runs its subagents."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from teamd.agent.conversation.compaction import Compaction
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.prompts import render_job, subagent_prompt
from teamd.agent.environment import Environment
from teamd.agent.model_calls import TeammateModel
from teamd.agent.turn import run_subagent
from teamd.agent.wakeup import CallBudget
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.files import directories
from teamd.files.find_team import all_teams
from teamd.sandbox.build import LazyShell, build_shell
from teamd.sandbox.protected_paths import ProtectedPath, find_protected_paths, protected_names
from teamd.settings import skills
from teamd.settings.skills import Skill
from teamd.team import teams
from teamd.tools import Tool, Toolbox, lead
from teamd.tools.approval import ReviewPermission, ReviewPlan, ShutdownResponse, SubmitPlan
from teamd.tools.asking import Asking
from teamd.tools.background import BackgroundRun, CheckBackground, Jobs, StopBackground
from teamd.tools.board import board_tools
from teamd.tools.filesystem import EditFile, ReadFile, WriteFile
from teamd.tools.lead import turn_tools
from teamd.tools.mail import Broadcast, ReadInbox, SendMessage
from teamd.tools.shell import Bash
from teamd.tools.skills import LoadSkill
from teamd.tools.versions import SeenFiles, Versions, WrittenFiles
from teamd.tools.workspace import Workspace
from teamd.transcript.file import Transcript
from teamd.transcript.records import NewsAdded, Opened


@dataclass(frozen=True)
class TeammateTools:
    """Makes the tools of one teammate, and runs its subagents."""

    env: Environment
    model: TeammateModel

    def all(self) -> Iterator[Tool[Any]]:
        """Yield them in the order in which the model reads of them."""
        env, name = self.env, self.env.name
        yield from self._workspace_tools(self._versions())
        yield SendMessage(
            env.post, name, lambda text: env.conversation.talk.receivers(text, time.time())
        )
        yield ReadInbox(env.mailbox)
        yield from board_tools(self.board, env.plans.begin_task)
        if not env.leads:
            talk, above = env.conversation, partial(env.post.above, name)
            task, secret = (lambda: talk.task), (lambda: talk.opened.secret)
            yield SubmitPlan(env.approvals, name, task, secret, above)
        yield ShutdownResponse(env.approvals, name, env.reporter.report_answer)
        yield BackgroundRun(self._jobs, partial(self._bash.start, background=True))
        yield CheckBackground(self._jobs, output_bytes=env.settings.tools.output_bytes)
        yield StopBackground(self._jobs)
        yield self._load_skill
        if env.leads:
            yield from self._lead_tools()

    def news(self) -> Iterator[NewsAdded]:
        """Yield the jobs that have ended, told already or not."""
        for job in self._jobs.all():
            if not job.runs:
                # A number alone may come again, once the files of a folder were removed.
                about = f"job {job.id} of {job.started}"
                yield NewsAdded(about=about, text=render_job(job.id, job.state, job.what))

    def busy(self) -> bool:
        """Return whether the end of the process would end unfinished work."""
        # A key that a command tells may have to be unlocked by a person: once a process is enough.
        return self.env.settings.model.key_command is not None or any(
            job.runs for job in self._jobs.all()
        )

    def find_skills(self) -> list[Skill]:
        """Return the skills that it may load; mistakes in others are logged."""
        folders = skills.folders(self.env.paths.skills, self.env.project)
        found, mistakes = skills.find(folders)
        for mistake in mistakes:
            self.env.journal.error("no skill", mistake)
        return found

    async def delegate(self, prompt: str, role: str, key: str, *, background: bool) -> str:
        """Have a subagent do a task; return the text of its last turn.

        Args:
            prompt: the whole task.
            role: in a word or two.
            key: the tool call's; names the file of the conversation.
            background: whether it has model calls of its own, since it outlasts the wake.

        Raises:
            ToolError: it came to no end.
            UnusableError: the model cannot be asked.
        """
        env = self.env
        directories.make_private_directory(env.paths.subagents)
        path = env.paths.subagents / f"{env.name}-{key}.jsonl"
        conversation = Conversation(Transcript(path, durable=False, check=env.check))
        workspace = env.settings.team.workspace
        system = subagent_prompt(of=env.name, role=role, workspace=workspace)
        conversation.open(Opened(system=system))
        compaction = Compaction(
            conversation=conversation,
            model=self.model.calls_of(conversation, beside=background),
            toolbox=Toolbox(
                [*self._workspace_tools(self._subagent_versions()), self._load_skill],
                permit=env.permissions.check_unasked,
                mask=env.mask,
            ),
            settings=env.settings.model,
            model_name=lambda _: env.settings.model.name,
            effort=lambda _: env.settings.model.effort,
            server=self.model.server,
            facts=self.model.facts,
        )
        calls = CallBudget(self.calls.most) if background else self.calls
        return await run_subagent(compaction, calls, prompt)

    @cached_property
    def calls(self) -> CallBudget:
        """The model calls of one wake, which it shares with its subagents in the foreground."""
        return CallBudget(self.env.settings.limits.calls_per_wake)

    @cached_property
    def board(self) -> Board:
        """The task board in the hands of this teammate."""
        return make_board(self.env)

    def _workspace_tools(self, versions: Versions) -> list[Tool[Any]]:
        env = self.env
        root, most = env.settings.team.workspace, env.settings.tools.output_bytes
        workspace = Workspace(
            root,
            hidden=env.paths.off_limits(root),
            protected=self._protected_places,
            home=env.paths.home_of(env.name),
        )
        return [
            self._bash,
            ReadFile(workspace=workspace, versions=versions, output_bytes=most),
            WriteFile(workspace=workspace, versions=versions),
            EditFile(workspace=workspace, versions=versions),
        ]

    def _versions(self) -> Versions:
        """Return the versions of files that this teammate knows, in its present conversation."""
        env = self.env
        seen = SeenFiles(env.paths.seen(env.name), lambda: env.conversation.opened.nonce)
        return Versions(self._written_files, seen, self._address)

    def _subagent_versions(self) -> Versions:
        """Return those of a subagent: it begins with none, and its reads are its own."""
        return Versions(self._written_files, who=lambda: f"a subagent of {self._address()}")

    @property
    def _written_files(self) -> WrittenFiles:
        return WrittenFiles.of(self.env.settings.team.workspace, self.env.paths)

    def _protected_places(self, root: Path) -> list[ProtectedPath]:
        """Return the places of a workspace that its file tools leave as they are."""
        env, settings = self.env, self.env.settings
        more = settings.tools_of(env.name, env.roster.get(env.name).role).protect
        allowed = settings.places_allowed_to(env.name)
        names = protected_names(root, more, allowed=allowed, may_init=False)
        return find_protected_paths(root, names)

    @cached_property
    def _bash(self) -> Bash:
        env, settings = self.env, self.env.settings
        role = env.role
        tools = settings.tools_of(env.name, role)
        shell = partial(
            build_shell,
            env.paths,
            env.name,
            settings,
            role,
            env.probe,
            goes_on=env.goes_on,
            joins=True,
            origin=env.origin,
        )
        lazy = LazyShell(shell)
        env.at_end.callback(lazy.close)
        return Bash(
            shell=lazy,
            timeout_seconds=tools.bash_timeout_seconds,
            output_bytes=tools.output_bytes,
            mask=env.mask,
        )

    @cached_property
    def _load_skill(self) -> LoadSkill:
        return LoadSkill(self.find_skills, output_bytes=self.env.settings.tools.output_bytes)

    @cached_property
    def _jobs(self) -> Jobs:
        env = self.env
        return Jobs(env.paths.jobs(env.name), ring=env.wakeup.wake, mask=env.mask)

    def _lead_tools(self) -> Iterator[Tool[Any]]:
        env = self.env
        spawn = lead.SpawnTeammate(self._asking)
        yield spawn
        yield lead.ListTeammates(env.roster, env.name, env.hosts)
        yield Broadcast(env.post, env.name)
        yield lead.ShutdownRequest(self._asking(None), env.roster)
        yield from turn_tools(self._asking)
        yield ReviewPlan(env.approvals, self._other_approvals, self._address)
        if env.name in env.settings.tools.approvers:
            yield ReviewPermission(env.approvals, env.name)
        yield lead.DelegateTask(delegate=self.delegate, jobs=self._jobs, spawn=spawn)
        yield lead.CreateTeam(env.paths.home)
        yield lead.DeleteTeam(env.paths, self._address())

    def _address(self) -> str:
        return f"{self.env.name}@{self.env.roster.team_name()}"

    def _asking(self, team: str | None) -> Asking:
        paths, name = self.env.paths, self.env.name
        if team is None:
            return Asking(paths, name)
        there = teams.found(paths.home, team).paths
        return Asking(there, name if there.root == paths.root else self._address())

    def _other_approvals(self) -> Iterator[Approvals]:
        """Yield the stores of approvals of the project's other teams."""
        for paths in all_teams(self.env.paths.home):
            if paths.root != self.env.paths.root:
                yield Approvals(paths, self.env.post_in(paths))


def make_board(env: Environment) -> Board:
    """Return the task board in the hands of a teammate."""
    check = env.settings.tasks.check
    return Board(env.paths, env.post, env.name, check=check, durable=env.durable)
