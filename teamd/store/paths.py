"""Where everything of a team stands, and how a team is found from a folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamd.errors import NoTeam
from teamd.protocol import LEAD, USER
from teamd.store import files

TEAM_FOLDER: Final = ".team"
SETTINGS_FILE: Final = "team.toml"


@dataclass(frozen=True, slots=True)
class TeamPaths:
    """The layout of one team directory."""

    root: Path

    @property
    def home(self) -> Path:
        """The folder that holds the team directory, and `team.toml`."""
        return self.root.parent

    @property
    def settings(self) -> Path:
        """The person's settings, unless another file is named."""
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

    def delivered(self, name: str) -> Path:
        """Where mail to `name` stands in the end; the person's is kept once it was shown."""
        return self.transcript(USER if name == LEAD else name)

    @property
    def replies(self) -> Path:
        """The folder of the supervisor's answers, one file a request."""
        return self.root / "replies"

    @property
    def call_slots(self) -> Path:
        """The folder of locks that bound the team's concurrent model calls."""
        return self.root / "calls"

    @property
    def lives(self) -> Path:
        """The folder of locks that keep two processes from being one teammate."""
        return self.root / "lives"

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
            self.replies,
            self.call_slots,
            self.lives,
            self.logs,
        ):
            files.make_private_directory(folder)
        ignore = self.root / ".gitignore"
        if not files.exists(ignore):
            files.replace(ignore, b"*\n")


def named(team_directory: str | None) -> TeamPaths | None:
    """The team that `--team-dir` or `TEAMD_DIR` names, if either does."""
    chosen = team_directory or os.environ.get("TEAMD_DIR")
    if not chosen:
        return None
    try:
        return TeamPaths(Path(chosen).expanduser().resolve())
    except (OSError, RuntimeError, ValueError) as error:  # no such user; links in a circle; a NUL
        raise NoTeam(f"{chosen!r} cannot be a team directory: {error}") from error


def discover(start: Path) -> TeamPaths | None:
    """Look for `.team/` in `start` and in each folder above it, as git looks for `.git/`.

    Raises:
        StoreError: the one that is found belongs to another user.
    """
    for folder in (start, *start.parents):
        candidate = folder / TEAM_FOLDER
        if files.is_directory(candidate):
            files.check_owner(candidate)
            return TeamPaths(candidate)
    return None


def existing(team_directory: str | None) -> TeamPaths:
    """The team that a command means.

    Raises:
        NoTeam: there is none.
        StoreError: it belongs to another user.
    """
    chosen = named(team_directory)
    if chosen is None:
        found = discover(_here())
        if found is None:
            raise NoTeam(f"no .team/ in {_here()} or above it; `teamd start` makes one here")
        return found
    if not files.is_directory(chosen.root):
        raise NoTeam(f"there is no team directory {chosen.root}; `teamd start` makes it")
    files.check_owner(chosen.root)
    return chosen


def existing_or_here(team_directory: str | None) -> TeamPaths:
    """The team that `teamd start` means: the one that is found, else a new one right here."""
    chosen = named(team_directory) or discover(_here()) or TeamPaths(_here() / TEAM_FOLDER)
    if files.exists(chosen.root) and not files.is_directory(chosen.root):
        raise NoTeam(f"{chosen.root} is no folder; move it away, or name another team directory")
    return chosen


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise NoTeam("the current folder has been removed; `cd` to another one") from error
