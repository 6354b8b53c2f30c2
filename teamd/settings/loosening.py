"""How one value of a setting is looser than another: what a setting declares beside its kind.

A value that is looser than the default, or than what the person confirmed last, counts only once
the file is trusted, see `untrusted`. Each function takes the value and what it is compared with.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    Loosens: TypeAlias = Callable[[Any, Any], bool]


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


def outside(value: Path, base: Path) -> bool:
    """A folder that is not within another."""
    return not value.is_relative_to(base)


def allows(value: object, _base: object) -> bool:
    """A rule that allows what nobody is asked about then."""
    return value == "allow"


def without_walls(value: object, _base: object) -> bool:
    """No sandbox around commands, whatever the reason."""
    return value in ("external", "off")


def switched_off(value: object, base: object) -> bool:
    """A guard that was on."""
    return bool(base) and not value
