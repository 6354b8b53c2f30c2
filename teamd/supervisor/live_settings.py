"""The settings of a running team, which stay in force until they are reloaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from teamd import settings
from teamd.budget.accounts import Terms
from teamd.budget.prices import find_small_limits
from teamd.errors import SettingsError, TeamError
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.messages import MAX_MESSAGE_BYTES
from teamd.settings import Reading, Settings
from teamd.settings.kinds import keys_of
from teamd.settings.schema import PERMISSION, PRICES, ROLE, SECTIONS, TEAMMATE
from teamd.team.heartbeat import HeartbeatPolicy

# A running supervisor follows no change of these.
_FIXED: Final = frozenset(
    {
        "team.name",
        *(f"supervision.{key}" for key in ("stop_seconds", "stuck_seconds", "stuck_restart")),
    }
)


class LiveSettings:
    """One team's settings.

    Attributes:
        now: the settings in force, except those that wait for a restart.
        at_start: the settings that this supervisor started with.
        waiting: a sentence about settings that wait for the person's trust; often empty.

    Args:
        paths: the team.
        file: the settings file that applied at the start; it may be missing.

    Raises:
        SettingsError: with every mistake, or why the file cannot be read.
    """

    def __init__(self, paths: TeamPaths, file: Path) -> None:
        self.paths = paths
        self._file = file
        self.now: Settings
        self.waiting: str
        self.apply(self.read())
        self.at_start = self.now

    def apply(self, found: Reading) -> None:
        """Put settings in force."""
        self.now = found.settings
        config = None if self._file == self.paths.project_settings else self._file
        named = None if config == self.paths.own_settings else config
        self.waiting = self.paths.add_team_option(found.explain_waiting(named))

    def changes_of(self, found: Reading) -> list[str]:
        """Return the keys whose values differ from those in force, in the order of `team.toml`."""
        new = found.settings
        kept = [key for key in changes(self.at_start, new) if key in _FIXED]
        return [*kept, *(key for key in changes(self.now, new) if key not in _FIXED)]

    def note_waiting(self, journal: Journal) -> None:
        """Log which settings wait: a service has no terminal to print them."""
        if self.waiting:
            journal.warn("settings wait for trust", what=self.waiting)

    def read(self) -> Reading:
        """Read the settings file, without the parts that do not apply to this team.

        Teammates and hosts in the project's file apply only to the project's own team. A named team
        that had no settings file of its own uses one that was created since, as its senders do.

        Raises:
            SettingsError: with every mistake, why the file cannot be read, or that a limit is
                too low for any model call.
        """
        found = self._read()
        new = found.settings
        if new.model.asks_server:
            terms = Terms.of(new)
            small = [*find_small_limits(terms, new.models_named, new.model.max_tokens)]
            if small:
                raise SettingsError(self._file, small)
        return found

    def _read(self) -> Reading:
        file = self.paths.settings if self._file == self.paths.project_settings else self._file
        found = settings.read(file, folder=self.paths.home)
        shared = file == self.paths.project_settings and file != self.paths.own_settings
        if not shared:
            return found
        found = found.shared
        return replace(found, settings=replace(found.settings, teammates=()))

    @property
    def heartbeats(self) -> HeartbeatPolicy:
        chosen = self.now.supervision
        return HeartbeatPolicy(seconds=chosen.stuck_seconds, restart=chosen.stuck_restart)

    @property
    def durable(self) -> bool:
        """Whether mail and tasks are on disk when a call returns."""
        return self.now.mail.durability == "disk"

    def accepted_bytes(self) -> int:
        """Return the size of the largest message that readers accept.

        Senders follow the settings file as it is now. Mail that was acknowledged before the limit
        was lowered must be accepted, too; it was mostly sent under the default limit.
        """
        try:
            found = self.read().settings
        except TeamError:  # invalid: no sender follows it
            found = self.now
        return max(found.mail.max_message_bytes, MAX_MESSAGE_BYTES)


_NEXT_CALL: Final = "counts from the next model call on"
_OF_LEDGER: Final = f"{_NEXT_CALL}; `teamctl resume` for who is paused"
# By the beginnings of keys; the first that fits counts.
_WHEN: Final = {
    "teammate": "who is new is spawned now; who is known keeps role and model",
    "model.concurrent_calls": _NEXT_CALL,
    "limits.team": _OF_LEDGER,
    "prices": _OF_LEDGER,
    "merge": "counts at once",
    "tasks.check": "counts from the next check on",
    "hosts": "counts at once: the postman starts anew",
    "supervision.crashes": "counts from the next crash on",
    "supervision.within_seconds": "counts from the next crash on",
    "": "counts for teammates whose process starts from now on; `teamd restart` reaches all",
}


def when_it_counts(key: str) -> str:
    """Return a clause about when a changed setting takes effect."""
    if key in _FIXED:
        return "waits for `teamd restart`"
    return next(clause for begun, clause in _WHEN.items() if key.startswith(begun))


def changes(old: Settings, new: Settings) -> list[str]:
    """Return the dotted keys that differ, in the order of `team.toml`.

    An added or removed teammate is `teammate.alice`; a changed one is `teammate.alice.prompt`.
    The order of teammates does not matter; that of permissions does, and they are one key.
    """
    different = []
    for section in SECTIONS:
        different += _between(section, getattr(old, section), getattr(new, section))
    models = {**old.prices, **new.prices}
    changed = (model for model in models if old.prices.get(model) != new.prices.get(model))
    different += [f"{PRICES}.{model}" for model in changed]
    roles = {**old.roles, **new.roles}
    for name in roles:
        different += _between(f"{ROLE}.{name}", old.roles.get(name), new.roles.get(name))
    before = {teammate.name: teammate for teammate in old.teammates}
    after = {teammate.name: teammate for teammate in new.teammates}
    for name in before | after:
        different += _between(f"{TEAMMATE}.{name}", before.get(name), after.get(name))
    return different + [PERMISSION] * (old.permissions != new.permissions)


def _between(place: str, old: Any, new: Any) -> list[str]:
    if old is None or new is None:
        return [place]
    keys = keys_of(type(old))
    return [f"{place}.{key}" for key in keys if getattr(old, key) != getattr(new, key)]
