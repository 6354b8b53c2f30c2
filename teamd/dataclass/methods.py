"""The methods of a dataclass, made from its fields: what `dataclass` gives a class."""

from __future__ import annotations

from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

_set: Final = object.__setattr__


class Missing:
    """Stands for a default that is not given."""


class DeclaredField:
    """A field, with those attributes of the standard one that are used.

    Attributes:
        init_only: whether it is an `InitVar`.
    """

    __slots__ = (
        "compare", "default", "default_factory", "init", "init_only", "kw_only", "metadata", "name",
        "repr", "type",
    )  # fmt: skip
    name: str
    type: str
    kw_only: bool
    init_only: bool

    def __init__(
        self,
        *,
        default: Any = Missing,
        default_factory: Any = Missing,
        init: bool = True,
        repr: bool = True,  # noqa: A002 -- the standard name
        compare: bool = True,
        metadata: Mapping[Any, Any] | None = None,
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr
        self.compare = compare
        self.metadata = metadata or {}


def kept(declared: Mapping[str, DeclaredField]) -> list[DeclaredField]:
    """Return the fields that are attributes."""
    return [one for one in declared.values() if not one.init_only]


def make_methods(
    cls: type, declared: Mapping[str, DeclaredField], *, eq: bool, frozen: bool, slots: bool
) -> dict[str, Any]:
    """Make what a class gets unless it has it itself."""
    fields = kept(declared)
    positional = [one.name for one in declared.values() if one.init and not one.kw_only]
    made: dict[str, Any] = {
        "__match_args__": tuple(positional),
        "__init__": _FirstInit(cls, declared, frozen=frozen),
        "__repr__": _make_repr([one.name for one in fields if one.repr]),
    }
    if eq:
        values = _make_getter([one.name for one in fields if one.compare])
        made["__eq__"] = _make_eq(values)
        made["__hash__"] = _make_hash(values) if frozen else None
    if frozen:
        made["__setattr__"], made["__delattr__"] = _make_refusals(cls, declared)
        if slots:  # without slots, what a copy is made with assigns nothing
            names = [one.name for one in fields]
            made["__getstate__"], made["__setstate__"] = _make_state(names)
    return made


class _FirstInit:
    """Stands in the place of `__init__` until somebody asks for that."""

    def __init__(self, cls: type, declared: Mapping[str, DeclaredField], *, frozen: bool) -> None:
        self._cls: Any = cls
        self._declared = declared
        self._frozen = frozen

    def __get__(self, instance: object, owner: type) -> Any:
        made = self._cls.__init__ = _compile_init(self._cls, self._declared, frozen=self._frozen)
        return made.__get__(instance, owner)


def _compile_init(cls: type, declared: Mapping[str, DeclaredField], *, frozen: bool) -> Any:
    """Make the method that sets the fields. What it uses has names that no field has."""
    namespace: dict[str, Any] = {"__name__": cls.__module__, "__missing": Missing}
    by_position, body = ["self"], []
    by_keyword: list[str] = []
    for name, one in declared.items():
        parameter, value = _declare_parameter(one, namespace)
        if one.init:
            (by_keyword if one.kw_only else by_position).append(parameter)
        if value and not one.init_only:
            body.append(_declare_setting(cls, name, value, namespace, frozen=frozen))
    if hasattr(cls, "__post_init__"):
        passed = [name for name, one in declared.items() if one.init_only]
        body.append(f"self.__post_init__({', '.join(passed)})")
    head = ", ".join(by_position + ["*", *by_keyword] * bool(by_keyword))
    exec(f"def __init__({head}):\n " + "\n ".join(body or ["pass"]), namespace)  # noqa: S102 -- names only
    made = namespace["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _declare_parameter(one: DeclaredField, namespace: dict[str, Any]) -> tuple[str, str]:
    """Return a field's parameter, and the expression of its value, if it has one at first."""
    name = one.name
    if one.default_factory is not Missing:
        namespace[f"__make_{name}"] = one.default_factory
        made = f"__make_{name}()"
        return (
            f"{name}=__missing",
            f"{made} if {name} is __missing else {name}" if one.init else made,
        )
    if one.default is not Missing:
        namespace[f"__default_{name}"] = one.default
        return f"{name}=__default_{name}", name if one.init else f"__default_{name}"
    return name, name if one.init else ""


def _declare_setting(
    cls: type, name: str, value: str, namespace: dict[str, Any], *, frozen: bool
) -> str:
    """Return the statement that sets a field."""
    if not frozen:
        return f"self.{name} = {value}"
    slot = getattr(cls, name, None)
    if type(slot) is MemberDescriptorType:  # a third faster than `object.__setattr__`
        namespace[f"__set_{name}"] = slot.__set__
        return f"__set_{name}(self, {value})"
    namespace["__set"] = _set
    return f"__set(self, {name!r}, {value})"


def _make_repr(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        values = [f"{name}={getattr(self, name)!r}" for name in names]
        return f"{type(self).__qualname__}({', '.join(values)})"

    return __repr__


def _make_getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Make a function that returns an object's values of some fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _make_eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _make_hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


def _make_refusals(cls: Any, declared: Mapping[str, DeclaredField]) -> tuple[Any, Any]:
    """Make what sets and deletes an attribute: not a field, nor any of the class itself."""

    def refuse(self: Any, name: str, deed: str) -> None:
        if type(self) is cls or name in declared:
            from dataclasses import FrozenInstanceError  # noqa: PLC0415 -- slow to load

            raise FrozenInstanceError(f"cannot {deed} field {name!r}")

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        refuse(self, name, "assign to")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        refuse(self, name, "delete")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _make_state(names: Sequence[str]) -> tuple[Any, Any]:
    """Make what copies and pickles of an object are made with, as nothing can be assigned."""

    def __getstate__(self: Any) -> list[Any]:  # noqa: N807
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807
        for name, value in zip(names, state, strict=True):
            _set(self, name, value)

    return __getstate__, __setstate__
