"""What a supervisor's parts are made from, as the settings of the moment want it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from teamd import settings
from teamd.errors import TeamError
from teamd.protocol import MAX_MESSAGE_BYTES, TEAMD
from teamd.store.board import Board
from teamd.store.ledger import Ledger
from teamd.store.post import Post
from teamd.store.terms import terms_of
from teamd.store.watch import SLOW_SECONDS, watch
from teamd.supervisor.chores import PATIENCE_SECONDS, Chores
from teamd.supervisor.newcomers import Newcomer, Reloaded
from teamd.supervisor.restarts import Tolerance
from teamd.supervisor.vigil import Silence

if TYPE_CHECKING:
    from pathlib import Path

    from teamd.journal import Journal
    from teamd.settings import Settings
    from teamd.store.paths import TeamPaths


_IN_LEDGER: Final = (
    "limits.teammate_tokens",
    "limits.teammate_usd",
    "limits.team_tokens",
    "limits.team_usd",
)


@dataclass(slots=True)
class Parts:
    """What the parts are made from. `settings` changes when they are read again."""

    paths: TeamPaths
    settings_file: Path
    settings: Settings
    journal: Journal
    claim: int

    @property
    def post(self) -> Post:
        """Who delivers mail."""
        mail = self.settings.mail
        return Post(self.paths, durable=mail.durability == "disk", max_bytes=mail.max_message_bytes)

    @property
    def tolerance(self) -> Tolerance:
        """How many crashes are borne."""
        supervision = self.settings.supervision
        return Tolerance(crashes=supervision.crashes, within_seconds=supervision.within_seconds)

    @property
    def silence(self) -> Silence:
        """What is made of one that shows no sign of life."""
        supervision = self.settings.supervision
        return Silence(seconds=supervision.stuck_seconds, restart=supervision.stuck_restart)

    def chores(self) -> Chores:
        """What is done for the task board."""
        board = Board(
            self.paths,
            self.post,
            TEAMD,
            durable=self.settings.mail.durability == "disk",
            patience_seconds=PATIENCE_SECONDS,
        )
        watching = watch(self.paths.tasks)
        return Chores(board, watching, self.journal, round_seconds=SLOW_SECONDS)

    def granted_bytes(self) -> int:
        """How long mail may be that its reader believes, whatever stands in its own settings.

        Senders read the settings file as it is now; and what was sent before the limit was lowered
        was acknowledged, mostly by the limit that holds where none is set.
        """
        try:
            now = settings_of(self.paths, self.settings_file)
        except TeamError:  # a mistake in it: they send nothing by it
            now = self.settings
        return max(now.mail.max_message_bytes, MAX_MESSAGE_BYTES)

    def reload(self) -> Reloaded:
        """Read the settings again; a child that is forked from now on follows them."""
        new = settings_of(self.paths, self.settings_file)
        changed = settings.changes(self.settings, new)
        # First, since it may fail, and then nothing changes.
        Ledger(self.paths.ledger).agree(terms_of(new))
        self.settings = new
        self.journal.note("reloaded", changed=changed)
        lines = [f"{key} has changed: {_when(key)}" for key in changed]
        return Reloaded(tuple(lines), tuple(map(newcomer, new.teammates)))


def settings_of(paths: TeamPaths, file: Path) -> Settings:
    """The settings of a team. Those of the project give other teams no people.

    Args:
        paths: the team.
        file: the one that applied at the start. A team by name that had none of its own takes
            one that was made since, as those do who send to it.

    Raises:
        SettingsError: with every mistake, or why the file cannot be read.
    """
    if file == paths.project_settings:
        file = paths.settings
    found = settings.load(file, folder=paths.home)
    shared = file == paths.project_settings and file != paths.own_settings
    return replace(found, teammates=()) if shared else found


def newcomer(declared: settings.Teammate) -> Newcomer:
    """The one that a `[[teammate]]` declares."""
    return Newcomer(
        name=declared.name,
        role=declared.role,
        prompt=declared.prompt,
        model=declared.model,
        plan=declared.plan,
    )


def _when(key: str) -> str:
    """From when on a changed setting counts."""
    section = key.partition(".")[0]
    if section == "teammate":
        return "who is new is spawned now; who is known keeps role and model"
    if key in _IN_LEDGER or section == "prices":
        return "counts from the next model call on; `teamctl resume` for who is paused"
    if section in ("team", "supervision"):
        return "waits for `teamd restart`"
    return "counts for teammates whose process starts from now on; `teamd restart` reaches all"
