"""The paths of everything that belongs to a team."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from teamd.errors import StoreError, translate_os_errors
from teamd.files import directories, files
from teamd.messages import (
    LEAD,
    NAME,
    RESERVED,
    TEAM_FOLDER,
    TEAMS_FOLDER,
    USER,
    add_team_option,
    team_command,
)

SETTINGS_FILE: Final = "team.toml"
_LONGEST_NAME: Final = 40  # of a team that is called like its folder
STATE_VARIABLE: Final = "XDG_STATE_HOME"


def home_folder() -> Path | None:
    """Return the person's home; `None` if neither HOME nor the user database names one.

    A relative path is ignored, because it would depend on the current folder.
    """
    given = Path(os.environ.get("HOME", ""))
    if given.is_absolute():
        return given
    try:
        known = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # a container that runs under an arbitrary uid
        return None
    return known if known.is_absolute() else None


def user_name() -> str:
    """Return this process's user name, or the uid if the user database does not know it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def state_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder for a person's decisions, which lies outside all projects.

    It is `$XDG_STATE_HOME/teamd` or `~/.local/state/teamd`; `None` if there is no home.
    """
    given = Path(environment.get(STATE_VARIABLE, ""))
    if given.is_absolute():  # the XDG specification ignores relative paths
        return given / "teamd"
    home = Path(environment.get("HOME", ""))
    return home / ".local" / "state" / "teamd" if home.is_absolute() else None


def trust_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder that records trusted settings; `None` if there is no state folder."""
    state = state_folder(environment)
    return None if state is None else state / "trust"


def known_teams_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder that lists this user's teams; `None` if there is no state folder."""
    state = state_folder(environment)
    return None if state is None else state / "teams"


def workspaces_folder(team: TeamPaths) -> Path:
    """Return the folder for records about workspaces, which all teams of this user share.

    If the state folder is not writable, return a folder of this team. Two teams in one workspace
    then do not know of each other.
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
    """Make git ignore a directory, unless it has a `.gitignore` already."""
    path = directory / ".gitignore"
    if not files.exists(path):
        files.replace(path, b"*\n", durable=False)


class _Place:
    """A path with a fixed name in every team directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: TeamPaths, owner: type[TeamPaths]) -> Path:
        return _join(paths.root, self._name)


@lru_cache(maxsize=256)  # each step of a teammate needs several, and joining a path takes 10 us
def _join(root: Path, name: str) -> Path:
    return root / name


@dataclass(frozen=True, slots=True)
class TeamPaths:
    """The layout of one team directory."""

    root: Path

    config = _Place("config.json")  # the roster
    config_lock = _Place("config.lock")  # guards the roster's read-modify-write
    ledger = _Place("ledger.jsonl")  # the usage and reservations of model calls
    # Locked while a supervisor runs; contains its process id.
    supervisor = _Place("teamd.pid")
    inboxes = _Place("inbox")  # the inboxes of all members
    transcripts = _Place("transcripts")  # the conversations
    chat_history = _Place("chat.history")  # the lines that the person typed to the lead
    # How many bytes of the lead's conversation the person has seen.
    chat_mark = _Place("chat.mark")
    seen_mark = _Place("seen.mark")  # changed when the person looks at the team's work
    tasks = _Place("tasks")  # the task board, one file a task
    # Guards every change to the board; contains the last task id.
    tasks_lock = _Place("tasks/board.lock")
    # The merge queue; it is in the board's folder, so that watchers of the board see it change.
    queue = _Place("tasks/queue.json")
    queue_lock = _Place("tasks/queue.lock")  # guards every change to the queue
    replies = _Place("replies")  # the supervisor's answers, one file a request
    requests = _Place("requests")  # questions and their answers, one file each
    requests_lock = _Place("requests.lock")  # guards every question's read-modify-write
    lives = _Place("lives")  # locks that allow one process per teammate
    # Locked while the person's mail is being shown, so that no mail is shown twice.
    reading = _Place("inbox/reading.lock")
    all_jobs = _Place("jobs")  # background jobs, by teammate
    subagents = _Place("subagents")  # the conversations of subagents
    agents = _Place("agents")  # the team's role files
    skills = _Place("skills")  # the team's skills
    logs = _Place("logs")  # the logs
    activities = _Place("activity")  # each teammate's current activity, one file each
    all_seen = _Place("seen")  # the file versions that each teammate has read
    checks = _Place("checks")  # the locks and clones of running checks
    homes = _Place("homes")  # the home folders for teammates' commands
    removed = _Place("removed")  # files that commands created at protected paths
    models = _Place("models")  # model data from servers, see `teamd.model_server.pages`
    hosts = _Place("hosts")  # data about other hosts, see `teamd.hosts`
    work = _Place("work")  # teammates' working copies, each beside its record
    last_words = _Place("logs/teamd.stderr")  # Python's output when logging fails

    @property
    def home(self) -> Path:
        """The project's folder: it holds `.team/`, `.teams/` and `team.toml`."""
        return self.root.parent if self.own_name is None else self.root.parent.parent

    @property
    def own_name(self) -> str | None:
        """The name of a team in `.teams/`; `None` for a team whose settings name it."""
        return self.root.name if self.root.parent.name == TEAMS_FOLDER else None

    @property
    def default_name(self) -> str:
        """The name of a new team: that of `.teams/NAME`, or made of the name of its folder."""
        if self.own_name is not None:
            return self.own_name
        name = re.sub(r"[^a-z0-9_-]+", "-", self.home.resolve().name.lower())
        name = name.strip("-")[:_LONGEST_NAME]
        return name if NAME.fullmatch(name) and name not in RESERVED else "team"

    def off_limits(self, workspace: Path) -> list[Path]:
        """Return the folders that tools must not use: those of this team and of teams nearby.

        With access to another team's folder, a tool could approve plans or send mail in anyone's
        name. With access to the state folder it could mark its own settings as trusted.
        """
        folders = {self.home, workspace}
        names = (TEAM_FOLDER, TEAMS_FOLDER)
        state = state_folder()
        beside = [] if state is None else [state]
        return [self.root, *beside, *(folder / name for folder in folders for name in names)]

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The files at the top level of a team directory; some are only created when needed."""
        read = (self.config, self.ledger, self.supervisor, self.chat_history, self.chat_mark)
        return (*read, self.seen_mark, self.config_lock, self.requests_lock)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that every team directory has."""
        kept = (self.inboxes, self.transcripts, self.tasks, self.replies, self.requests)
        return (*kept, self.lives, self.logs, self.activities)

    def add_team_option(self, text: str) -> str:
        """Add `--team` to the commands in a sentence, if this team needs the option."""
        return add_team_option(text, self.own_name)

    def team_command(self, command: str) -> str:
        """Return a command such as `teamctl inbox`, with `--team` if this team needs the option."""
        return team_command(command, self.own_name)

    @property
    def settings(self) -> Path:
        """The default settings file: the team's own if it exists, otherwise the project's."""
        own = self.own_settings
        return own if os.path.lexists(own) else self.project_settings

    @property
    def own_settings(self) -> Path:
        """The settings file of this team alone; a team in `.teams/` has it in its own folder."""
        return self.project_settings if self.own_name is None else self.root / SETTINGS_FILE

    @property
    def project_settings(self) -> Path:
        return self.home / SETTINGS_FILE

    def inbox(self, name: str) -> Path:
        """Return the path of undelivered messages to `name`."""
        return self.inboxes / f"{name}.jsonl"

    def has_mail(self, name: str) -> bool:
        """Return whether an inbox holds any data, by its size alone."""
        return files.size(_join(self.inboxes, f"{name}.jsonl")) > 0  # called at every hint

    def taken(self, name: str) -> Path:
        """Return the path of mail that `name` has taken but not yet put into its conversation."""
        return self.inboxes / f"{name}.taken.jsonl"

    def rejected(self, name: str) -> Path:
        """Return the path of lines in `name`'s inbox that were not messages."""
        return self.inboxes / f"{name}.rejected.jsonl"

    def transcript(self, name: str) -> Path:
        """Return the path of the conversation of `name`."""
        return self.transcripts / f"{name}.jsonl"

    def delivered(self, name: str) -> tuple[Path, ...]:
        """Return the files that mail to `name` may be delivered to.

        The person's mail goes to `lead` or, while an agent leads the team, to `user`.
        """
        places = {LEAD: (LEAD, USER), USER: (USER,)}.get(name, (name,))
        return tuple(map(self.transcript, places))

    def partial(self, name: str) -> Path:
        """Return the path of the unfinished reply of `name`'s model."""
        return self.transcripts / f"{name}.partial"

    def task(self, task_id: str) -> Path:
        """Return the path of a task."""
        return self.tasks / f"{task_id}.json"

    def request(self, question: str) -> Path:
        """Return the path of the file that holds a question and its answer."""
        return self.requests / f"{question}.json"

    def life(self, name: str) -> Path:
        """Return the file that the process of `name` keeps locked while it lives."""
        return self.lives / f"{name}.lock"

    def activity(self, name: str) -> Path:
        """Return the path of the current activity of `name`."""
        return self.activities / f"{name}.json"

    def jobs(self, name: str) -> Path:
        """Return the folder of `name`'s background jobs."""
        return self.all_jobs / name

    def seen(self, name: str) -> Path:
        """Return the path of the file versions that `name` has read or written, see `versions`."""
        return self.all_seen / f"{name}.jsonl"

    def check_lock(self, task_id: str) -> Path:
        """Return the file that the process checking a task keeps locked."""
        return self.checks / f"{task_id}.lock"

    def check_place(self, task_id: str) -> Path:
        """Return the folder in which a task is checked, if that is not the workspace."""
        return self.checks / task_id

    def checker_name(self, task_id: str) -> str:
        """Return the name for a check's home and process group; the dot rules out a teammate's."""
        return f"check.{task_id}"

    def home_of(self, name: str) -> Path:
        """Return the home folder for `name`'s commands."""
        return self.homes / name / "home"

    def temporary(self, name: str) -> Path:
        """Return the folder for temporary files of `name`'s commands."""
        return self.homes / name / "tmp"

    def copy(self, name: str) -> Path:
        """Return the working copy of `name`."""
        return self.work / name

    def log(self, name: str) -> Path:
        """Return the log of a teammate or of `teamd`."""
        return self.logs / f"{name}.log"

    def note_seen(self) -> None:
        """Record that the person looks at the team's work now; if that fails, a notice repeats."""
        with suppress(StoreError):
            files.replace(self.seen_mark, b"", durable=False)

    def create(self) -> None:
        """Create the missing parts of the layout, accessible to the owner only.

        Raises:
            StoreError: the folder belongs to another user, is read-only, full, …
        """
        self._refuse_other_folders()
        for folder in (self.root, *self.folders):
            directories.make_private_directory(folder)
            directories.check_owner(folder)
            if self.root.name == TEAM_FOLDER or self.own_name is not None:
                directories.close_directory(folder)  # any other folder may be the person's own
        ignore(self.root)
        for name in (LEAD, USER):  # before a foreign program creates them
            files.append(self.inbox(name), b"", durable=False)
        self.make_durable()

    def _refuse_other_folders(self) -> None:
        """Refuse a non-empty folder that is not a team's: it was probably named by mistake."""
        of_teams = self.root.name == TEAM_FOLDER or self.own_name is not None
        there = directories.is_directory(self.inboxes)
        if not of_teams and not there and directories.holds_anything(self.root):
            raise StoreError(
                f"{self.root} contains something other than a team; name a folder that is new or "
                "empty"
            )

    def make_durable(self) -> None:
        """Sync the names of a team's folders and of the files in them.

        Their creator may have been killed before a sync, may have run without durability, or may be
        a foreign program that puts mail into an inbox.
        """
        for folder in (self.inboxes, self.transcripts, self.tasks, self.requests):
            if directories.is_directory(folder):
                with translate_os_errors(folder):
                    directories.sync_directory(folder)
        directories.sync_names(self.root)
