"""What a teammate works with: the model it asks, and the tools that its model may use."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from teamd.agent.allowance import Allowance
from teamd.agent.conversation import Conversation
from teamd.agent.errands import Errands
from teamd.agent.gauge import Room
from teamd.agent.intake import News
from teamd.agent.limits import Metered
from teamd.agent.open_work import OnRecord
from teamd.agent.partial import Audible
from teamd.agent.prompts import render_job, subagent_prompt
from teamd.agent.subagent import Subagent
from teamd.agent.turnstile import Turnstile
from teamd.approvals.store import Approvals
from teamd.identity import Identity
from teamd.models.retry import Patience, Retrying
from teamd.models.scripted import Scripted
from teamd.protocol import LEAD
from teamd.settings import skills
from teamd.store import files, teams
from teamd.store.board import Board
from teamd.store.ledger import Ledger
from teamd.store.places import all_teams
from teamd.store.post import Post
from teamd.store.roster import Roster
from teamd.store.transcript import Transcript
from teamd.tools import Toolbox
from teamd.tools.approval import ReviewPlan, ShutdownResponse, SubmitPlan
from teamd.tools.asking import Asking
from teamd.tools.background import Jobs
from teamd.tools.board import board_tools
from teamd.tools.filesystem import EditFile, ReadFile, WriteFile
from teamd.tools.jobs import BackgroundRun, CheckBackground, StopBackground
from teamd.tools.lead import Broadcast, ListTeammates, ShutdownRequest, SpawnTeammate
from teamd.tools.mail import ReadInbox, SendMessage
from teamd.tools.shell import Bash
from teamd.tools.skills import LoadSkill
from teamd.tools.task import Task
from teamd.tools.teams import CreateTeam, DeleteTeam
from teamd.tools.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from teamd.agent.counts import Known
    from teamd.agent.plans import Plans
    from teamd.journal import Journal
    from teamd.models import Model
    from teamd.settings import Settings
    from teamd.settings.skills import Skill
    from teamd.store.mailbox import Mailbox
    from teamd.store.paths import TeamPaths
    from teamd.tools import Tool


@dataclass(frozen=True, kw_only=True)
class Outfit:
    """The model and the tools of one teammate.

    Attributes:
        conversation: its own; its subagents have theirs.
        ring: wakes the teammate, such as when one of its jobs has ended.
        say_answered: has the supervisor look at an answer to one of its questions.
        check: forbids to write a conversation where the team directory is another one by now.
    """

    name: str
    paths: TeamPaths
    settings: Settings
    conversation: Conversation
    journal: Journal
    post: Post
    mailbox: Mailbox
    approvals: Approvals
    plans: Plans
    ring: Callable[[], None]
    say_answered: Callable[[str], None]
    check: Callable[[], None]

    @cached_property
    def leads(self) -> bool:
        """Whether it is the agent that leads: by who it is, not by what anybody asks."""
        return self.name == LEAD

    @cached_property
    def model(self) -> Model:
        """Whoever the settings name, asked with patience, by few at a time, within the limits."""
        # A person reads along where it leads, but not what its subagents say to it.
        partial = self.paths.partial(self.name)
        metered = self._metered(self.conversation.known)
        return self._patient(Audible(metered, partial) if self.leads else metered)

    @property
    def room(self) -> Room:
        """How long its conversation, or that of a subagent, may become."""
        chosen = self.settings.model
        return Room(
            context_tokens=chosen.context_tokens,
            clear_at=chosen.clear_at,
            compact_at=chosen.compact_at,
        )

    def _metered(self, known: Sequence[Known] = ()) -> Model:
        """One for each conversation: the calls of another say nothing about the next of it."""
        metered = Metered(
            self._answering,
            self._ledger,
            name=self.name,
            process=Identity.own(),
            free=self.settings.model.script is not None,
            server=self._server,
            known=known,
        )
        return Turnstile(metered, self.paths.call_slots, self.settings.model.concurrent_calls)

    def _patient(self, model: Model) -> Model:
        return Retrying(model, self._patience(), tell=self._note_retry)

    def toolbox(self) -> Toolbox:
        """All its tools, in the order in which its model reads of them."""
        return Toolbox(
            [
                self._bash,
                *self._file_tools(),
                *self._mail_tools(),
                *board_tools(self._board(), self.plans.begin_task),
                *self._approval_tools(),
                *self._job_tools(),
                self._load_skill,
                *(self._lead_tools() if self.leads else ()),
            ],
            gate=self.plans.refusal,
        )

    @cached_property
    def calls(self) -> Allowance:
        """The model calls of one wake, which it shares with its subagents in the foreground."""
        return Allowance(self.settings.limits.calls_per_wake)

    async def delegate(self, prompt: str, role: str, key: str, *, background: bool) -> str:
        """Have a subagent do a task; returns the text of its last turn.

        Args:
            prompt: the whole task.
            role: in a word or two.
            key: the tool call's; names the file of the conversation.
            background: whether it has model calls of its own, since it outlasts the wake.

        Raises:
            ToolError: it came to no end.
            UnusableError: the model cannot be asked.
        """
        files.make_private_directory(self.paths.subagents)
        path = self.paths.subagents / f"{self.name}-{key}.jsonl"
        subagent = Subagent(
            conversation=Conversation(Transcript(path, durable=False, check=self.check)),
            model=self._patient(self._metered()),
            model_name=self.settings.model.name,
            toolbox=Toolbox([self._bash, *self._file_tools(), self._load_skill]),
            calls=Allowance(self.calls.most) if background else self.calls,
            max_tokens=self.settings.model.max_tokens,
            room=self.room,
        )
        workspace = self.settings.team.workspace
        system = subagent_prompt(of=self.name, role=role, workspace=workspace)
        return await subagent.run(system, prompt)

    def skills(self) -> list[Skill]:
        """Those that it may load; what is wrong with others stands in its log."""
        workspace = self.settings.team.workspace
        found, mistakes = skills.find(skills.folders(self.paths.skills, workspace))
        for mistake in mistakes:
            self.journal.error("no skill", mistake)
        return found

    def news(self) -> Iterator[News]:
        """What has happened beside its conversation, told already or not: jobs that ended."""
        for job in self._jobs.all():
            if not job.runs:
                # A number alone may come again, once the files of a folder were removed.
                about = f"job {job.id} of {job.started}"
                yield News(about=about, text=render_job(job.id, job.state, job.what))

    @cached_property
    def _load_skill(self) -> LoadSkill:
        return LoadSkill(self.skills, output_bytes=self.settings.tools.output_bytes)

    @cached_property
    def _jobs(self) -> Jobs:
        return Jobs(self.paths.jobs(self.name), ring=self.ring)

    @cached_property
    def _bash(self) -> Bash:
        tools = self.settings.tools
        return Bash(
            workspace=self.settings.team.workspace,
            environment={key: os.environ[key] for key in tools.env if key in os.environ},
            timeout_seconds=tools.bash_timeout_seconds,
            output_bytes=tools.output_bytes,
        )

    def fetch(self) -> Callable[[], bool]:
        """How it looks for work while it idles, see `Loop`."""
        if self.leads or not self.settings.tasks.auto_claim:
            return lambda: False
        return Errands(self._board(), self._role, self.journal).fetch

    def open_work(self) -> OnRecord:
        """What a summary of its conversation restates."""
        return OnRecord(self._board(), self.approvals, Roster(self.paths), self.name)

    @property
    def _server(self) -> str:
        """Whoever answers, by all that a request depends on besides its own words."""
        chosen = self.settings.model
        url = chosen.base_url or os.environ.get("ANTHROPIC_BASE_URL")
        return json.dumps([str(chosen.script), url, dict(chosen.headers)])

    @cached_property
    def _ledger(self) -> Ledger:
        return Ledger(self.paths.ledger)

    @cached_property
    def _answering(self) -> Model:
        chosen = self.settings.model
        if chosen.script is not None:
            return Scripted(chosen.script)
        from teamd.models import claude  # noqa: PLC0415 -- loaded before the fork

        return claude.Claude(
            base_url=chosen.base_url,
            key_command=chosen.key_command,
            headers=chosen.headers,
            timeout_seconds=chosen.timeout_seconds,
            cache=chosen.cache,
            tls=claude.shared_tls(),
        )

    def _patience(self) -> Patience:
        chosen = self.settings.model
        return Patience(
            attempts=chosen.attempts,
            longest_seconds=chosen.retry_seconds,
            rest_seconds=chosen.rest_seconds,
        )

    def _board(self) -> Board:
        durable = self.settings.mail.durability == "disk"
        return Board(self.paths, self.post, self.name, durable=durable)

    def _role(self) -> str:
        return Roster(self.paths).read().get(self.name).role

    def _note_retry(self, reason: str, seconds: float) -> None:
        self.journal.warn(
            "model call failed, trying again", reason=reason, seconds=round(seconds, 1)
        )

    def _file_tools(self) -> Iterator[Tool[Any]]:
        root = self.settings.team.workspace
        workspace = Workspace(root, hidden=self.paths.off_limits(root))
        yield ReadFile(workspace=workspace, output_bytes=self.settings.tools.output_bytes)
        yield WriteFile(workspace=workspace)
        yield EditFile(workspace=workspace)

    def _mail_tools(self) -> Iterator[Tool[Any]]:
        yield SendMessage(self.post, self.name)
        yield ReadInbox(self.mailbox)

    def _job_tools(self) -> Iterator[Tool[Any]]:
        yield BackgroundRun(self._jobs, self._bash.start)
        yield CheckBackground(self._jobs, output_bytes=self.settings.tools.output_bytes)
        yield StopBackground(self._jobs)

    def _lead_tools(self) -> Iterator[Tool[Any]]:
        spawn = SpawnTeammate(self._asking)
        roster = Roster(self.paths)
        yield spawn
        yield ListTeammates(roster, self.name)
        yield Broadcast(self.post, self.name)
        yield ShutdownRequest(self._asking(None), roster)
        yield ReviewPlan(self.approvals, self._elsewhere, lambda: self._address)
        yield Task(delegate=self.delegate, jobs=self._jobs, spawn=spawn)
        yield CreateTeam(self.paths.home)
        yield DeleteTeam(self.paths, self._address)

    @property
    def _address(self) -> str:
        return f"{self.name}@{Roster(self.paths).read().name}"

    def _asking(self, team: str | None) -> Asking:
        if team is None:
            return Asking(self.paths, self.name)
        there = teams.found(self.paths.home, team).paths
        own = there.root == self.paths.root
        return Asking(there, self.name if own else self._address)

    def _elsewhere(self) -> Iterator[Approvals]:
        """What is asked in the other teams of the project."""
        mail = self.settings.mail
        for paths in all_teams(self.paths.home):
            if paths.root != self.paths.root:
                durable = mail.durability == "disk"
                post = Post(paths, durable=durable, max_bytes=mail.max_message_bytes)
                yield Approvals(paths, post)

    def _approval_tools(self) -> Iterator[Tool[Any]]:
        if not self.leads:
            above = partial(self.post.above, self.name)
            yield SubmitPlan(self.approvals, self.name, self.plans.task, above)
        yield ShutdownResponse(self.approvals, self.name, self.say_answered)
