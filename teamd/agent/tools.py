"""Makes the tools of one teammate, and runs its subagents."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from teamd.agent.conversation.compaction import Compaction
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.prompts import render_job, subagent_prompt
from teamd.agent.environment import Environment
from teamd.agent.model_calls import TeammateModel
from teamd.agent.turn import run_subagent
from teamd.agent.wakeup import CallBudget
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.control import Asking
from teamd.files import directories
from teamd.files.find_team import all_teams
from teamd.sandbox.build import LazyShell, build_shell
from teamd.sandbox.protected_paths import ProtectedPath, find_protected_paths, protected_names
from teamd.settings import skills
from teamd.settings.skills import Skill
from teamd.team import teams
from teamd.tools import Toolbox, load_tools
from teamd.tools.background import Jobs
from teamd.tools.context import ToolContext
from teamd.tools.versions import SeenFiles, Versions, WrittenFiles
from teamd.tools.workspace import Workspace
from teamd.transcript.file import Transcript
from teamd.transcript.records import NewsAdded, Opened


@dataclass(frozen=True)
class TeammateTools:
    """Makes the tools of one teammate, and runs its subagents."""

    env: Environment
    model: TeammateModel

    @cached_property
    def context(self) -> ToolContext:
        """Everything that the teammate's tools are made from."""
        env, talk = self.env, self.env.conversation
        root, tools = env.settings.team.workspace, env.settings.tools
        leading = {"lead", "approver"} if env.name in tools.approvers else {"lead"}
        return ToolContext(
            member=env.name,
            holder=frozenset(leading if env.leads else {"teammate"}),
            paths=env.paths,
            shell=self._shell(),
            pushes=env.pushes,
            timeout_seconds=tools.bash_timeout_seconds,
            output_bytes=tools.output_bytes,
            mask=env.mask,
            workspace=Workspace(
                root,
                hidden=env.paths.off_limits(root),
                protected=self._protected_places,
                home=env.paths.home_of(env.name),
            ),
            versions=Versions(
                self._written_files,
                SeenFiles(env.paths.seen(env.name), lambda: talk.opened.nonce),
                self._address,
            ),
            jobs=Jobs(env.paths.jobs(env.name), ring=env.wakeup.wake, mask=env.mask),
            skills=self.find_skills,
            post=env.post,
            mailbox=env.mailbox,
            receivers=lambda text: talk.talk.receivers(text, time.time()),
            board=self.board,
            begin_task=env.plans.begin_task,
            approvals=env.approvals,
            current_task=lambda: talk.task,
            secret=lambda: talk.opened.secret,
            superior=partial(env.post.above, env.name),
            report_answer=env.reporter.report_answer,
            roster=env.roster,
            hosts=env.hosts,
            asking=self._asking,
            address=self._address,
            other_approvals=self._other_approvals,
            delegate=self.delegate,
        )

    def news(self) -> Iterator[NewsAdded]:
        """Yield the jobs that have ended, whether or not the teammate was told."""
        for job in self.context.jobs.all():
            if not job.runs:
                # A number alone may come again, once the files of a folder were removed.
                about = f"job {job.id} of {job.started}"
                yield NewsAdded(about=about, text=render_job(job.id, job.state, job.what))

    def busy(self) -> bool:
        """Return whether ending the process would cut off unfinished work."""
        # A key that a command tells may have to be unlocked by a person: once a process is enough.
        return self.env.settings.model.key_command is not None or any(
            job.runs for job in self.context.jobs.all()
        )

    def find_skills(self) -> list[Skill]:
        """Return the skills that the teammate may load; errors in other skills are logged."""
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
            ToolError: the subagent did not finish.
            UnusableError: the model cannot be asked.
        """
        env = self.env
        directories.make_private_directory(env.paths.subagents)
        path = env.paths.subagents / f"{env.name}-{key}.jsonl"
        conversation = Conversation(Transcript(path, durable=False, check=env.check))
        workspace = env.settings.team.workspace
        system = subagent_prompt(of=env.name, role=role, workspace=workspace)
        conversation.open(Opened(system=system))
        # It has read no file yet, and its reads are its own.
        versions = Versions(self._written_files, who=lambda: f"a subagent of {self._address()}")
        context = replace(self.context, versions=versions)
        compaction = Compaction(
            conversation=conversation,
            model=self.model.calls_of(conversation, beside=background),
            toolbox=Toolbox(
                [kind.make(context) for kind in load_tools() if kind.facts.for_subagents],
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
        """The task board, as used by this teammate."""
        return make_board(self.env)

    @property
    def _written_files(self) -> WrittenFiles:
        return WrittenFiles.of(self.env.settings.team.workspace, self.env.paths)

    def _protected_places(self, root: Path) -> list[ProtectedPath]:
        """Return the paths of a workspace that the file tools must not change."""
        env, settings = self.env, self.env.settings
        more = settings.tools_of(env.name, env.roster.get(env.name).role).protect
        allowed = settings.places_allowed_to(env.name)
        names = protected_names(root, more, allowed=allowed, may_init=False)
        return find_protected_paths(root, names)

    def _shell(self) -> LazyShell:
        env = self.env
        return LazyShell(
            partial(
                build_shell,
                env.paths,
                env.name,
                env.settings,
                env.role,
                env.probe,
                goes_on=env.goes_on,
                joins=True,
                origin=env.origin,
            )
        )

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
    """Return the task board, as used by a teammate."""
    check = env.settings.tasks.check
    return Board(env.paths, env.post, env.name, check=check, durable=env.durable)
