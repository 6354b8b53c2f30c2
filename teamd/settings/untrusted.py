"""The part that counts of a settings file that nobody has confirmed: whatever does not loosen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from teamd.settings.kinds import bare, keys_of, printable
from teamd.settings.schema import SECTIONS, TABLES, Settings

if TYPE_CHECKING:
    from teamd.settings.kinds import Loosens
    from teamd.settings.schema import Permission

_MOST_KEYS: Final = 12  # in one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Loosened:
    """A setting by which a file allows more than the default, or than what was trusted before.

    Attributes:
        key: as `changes` names it; a table of its own where all of it waits.
        value: what the file says.
        instead: what counts where the file is not trusted; `None` for nothing.
    """

    key: str
    value: Any
    instead: Any

    def encode(self) -> dict[str, Any]:
        """The setting as `--json` shows it."""
        return {"key": self.key, "value": _plain(self.value), "instead": _plain(self.instead)}

    def __str__(self) -> str:
        """The setting on one line, whole: a command's end says as much as its beginning."""
        otherwise = "none" if self.instead is None else _spell(self.instead)
        return f"{self.key} = {_spell(self.value)}  (otherwise {otherwise})"


def confine(
    found: Settings, default: Settings, before: Settings | None
) -> tuple[Settings, tuple[Loosened, ...]]:
    """Return what counts of settings that nobody has confirmed, and what does not.

    Args:
        found: what the file says.
        default: what holds without a file.
        before: what the file said when it was last confirmed.
    """
    confining = _Confining()
    kept: dict[str, Any] = {}
    for one in fields(Settings):
        last = getattr(before, one.name, None)
        if one.name == "given":
            continue
        if one.name in SECTIONS:
            value, base = getattr(found, one.name), getattr(default, one.name)
            kept[one.name] = confining.section(one.name, value, base, last)
        else:
            kept[one.name] = confining.table(one.name, getattr(found, one.name), last)
    kept["permissions"] = (*_guards(before), *_without(kept["permissions"], _guards(before)))
    kept["given"] = found.given.difference(one.key for one in confining.loosened)
    return Settings(**kept), tuple(confining.loosened)


def list_keys(loosened: tuple[Loosened, ...]) -> str:
    """Return the keys as a sentence names them."""
    keys = [one.key for one in loosened[:_MOST_KEYS]]
    more = len(loosened) - len(keys)
    return ", ".join(keys) + (f" and {more} more" if more else "")


def _guards(before: Settings | None) -> tuple[Permission, ...]:
    """Return the rules that were confirmed and allow nothing: a file alone removes none of them."""
    rules = () if before is None else before.permissions
    return tuple(rule for rule in rules if rule.then != "allow")


def _without(
    rules: tuple[Permission, ...], others: tuple[Permission, ...]
) -> tuple[Permission, ...]:
    return tuple(rule for rule in rules if rule not in others)


class _Confining:
    """One pass over one file's settings.

    Attributes:
        loosened: what does not count.
    """

    def __init__(self) -> None:
        self.loosened: list[Loosened] = []

    def section(self, place: str, section: Any, default: Any, before: Any) -> Any:
        """Return a section, or a row of a table, with what counts in it."""
        kept = {}
        for key, declared in keys_of(type(section)).items():
            if declared.loosens is None:
                continue
            value, base = getattr(section, key), getattr(default, key)
            last = base if before is None else getattr(before, key)
            if declared.loosens(value, base) or declared.loosens(value, last):
                kept[key] = instead = _tighter(declared.loosens, base, last)
                self._note(f"{place}.{key}", value, instead)
        return replace(section, **kept)

    def table(self, field: str, table: Any, before: Any) -> Any:
        """Return the tables of one name, such as `[[teammate]]`, with what counts of them."""
        known = _rows(before) if before is not None else {}
        kept = {}
        for name, row in _rows(table).items():
            place = f"{TABLES[field]}.{bare(name)}"
            if _is_refused(row):
                self._note(place, row, None)
            else:
                kept[name] = self.section(place, row, _without_options(row), known.get(name))
        return kept if isinstance(table, Mapping) else tuple(kept.values())

    def _note(self, key: str, value: Any, instead: Any) -> None:
        self.loosened.append(Loosened(key=key, value=value, instead=instead))


def _tighter(loosens: Loosens, default: Any, last: Any) -> Any:
    """Return what was confirmed last if it is tighter than the default; otherwise the default."""
    return last if loosens(default, last) and not loosens(last, default) else default


def _rows(table: Any) -> dict[str, Any]:
    """The rows of a table by their names, or by their numbers where they have none."""
    if isinstance(table, Mapping):
        return dict(table)
    return {getattr(row, "name", str(number)): row for number, row in enumerate(table, start=1)}


def _is_refused(row: Any) -> bool:
    """Return whether a row loosens by a key that has no default to go back to."""
    declared = keys_of(type(row))
    values = {one.name: getattr(row, one.name) for one in fields(row) if _default(one) is MISSING}
    loosening = ((declared[key].loosens, value) for key, value in values.items())
    return any(loosens is not None and loosens(value, value) for loosens, value in loosening)


def _without_options(row: Any) -> Any:
    """Return a row that says what it must and no more."""
    defaults = {one.name: _default(one) for one in fields(row)}
    return replace(row, **{key: value for key, value in defaults.items() if value is not MISSING})


def _default(declared: Field[Any]) -> Any:
    if declared.default_factory is not MISSING:
        return declared.default_factory()
    return declared.default


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
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
    """A value on one line, with nothing in it that a terminal obeys."""
    return printable(json.dumps(_plain(value), ensure_ascii=False))
