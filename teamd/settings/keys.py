"""What stands behind a setting: the metadata of a dataclass field."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from teamd.settings.kinds import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What stands behind a setting's name.

    Attributes:
        kind: checks a value, and says what it must be.
        words: what it is for, as `team.toml` explains it.
        example: a value to show where there is no default.
    """

    kind: Kind
    words: str
    example: str | None = None


def key(kind: Kind, words: str, example: str | None = None) -> dict[str, Key]:
    """The metadata of a dataclass field that is a setting."""
    return {"key": Key(kind=kind, words=words, example=example)}


def keys_of(section: type[Any]) -> dict[str, Key]:
    """The settings of one section, in their order."""
    return {declared.name: declared.metadata["key"] for declared in fields(section)}


def required_of(section: type[Any]) -> tuple[str, ...]:
    """The settings of one section that have no default."""
    return tuple(
        declared.name
        for declared in fields(section)
        if declared.default is MISSING and declared.default_factory is MISSING
    )
