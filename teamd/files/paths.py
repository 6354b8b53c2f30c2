"""Where everything of a team stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teamd.files import files
from teamd.files.os_errors import translate_os_errors
from teamd.hints import addressed
from teamd.messages import LEAD, TEAM_FOLDER, TEAMS_FOLDER, USER

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS_FILE: Final = "team.toml"


@dataclass(frozen=True, slots=True)
class TeamPaths:
    """The layout of one team directory."""

    root: Path

    @property
    def home(self) -> Path:
        """The project's folder: it holds `.team/`, `.teams/` and `team.toml`."""
        return self.root.parent if self.own_name is None else self.root.parent.parent

    @property
    def own_name(self) -> str | None:
        """The name of a team in `.teams/`; the settings name any other."""
        return self.root.name if self.root.parent.name == TEAMS_FOLDER else None

    def off_limits(self, workspace: Path) -> list[Path]:
        """The folders that are not for tools: its own, and those of other teams within reach.

        Who could write into another team's would be able to approve its own plans there, or to
        send mail in anybody's name.
        """
        folders = {self.home, workspace}
        names = (TEAM_FOLDER, TEAMS_FOLDER)
        return [self.root, *(folder / name for folder in folders for name in names)]

    def addressed(self, text: str) -> str:
        """A sentence of ours about this team, with the commands that it names reaching it."""
        return addressed(text, self.own_name)

    @property
    def settings(self) -> Path:
        """The person's settings, unless another file is named; a team by name may have its own."""
        return self.own_settings if self.own_settings.exists() else self.project_settings

    @property
    def own_settings(self) -> Path:
        """Where it stands who is in this team and no other; for a team by name, in its folder."""
        return self.project_settings if self.own_name is None else self.root / SETTINGS_FILE

    @property
    def project_settings(self) -> Path:
        """The settings of the project."""
        return self.home / SETTINGS_FILE

    @property
    def config(self) -> Path:
        """The roster."""
        return self.root / "config.json"

    @property
    def config_lock(self) -> Path:
        """Guards the roster's read-modify-write."""
        return self.root / "config.lock"

    @property
    def ledger(self) -> Path:
        """What model calls have taken, and may take."""
        return self.root / "ledger.jsonl"

    @property
    def supervisor(self) -> Path:
        """Locked for as long as a supervisor lives; says which process it is."""
        return self.root / "teamd.pid"

    @property
    def inboxes(self) -> Path:
        """The folder of all mail that is under way."""
        return self.root / "inbox"

    def inbox(self, name: str) -> Path:
        """Undelivered messages of `name`."""
        return self.inboxes / f"{name}.jsonl"

    def has_mail(self, name: str) -> bool:
        """Whether an inbox holds anything, by its size alone."""
        return files.size(self.inbox(name)) > 0

    def taken(self, name: str) -> Path:
        """What `name` took from its inbox and has not put into its conversation yet."""
        return self.inboxes / f"{name}.taken.jsonl"

    def rejected(self, name: str) -> Path:
        """Lines of `name`'s inbox that were no message."""
        return self.inboxes / f"{name}.rejected.jsonl"

    @property
    def transcripts(self) -> Path:
        """The folder of the conversations."""
        return self.root / "transcripts"

    def transcript(self, name: str) -> Path:
        """The conversation of `name`."""
        return self.transcripts / f"{name}.jsonl"

    def delivered(self, name: str) -> tuple[Path, ...]:
        """Where mail to `name` may stand in the end; the person's is kept once it was shown.

        The person is `lead` or, while there is an agent that leads, `user`.
        """
        places = {LEAD: (LEAD, USER), USER: (USER,)}.get(name, (name,))
        return tuple(map(self.transcript, places))

    def partial(self, name: str) -> Path:
        """What `name`'s model has said so far of a reply that is under way."""
        return self.transcripts / f"{name}.partial"

    @property
    def chat_history(self) -> Path:
        """What the person has typed to the lead."""
        return self.root / "chat.history"

    @property
    def chat_mark(self) -> Path:
        """How much of the lead's conversation a person has been shown, in bytes."""
        return self.root / "chat.mark"

    @property
    def tasks(self) -> Path:
        """The folder of the board, one file a task."""
        return self.root / "tasks"

    def task(self, task_id: str) -> Path:
        """One task of the board."""
        return self.tasks / f"{task_id}.json"

    @property
    def tasks_lock(self) -> Path:
        """Guards every change to the board; holds the last id that was given."""
        return self.tasks / "board.lock"

    @property
    def replies(self) -> Path:
        """The folder of the supervisor's answers, one file a request."""
        return self.root / "replies"

    @property
    def requests(self) -> Path:
        """The folder of questions that somebody answers, one file each."""
        return self.root / "requests"

    def request(self, question: str) -> Path:
        """A question and its answer."""
        return self.requests / f"{question}.json"

    @property
    def requests_lock(self) -> Path:
        """Guards every question's read-modify-write."""
        return self.root / "requests.lock"

    @property
    def call_slots(self) -> Path:
        """The folder of locks that bound the team's concurrent model calls."""
        return self.root / "calls"

    @property
    def lives(self) -> Path:
        """The folder of locks that keep two processes from being one teammate."""
        return self.root / "lives"

    def life(self, name: str) -> Path:
        """Locked by the process of `name` for as long as it lives."""
        return self.lives / f"{name}.lock"

    @property
    def reading(self) -> Path:
        """Locked while the person's mail is being shown, so that two do not show the same."""
        return self.inboxes / "reading.lock"

    @property
    def all_jobs(self) -> Path:
        """The folder of everybody's background jobs."""
        return self.root / "jobs"

    def jobs(self, name: str) -> Path:
        """The folder of `name`'s background jobs."""
        return self.all_jobs / name

    @property
    def subagents(self) -> Path:
        """The folder of the conversations of subagents."""
        return self.root / "subagents"

    @property
    def agents(self) -> Path:
        """The folder of the team's role files."""
        return self.root / "agents"

    @property
    def skills(self) -> Path:
        """The folder of the team's skills."""
        return self.root / "skills"

    @property
    def logs(self) -> Path:
        """The folder of the logs."""
        return self.root / "logs"

    def log(self, name: str) -> Path:
        """The log of a teammate, or of `teamd`."""
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Make whatever of the layout is not there yet, private to its owner.

        Raises:
            StoreError: the place belongs to another user, is read-only, full, …
        """
        files.make_private_directory(self.root)
        files.check_owner(self.root)
        for folder in (
            self.inboxes,
            self.transcripts,
            self.tasks,
            self.replies,
            self.requests,
            self.call_slots,
            self.lives,
            self.logs,
        ):
            files.make_private_directory(folder)
        files.ignore(self.root)
        for name in (LEAD, USER):  # before a program of others makes them
            files.append(self.inbox(name), b"", durable=False)
        self.make_durable()

    def make_durable(self) -> None:
        """Make the names in a team directory safe: of its folders, and of the files in them.

        Whoever made them may have been killed at that, may have worked without durability, or be a
        program that knows nothing of ours, such as one that puts mail into an inbox.
        """
        for folder in (self.inboxes, self.transcripts, self.tasks, self.requests):
            if files.is_directory(folder):
                with translate_os_errors(folder):
                    files.sync_directory(folder)
        files.sync_names(self.root)
