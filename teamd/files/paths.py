"""The paths of everything that belongs to a team."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from teamd.errors import StoreError, translate_os_errors
from teamd.files import directories, files
from teamd.messages import LEAD, TEAM_FOLDER, TEAMS_FOLDER, USER, add_team_option, team_command

SETTINGS_FILE: Final = "team.toml"
STATE_VARIABLE: Final = "XDG_STATE_HOME"


def home_folder() -> Path | None:
    """Return the person's home; `None` where neither HOME nor the user database names one.

    A home that is not an absolute path would depend on the current folder, and is ignored.
    """
    given = Path(os.environ.get("HOME", ""))
    if given.is_absolute():
        return given
    try:
        known = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # a container that runs as any number
        return None
    return known if known.is_absolute() else None


def user_name() -> str:
    """Return the name of this process's user; its number where the user database has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def state_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder where the program keeps what a person decided, outside of all projects.

    That is `$XDG_STATE_HOME/teamd`, else `~/.local/state/teamd`; `None` where there is no home.
    """
    given = Path(environment.get(STATE_VARIABLE, ""))
    if given.is_absolute():  # the specification has others ignored
        return given / "teamd"
    home = Path(environment.get("HOME", ""))
    return home / ".local" / "state" / "teamd" if home.is_absolute() else None


def trust_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return where it stands what a person trusts; `None` where nothing can be kept."""
    state = state_folder(environment)
    return None if state is None else state / "trust"


def known_teams_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return where it stands which teams this user has had; `None` where nothing can be kept."""
    state = state_folder(environment)
    return None if state is None else state / "teams"


def workspaces_folder(team: TeamPaths) -> Path:
    """Return the folder for records about workspaces, which all teams of this user share.

    Where the state folder cannot be written, it is the team's own: two teams in one workspace do
    not know of each other then.
    """
    state = state_folder()
    if state is not None:
        folder = state / "workspaces"
        with suppress(StoreError):
            directories.make_private_directory(folder)
            if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                return folder
    return team.root / "workspaces"


def ignore(directory: Path) -> None:
    """Have git pass a directory over, unless it holds a `.gitignore` already."""
    path = directory / ".gitignore"
    if not files.exists(path):
        files.replace(path, b"*\n", durable=False)


class _Place:
    """A path that is the same in every team directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: TeamPaths, owner: type[TeamPaths]) -> Path:
        return _join(paths.root, self._name)


@lru_cache(maxsize=256)  # every step of a teammate asks for some; to join a path takes 10 us
def _join(root: Path, name: str) -> Path:
    return root / name


@dataclass(frozen=True, slots=True)
class TeamPaths:
    """The layout of one team directory."""

    root: Path

    config = _Place("config.json")  # the roster
    config_lock = _Place("config.lock")  # guards the roster's read-modify-write
    ledger = _Place("ledger.jsonl")  # what model calls have taken, and may take
    # Locked for as long as a supervisor lives; says which process it is.
    supervisor = _Place("teamd.pid")
    inboxes = _Place("inbox")  # the folder of all mail that is under way
    transcripts = _Place("transcripts")  # the folder of the conversations
    chat_history = _Place("chat.history")  # what the person has typed to the lead
    # How much of the lead's conversation a person has been shown, in bytes.
    chat_mark = _Place("chat.mark")
    tasks = _Place("tasks")  # the folder of the board, one file a task
    # Guards every change to the board; holds the last id that was given.
    tasks_lock = _Place("tasks/board.lock")
    queue = _Place("tasks/queue.json")  # the merge queue; whoever watches the board sees it change
    queue_lock = _Place("tasks/queue.lock")  # guards every change to it
    replies = _Place("replies")  # the folder of the supervisor's answers, one file a request
    requests = _Place("requests")  # the folder of questions that somebody answers, one file each
    requests_lock = _Place("requests.lock")  # guards every question's read-modify-write
    lives = _Place("lives")  # the folder of locks that keep two processes from being one teammate
    # Locked while the person's mail is being shown, so that two do not show the same.
    reading = _Place("inbox/reading.lock")
    all_jobs = _Place("jobs")  # the folder of everybody's background jobs
    subagents = _Place("subagents")  # the folder of the conversations of subagents
    agents = _Place("agents")  # the folder of the team's role files
    skills = _Place("skills")  # the folder of the team's skills
    logs = _Place("logs")  # the folder of the logs
    activities = _Place("activity")  # the folder of what everybody does right now, one file each
    all_seen = _Place("seen")  # the folder of what everybody has read of the workspace
    checks = _Place("checks")  # the folder of the locks and clones of checks, while they run
    homes = _Place("homes")  # the folder of the homes that teammates' commands have
    removed = _Place("removed")  # what commands put into protected places
    models = _Place("models")  # what servers say of models, see `teamd.model_server.pages`
    hosts = _Place("hosts")  # all about other hosts, see `teamd.hosts`
    work = _Place("work")  # the folder of teammates' working copies, each beside its record
    last_words = _Place("logs/teamd.stderr")  # what Python prints when all else fails

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
        send mail in anybody's name; into the state folder, to trust settings of its own.
        """
        folders = {self.home, workspace}
        names = (TEAM_FOLDER, TEAMS_FOLDER)
        state = state_folder()
        beside = [] if state is None else [state]
        return [self.root, *beside, *(folder / name for folder in folders for name in names)]

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The files that stand in a team directory itself, of which some are made at need."""
        read = (self.config, self.ledger, self.supervisor, self.chat_history, self.chat_mark)
        return (*read, self.config_lock, self.requests_lock)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that every team directory has."""
        kept = (self.inboxes, self.transcripts, self.tasks, self.replies, self.requests)
        return (*kept, self.lives, self.logs, self.activities)

    def add_team_option(self, text: str) -> str:
        """A sentence of ours about this team, with the commands that it names reaching it."""
        return add_team_option(text, self.own_name)

    def team_command(self, command: str) -> str:
        """Return a command such as `teamctl inbox` with `--team` where this team needs it."""
        return team_command(command, self.own_name)

    @property
    def settings(self) -> Path:
        """The person's settings, unless another file is named; a team by name may have its own."""
        own = self.own_settings
        return own if os.path.lexists(own) else self.project_settings

    @property
    def own_settings(self) -> Path:
        """The settings of this team and no other; those of a team by name are in its folder."""
        return self.project_settings if self.own_name is None else self.root / SETTINGS_FILE

    @property
    def project_settings(self) -> Path:
        """The settings of the project."""
        return self.home / SETTINGS_FILE

    def inbox(self, name: str) -> Path:
        """Undelivered messages of `name`."""
        return self.inboxes / f"{name}.jsonl"

    def has_mail(self, name: str) -> bool:
        """Return whether an inbox holds anything, by its size alone."""
        return files.size(_join(self.inboxes, f"{name}.jsonl")) > 0  # a look at every hint

    def taken(self, name: str) -> Path:
        """The mail that `name` took from its inbox and has not put into its conversation yet."""
        return self.inboxes / f"{name}.taken.jsonl"

    def rejected(self, name: str) -> Path:
        """Lines of `name`'s inbox that were no message."""
        return self.inboxes / f"{name}.rejected.jsonl"

    def transcript(self, name: str) -> Path:
        """The conversation of `name`."""
        return self.transcripts / f"{name}.jsonl"

    def delivered(self, name: str) -> tuple[Path, ...]:
        """The files where mail to `name` may end up; the person's is kept once it was shown.

        The person is `lead` or, while there is an agent that leads, `user`.
        """
        places = {LEAD: (LEAD, USER), USER: (USER,)}.get(name, (name,))
        return tuple(map(self.transcript, places))

    def partial(self, name: str) -> Path:
        """The part that `name`'s model has said so far of a reply that is under way."""
        return self.transcripts / f"{name}.partial"

    def task(self, task_id: str) -> Path:
        """One task of the board."""
        return self.tasks / f"{task_id}.json"

    def request(self, question: str) -> Path:
        """A question and its answer."""
        return self.requests / f"{question}.json"

    def life(self, name: str) -> Path:
        """Locked by the process of `name` for as long as it lives."""
        return self.lives / f"{name}.lock"

    def activity(self, name: str) -> Path:
        """What `name` does right now."""
        return self.activities / f"{name}.json"

    def jobs(self, name: str) -> Path:
        """The folder of `name`'s background jobs."""
        return self.all_jobs / name

    def seen(self, name: str) -> Path:
        """The versions of files that `name` has read or written, see `versions`."""
        return self.all_seen / f"{name}.jsonl"

    def check_lock(self, task_id: str) -> Path:
        """Locked by the process that checks a task."""
        return self.checks / f"{task_id}.lock"

    def check_place(self, task_id: str) -> Path:
        """The folder in which a task is checked, where that is not the workspace."""
        return self.checks / task_id

    def checker_name(self, task_id: str) -> str:
        """The name that a check's home and group of processes go by; no teammate's has a dot."""
        return f"check.{task_id}"

    def home_of(self, name: str) -> Path:
        """The home folder of `name`'s commands."""
        return self.homes / name / "home"

    def temporary(self, name: str) -> Path:
        """The folder for temporary files of `name`'s commands."""
        return self.homes / name / "tmp"

    def copy(self, name: str) -> Path:
        """The working copy of `name`."""
        return self.work / name

    def log(self, name: str) -> Path:
        """The log of a teammate, or of `teamd`."""
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Make whatever of the layout is not there yet, private to its owner.

        Raises:
            StoreError: the place belongs to another user, is read-only, full, …
        """
        self._refuse_other_folders()
        for folder in (self.root, *self.folders):
            directories.make_private_directory(folder)
            directories.check_owner(folder)
            if self.root.name == TEAM_FOLDER or self.own_name is not None:
                directories.close_directory(folder)  # any other may be a folder of the person's
        ignore(self.root)
        for name in (LEAD, USER):  # before a program of others makes them
            files.append(self.inbox(name), b"", durable=False)
        self.make_durable()

    def _refuse_other_folders(self) -> None:
        """Refuse a folder that somebody named by mistake: all in it would become its owner's."""
        of_teams = self.root.name == TEAM_FOLDER or self.own_name is not None
        there = directories.is_directory(self.inboxes)
        if not of_teams and not there and directories.holds_anything(self.root):
            raise StoreError(
                f"{self.root} holds other things than a team; name a folder that is new or empty"
            )

    def make_durable(self) -> None:
        """Make the names in a team directory safe: of its folders, and of the files in them.

        Whoever made them may have been killed at that, may have worked without durability, or be a
        program that knows nothing of ours, such as one that puts mail into an inbox.
        """
        for folder in (self.inboxes, self.transcripts, self.tasks, self.requests):
            if directories.is_directory(folder):
                with translate_os_errors(folder):
                    directories.sync_directory(folder)
        directories.sync_names(self.root)
