"""Dataclasses that cost little to declare: those of the standard library, as far as they are used.

There each class has six methods compiled as it is declared, which was a third of a short command's
time. Here `__init__` alone is compiled, with the first object, and the others are closures.
Annotations are texts, as `from __future__ import annotations` makes them. What a type checker
finds, such as a default in front of a field that has none, is not looked for again.

To a type checker, and to a library that asks a class for the standard attributes, these are the
standard ones.
"""

from __future__ import annotations

import sys
from types import MemberDescriptorType

from teamd.dataclass.methods import DeclaredField, Missing, kept, make_methods

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

__all__ = [
    "KW_ONLY", "MISSING", "Field", "InitVar", "asdict", "dataclass", "field", "fields",
    "is_dataclass", "prepare", "replace",
]  # fmt: skip
_DECLARED: Final = "__declared_fields__"  # an attribute of every dataclass: its fields by name
_FOR_OTHERS: Final = ("__dataclass_fields__", "__dataclass_params__")
_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_SAID: Final = ("default", "default_factory", "init", "repr", "compare", "metadata", "kw_only")


class _KwOnly:
    """Marks, as an annotation, that the fields behind it are given by keyword."""


class _InitVar:
    """Marks, in an annotation, what `__post_init__` gets and no attribute keeps."""


class _ForOthers:
    """An attribute that others ask a dataclass for: the standard library makes it when they do."""

    def __init__(self, name: str, declared: Mapping[str, DeclaredField], **options: Any) -> None:
        self._name = name
        self._declared = declared
        self._options = options
        self._made: Any = None

    def __get__(self, instance: object, owner: type) -> Any:
        if self._made is None:
            from dataclasses import InitVar, field, make_dataclass  # noqa: PLC0415 -- slow to load

            told = []
            for one in self._declared.values():
                facts = ((name, getattr(one, name)) for name in _SAID)
                said: dict[str, Any] = {name: fact for name, fact in facts if fact is not Missing}
                kind: Any = InitVar[object] if one.init_only else one.type
                told.append((one.name, kind, field(**said)))
            self._made = getattr(make_dataclass("Declared", told, **self._options), self._name)
        return self._made


def _dataclass(
    cls: type | None = None, /, *, eq: bool = True, frozen: bool = False, kw_only: bool = False,
    slots: bool = False,
) -> Any:  # fmt: skip
    """Give a class the methods that follow from its fields, except those that it has."""

    def declare(cls: type) -> type:
        declared: dict[str, DeclaredField] = {}
        for base in cls.__mro__[:0:-1]:
            declared |= vars(base).get(_DECLARED, {})
        own = _read_fields(cls, kw_only=kw_only)
        declared |= own
        if slots:
            cls = _with_slots(cls, declared)
        for one in own.values():
            _set_default(cls, one, slots=slots)
        setattr(cls, _DECLARED, declared)
        for name in _FOR_OTHERS:
            setattr(cls, name, _ForOthers(name, declared, eq=eq, frozen=frozen))
        made = make_methods(cls, declared, eq=eq, frozen=frozen, slots=slots)
        for name, method in made.items():
            if vars(cls).get(name) is None:
                setattr(cls, name, method)
        return cls

    return declare if cls is None else declare(cls)


def _read_fields(cls: type, *, kw_only: bool) -> dict[str, DeclaredField]:
    """Return what a class itself declares."""
    found = {}
    for name, annotation in cls.__annotations__.items():
        kind = annotation.partition("[")[0]
        if kind == "KW_ONLY":
            kw_only = True
        elif kind != "ClassVar":
            one = getattr(cls, name, Missing)
            if type(one) is not DeclaredField:  # a descriptor is a field of a base, with slots
                one = DeclaredField(default=Missing if type(one) is MemberDescriptorType else one)
            if type(one.default).__hash__ is None:
                raise ValueError(f"{cls.__qualname__}.{name} has a default that all would share")
            one.name, one.type = name, annotation
            one.kw_only, one.init_only = kw_only, kind == "InitVar"
            found[name] = one
    return found


def _with_slots(cls: type, declared: Mapping[str, DeclaredField]) -> type:
    """Make a class anew: its slots must be known as it is made."""
    inherited: set[str] = set()
    for base in cls.__mro__[1:-1]:
        slots = vars(base).get("__slots__", ())
        inherited.update([slots] if isinstance(slots, str) else slots)
    names = [one.name for one in kept(declared)]
    dropped = {*names, "__dict__", "__weakref__"}
    namespace = {name: value for name, value in vars(cls).items() if name not in dropped}
    namespace["__slots__"] = tuple([name for name in names if name not in inherited])
    namespace["__qualname__"] = cls.__qualname__
    return type(cls)(cls.__name__, cls.__bases__, namespace)


def _set_default(cls: type, one: DeclaredField, *, slots: bool) -> None:
    """Have an attribute of the class be a field's default, not what was declared of it."""
    if slots and not one.init_only:
        return
    if one.default is not Missing:
        setattr(cls, one.name, one.default)
    elif one.name in vars(cls):
        delattr(cls, one.name)


def prepare(package: str) -> None:
    """Make for the loaded dataclasses of a package what they would make with their first objects.

    What is there before a fork is made once, and its memory is shared.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package:
            for value in list(vars(module).values()):
                if isinstance(value, type) and _is_dataclass(value):
                    value.__init__  # type: ignore[misc]  # noqa: B018 -- compiles it


def _is_dataclass(value: object) -> bool:
    """Return whether a class, or that of an object, is a dataclass."""
    return hasattr(value if isinstance(value, type) else type(value), _DECLARED)


def _fields(value: object) -> tuple[DeclaredField, ...]:
    """Return the fields of a class, or of an object's."""
    return tuple(kept(getattr(value, _DECLARED)))


def _replace(value: Any, /, **changes: Any) -> Any:
    """Return an object like another, with some fields changed."""
    for name, one in getattr(value, _DECLARED).items():
        if one.init and name not in changes:
            changes[name] = getattr(value, name)
    return type(value)(**changes)


def _asdict(value: Any) -> dict[str, Any]:
    """Return an object's fields by their names, and those of all dataclasses in them likewise."""
    return {one.name: _to_plain(getattr(value, one.name)) for one in _fields(value)}


def _to_plain(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if hasattr(kind, _DECLARED):
        return _asdict(value)
    if isinstance(value, dict):
        return {_to_plain(key): _to_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        values = map(_to_plain, value)
        return kind(*values) if hasattr(kind, "_make") else kind(values)
    from copy import deepcopy  # noqa: PLC0415 -- seldom needed

    return deepcopy(value)


if TYPE_CHECKING:
    from dataclasses import (
        KW_ONLY,
        MISSING,
        Field,
        InitVar,
        asdict,
        dataclass,
        field,
        fields,
        is_dataclass,
        replace,
    )
else:
    KW_ONLY, MISSING, Field, InitVar = _KwOnly, Missing, DeclaredField, _InitVar
    asdict, dataclass, field, fields = _asdict, _dataclass, DeclaredField, _fields
    is_dataclass, replace = _is_dataclass, _replace
