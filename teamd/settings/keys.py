"""The declaration of a setting: its kind, its words, and when one value is looser than another.

A value that is looser than the default, or than what the person confirmed last, counts only once
the file is trusted, see `untrusted`. The functions for that take the value and what it is compared
with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from teamd.settings.kinds import ValueKind

Loosens: TypeAlias = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The declaration behind a setting's name.

    Attributes:
        kind: checks a value, and says what it must be.
        words: what it is for, as `team.toml` explains it.
        example: a value to show where there is no default.
        loosens: tells whether one value allows more than another, for a setting that guards; such
            a value counts only in a file that the person has confirmed.
    """

    kind: ValueKind
    words: str
    example: str | int | None = None
    loosens: Loosens | None = None


def key(
    kind: ValueKind, words: str, example: str | int | None = None, *, loosens: Loosens | None = None
) -> dict[str, Key]:
    """The metadata of a dataclass field that is a setting."""
    return {"key": Key(kind=kind, words=words, example=example, loosens=loosens)}


def setting(
    default: Any,
    kind: ValueKind,
    words: str,
    example: str | int | None = None,
    *,
    loosens: Loosens | None = None,
) -> Any:
    """A dataclass field that is a setting with a default."""
    return field(default=default, metadata=key(kind, words, example, loosens=loosens))


def keys_of(section: type[Any]) -> dict[str, Key]:
    """The settings of one section, in their order."""
    return {declared.name: declared.metadata["key"] for declared in fields(section)}


def always(_value: object, _base: object) -> bool:
    """Any value: for a key without a default, such as a price, whose whole table then waits."""
    return True


def if_set(value: object, _base: object) -> bool:
    """Anything but nothing: an address, a command, a flag, a list."""
    return bool(value)


def higher(value: float, base: float) -> bool:
    """A higher number."""
    return value > base


def higher_limit(value: float, base: float) -> bool:
    """A higher number, or 0, which stands for no limit."""
    return (value or math.inf) > (base or math.inf)


def added(value: Collection[str], base: Collection[str]) -> bool:
    """Something in a list that was not in it."""
    return not set(value) <= set(base)


def removed(value: Collection[str] | None, base: Collection[str] | None) -> bool:
    """Something missing in a list that was in it."""
    return not set(value or ()) >= set(base or ())


def replaced(value: object, base: object) -> bool:
    """Another value than one that guards."""
    return bool(base) and value != base


def outside(value: Path, base: Path) -> bool:
    """A folder that is not within another, or is hidden there, as `.git` and `.vscode` are."""
    if not value.is_relative_to(base):
        return True
    return any(part.startswith(".") for part in value.relative_to(base).parts)


def allows(value: object, _base: object) -> bool:
    """A rule that allows what nobody is asked about then."""
    return value == "allow"


def without_walls(value: object, _base: object) -> bool:
    """No sandbox around commands, whatever the reason."""
    return value in ("external", "off")


def switched_off(value: object, base: object) -> bool:
    """A guard that was on."""
    return bool(base) and not value
