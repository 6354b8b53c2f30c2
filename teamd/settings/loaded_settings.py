"""The settings in force: those of the file, without loosening settings that are not confirmed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from teamd.errors import SettingsError
from teamd.files.paths import SETTINGS_FILE
from teamd.messages import TEAMS_FOLDER
from teamd.settings.kinds import Loosens, bare, keys_of, printable
from teamd.settings.load import parse, parse_leniently, read_file, sections_in
from teamd.settings.schema import (
    HOSTS,
    SECTIONS,
    TABLES,
    TEAMMATE,
    HostSettings,
    Permission,
    Settings,
    Teammate,
    ToolOverrides,
)
from teamd.settings.trust import TrustStore

_MOST_KEYS: Final = 12  # in one sentence
_OVERRIDES: Final = tuple(one.name for one in fields(ToolOverrides))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loosened:
    """A setting by which a file allows more than the default, or than it allowed when last trusted.

    Attributes:
        key: its key as in `changes`, or the key of a table that waits for trust as a whole.
        value: the value in the file; `None` if the file no longer has one.
        instead: the value in force while the file is not trusted; `None` for no value.
    """

    key: str
    value: Any
    instead: Any

    def encode(self) -> dict[str, Any]:
        """Return the setting as `--json` shows it."""
        return {"key": self.key, "value": _plain(self.value), "instead": _plain(self.instead)}

    def __str__(self) -> str:
        """Return the setting on one line, never cut: the end of a command matters, too."""
        value, otherwise = (
            "none" if one is None else _spell(one) for one in (self.value, self.instead)
        )
        return f"{self.key} = {value}  (otherwise {otherwise})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """A settings file that was read.

    Attributes:
        data: the bytes that were parsed; `None` if the file does not exist.
        trusted: whether the person has confirmed these bytes.
        loosened: the settings that count only if the person has confirmed them.
        waiting: those of them that are not in force, because they have changed since.
    """

    path: Path
    data: bytes | None
    trusted: bool
    loosened: tuple[Loosened, ...]
    waiting: tuple[Loosened, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The settings in force and their sources.

    Attributes:
        files: the files that were read, the team's own first.
    """

    settings: Settings
    files: tuple[SettingsFile, ...] = ()

    @property
    def shared(self) -> Reading:
        """The result for a named team without a file: `[hosts]` belongs to the project's team."""
        return replace(self, settings=replace(self.settings, hosts=HostSettings()))

    @property
    def waiting(self) -> tuple[Loosened, ...]:
        """The settings that are not in force because the person has not confirmed them."""
        return tuple(one for file in self.files for one in file.waiting)

    def explain_waiting(self, config: str | Path | None) -> str:
        """Return the sentence about the settings that wait for trust; empty if none do.

        Args:
            config: the file that `--config` names, for the command in the sentence.
        """
        waiting = self.waiting
        if not waiting:
            return ""
        where = " and ".join(str(file.path) for file in self.files if file.waiting)
        option = "" if config is None else f" --config {shlex.quote(str(config))}"
        keys = ", ".join(one.key for one in waiting[:_MOST_KEYS])
        more = f" and {len(waiting) - _MOST_KEYS} more" if len(waiting) > _MOST_KEYS else ""
        return (
            f"not in force until you confirm {printable(where)} with `teamctl trust{option}`: "
            f"{keys}{more}"
        )


def load(path: Path, *, folder: Path) -> Settings:
    """Return the settings in force, see `read`."""
    return read(path, folder=folder).settings


def read(path: Path, *, folder: Path) -> Reading:
    """Return the settings of a file, with defaults for missing ones.

    A setting that loosens counts only if the person has confirmed it with its present value. If the
    file of a named team contains only teammates and hosts, the project's file decides
    about the other sections.

    Args:
        path: the file; it may be missing.
        folder: the base of the default workspace if the file does not exist.

    Raises:
        SettingsError: it lists every mistake, or says why the file cannot be read.
    """
    data = read_file(path)
    # The default workspace of a named team is the project's, not its own folder.
    of_team = path.parent.parent.name == TEAMS_FOLDER
    default_folder = folder if of_team or data is None else None
    found = _judge(path, data, default_folder)
    if of_team and data is not None and set() < sections_in(data, path) <= {TEAMMATE, HOSTS}:
        rest = read(folder / SETTINGS_FILE, folder=folder)
        own = found.settings
        settings = replace(rest.settings, teammates=own.teammates, hosts=own.hosts)
        return Reading(settings=settings, files=found.files + rest.files)
    return found


def _judge(path: Path, data: bytes | None, default_folder: Path | None) -> Reading:
    """Return the settings of a file that count, given the content that the person has confirmed."""
    found = parse(data or b"", path=path, default_folder=default_folder)
    default = parse(b"", path=path, default_folder=default_folder)
    last = TrustStore().find(path)
    trusted = last is not None and last.covers(path, data or b"")
    before = None if last is None else _parse_before(last.content, path, default)
    confined, loosened, waiting = confine(found, default, before)
    if trusted:
        confined, waiting = found, ()
    file = SettingsFile(path=path, data=data, trusted=trusted, loosened=loosened, waiting=waiting)
    return Reading(settings=confined, files=(file,))


def _parse_before(data: bytes, path: Path, default: Settings) -> Settings | None:
    """Return the settings that the person has confirmed, as far as they are still valid.

    A folder in them may be gone; the other settings still limit the present file.
    """
    try:
        found = parse_leniently(data, path=path, default_folder=default.team.workspace)
    except SettingsError:
        return None
    exists = found.team.workspace.is_absolute()
    return found if exists else replace(found, team=default.team)


def confine(
    found: Settings, default: Settings, before: Settings | None
) -> tuple[Settings, tuple[Loosened, ...], tuple[Loosened, ...]]:
    """Return the settings of a file that count, those that loosen, and those that do not count.

    Args:
        found: the settings of the file.
        default: the settings without a file.
        before: the settings of the file when it was last confirmed.
    """
    confining = _Confining(again=before is not None and _shifts_rights(found, before))
    kept: dict[str, Any] = {}
    for name in SECTIONS:
        last = getattr(before, name, None)
        kept[name] = confining.section(name, getattr(found, name), getattr(default, name), last)
    for name in TABLES:
        kept[name] = confining.table(name, getattr(found, name), getattr(before, name, None))
    confirmed: tuple[Permission, ...] = () if before is None else before.permissions
    if found.permissions != confirmed:
        # A file cannot remove a confirmed rule that protects, nor put another one above it.
        guards = tuple(rule for rule in confirmed if rule.then != "allow")
        rest = tuple(one for one in kept["permissions"] if one not in guards)
        kept["permissions"] = guards + rest
    kept["given"] = found.given.difference(one.key for one in confining.waiting)
    return Settings(**kept), tuple(confining.loosened), tuple(confining.waiting)


def _shifts_rights(found: Settings, before: Settings) -> bool:
    """Return whether other roles or teammates could give somebody rights confirmed for another.

    It is true if a teammate takes another role, or loses a key that limits it alone. For a new
    teammate, only if its role is in the file; others have the rights of any spawned teammate.
    """
    rights = {one.name.lower(): _rights(one) for one in found.teammates}
    known = {one.name.lower(): _rights(one) for one in before.teammates}
    moved = any(rights.get(name) != last for name, last in known.items())
    joined = any(
        one.role in found.roles for one in found.teammates if one.name.lower() not in known
    )
    changed = any(found.roles.get(role) != last for role, last in before.roles.items())
    return moved or joined or changed


def _rights(teammate: Teammate) -> Teammate:
    """Return a teammate without the keys that have nothing to do with its rights."""
    return replace(teammate, name="", prompt="", model=None, effort=None)


class _Confining:
    """Replaces the settings of one file that loosen and were not confirmed with their values.

    Attributes:
        again: whether settings that a role or a teammate can override must be confirmed again.
        loosened: all that loosen.
        waiting: those that were replaced.
    """

    def __init__(self, *, again: bool) -> None:
        self.again = again
        self.loosened: list[Loosened] = []
        self.waiting: list[Loosened] = []

    def section(self, place: str, section: Any, default: Any, before: Any) -> Any:
        """Return a section, or a row of a table, without the values that loosen."""
        kept = {}
        for key, declared in keys_of(type(section)).items():
            if declared.loosens is None:
                continue
            value, base = getattr(section, key), getattr(default, key)
            last = base if before is None else getattr(before, key)
            if declared.loosens(value, base) or declared.loosens(value, last):
                instead = _tighter(declared.loosens, base, last)
                confirmed = before is not None and (
                    value == last or not declared.loosens(value, last)
                )
                if self.again and key in _OVERRIDES:
                    confirmed = False
                self._note(f"{place}.{key}", value, instead, confirmed=confirmed)
                if not confirmed:
                    kept[key] = instead
        return replace(section, **kept)

    def table(self, field: str, table: Any, before: Any) -> Any:
        """Return the tables of one name, such as `[[teammate]]`, without the values that loosen."""
        named = isinstance(table, Mapping)
        known = {} if before is None else _rows(before)
        rows = _rows(table)
        if named:  # a file cannot remove what was confirmed, such as a price or a protected place
            rows = {name: _without_options(row) for name, row in known.items()} | rows
        kept = {}
        for name, row in rows.items():
            place, last = f"{TABLES[field]}.{bare(name)}", known.get(name)
            if not _is_refused(row):
                kept[name] = self.section(place, row, _without_options(row), last)
                continue
            written, instead = (table.get(name), last) if named else (row, None)
            confirmed = written == last if named else row in known.values()
            self._note(place, written, instead, confirmed=confirmed)
            counts = row if confirmed else instead
            if counts is not None:
                kept[name] = counts
        return kept if named else tuple(kept.values())

    def _note(self, key: str, value: Any, instead: Any, *, confirmed: bool) -> None:
        found = Loosened(key=key, value=value, instead=instead)
        self.loosened.append(found)
        if not confirmed:
            self.waiting.append(found)


def _tighter(loosens: Loosens, default: Any, last: Any) -> Any:
    """Return the confirmed value if it is tighter than the default; otherwise the default."""
    return last if loosens(default, last) and not loosens(last, default) else default


def _rows(table: Any) -> dict[str, Any]:
    """Return rows by name, a teammate's in lower case, or by number if they have no name."""
    if isinstance(table, Mapping):
        return dict(table)
    numbered = enumerate(table, start=1)
    return {getattr(row, "name", str(number)).lower(): row for number, row in numbered}


def _is_refused(row: Any) -> bool:
    """Return whether a row loosens by a key without a default to fall back to."""
    declared = keys_of(type(row))
    required = (one.name for one in fields(row) if one.default is MISSING)
    loosening = ((declared[name].loosens, getattr(row, name)) for name in required)
    return any(loosens is not None and loosens(value, value) for loosens, value in loosening)


def _without_options(row: Any) -> Any:
    """Return a row with the default of every key that has one."""
    defaults = {one.name: one.default for one in fields(row) if one.default is not MISSING}
    return replace(row, **defaults)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    match value:
        case Mapping():
            return {str(key): _plain(one) for key, one in value.items()}
        case tuple():
            return [_plain(one) for one in value]
        case Path():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
    return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}


def _spell(value: Any) -> str:
    """Return a value on one line, safe for a terminal."""
    return printable(json.dumps(_plain(value), ensure_ascii=False))
