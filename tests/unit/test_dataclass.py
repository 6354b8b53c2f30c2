"""Our dataclasses beside the standard library's: the same classes, declared by both."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pprint
import sys
from types import MemberDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd import dataclass as ours
from teamd.dataclass import dataclass, field, fields, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = """
from __future__ import annotations
from collections import deque
from typing import ClassVar
"""
BARE = "{name}: int"
KINDS = (
    BARE,
    "{name}: object = {number}",
    "{name}: list[int] = field(default_factory=list)",
    "{name}: int = field(default={number}, repr=False)",
    "{name}: object = field(default_factory=dict, compare=False)",
    "{name}: int = field(init=False, default={number})",
    "{name}: deque[int] = field(default_factory=deque, init=False)",
    "{name}: object = field(metadata=dict(a=1), default=None)",
    "shared_{name}: ClassVar[int] = {number}",
    "only_{name}: InitVar[int] = {number}",
    "plain_{name} = {number}",
)
GIVEN = [*"abcdefwxyz", *(f"only_{name}" for name in "abcdefwxyz")]
NOTED = """noted: list[object] = field(default_factory=list)
    def __post_init__(self, *given: object) -> None:
        self.noted.append(given)"""
VALUES = st.sampled_from([0, 1, 1.0, None, "text", (1, 2), float("nan"), [3]])


def declare(kinds: list[str], names: str) -> list[str]:
    """Return fields of these kinds, those without a default first."""
    ordered = sorted(kinds, key=lambda kind: kind != BARE)
    named = enumerate(zip(names, ordered, strict=False))
    return [kind.format(name=name, number=number) for number, (name, kind) in named]


def decorators(**fixed: bool) -> st.SearchStrategy[str]:
    free = {name: st.booleans() for name in ("eq", "kw_only") if name not in fixed}
    return st.fixed_dictionaries(free).map(lambda drawn: f"@dataclass(**{fixed | drawn})")


@st.composite
def sources(draw: st.DrawFn) -> str:
    """The text of a module that declares a dataclass and one that inherits from it."""
    shared = {"frozen": draw(st.booleans()), "slots": draw(st.booleans())}
    some = st.lists(st.sampled_from(KINDS), max_size=4)
    base = declare(draw(some), "abcd")
    if draw(st.booleans()):
        base += ["_: KW_ONLY", *declare(draw(some), "wxyz")]
    return "\n    ".join(
        [
            f"{HEAD}\n{draw(decorators(**shared))}\nclass Base:", '"""What it is."""', *base,
            f"{NOTED}\n{draw(decorators(**shared, kw_only=True))}\nclass Child(Base):",
            '"""Another."""', *declare(draw(some), "cdef"),
        ]
    )  # fmt: skip


class Seen(dict[str, str]):
    """What can be seen of one library's class; errors count as seen."""

    def note(self, what: str, find: Callable[[], object]) -> Any:
        """Note what a function returns; returns that as well."""
        try:
            found = find()
        except (TypeError, AttributeError) as error:
            self[what] = f"{type(error).__name__}: {error}"
            return None
        self[what] = repr(found)
        return found


def observe(library: Any, source: str, name: str, given: dict[str, Any], other: Any) -> Seen:
    """Return all that can be seen of a class that a library makes, and of its objects."""
    module = ModuleType("declared")
    used = ("dataclass", "field", "InitVar", "KW_ONLY")
    vars(module).update({one: getattr(library, one) for one in used})
    sys.modules[module.__name__] = module  # for `pickle`
    exec(source, vars(module))
    cls = getattr(module, name)
    seen = Seen()
    seen.note("called wrongly", lambda: cls(*"abcdefghijklmnopqrstuvw"))
    parameters = inspect.signature(cls).parameters.values()
    seen.note("parameters", lambda: [(one.name, one.kind) for one in parameters])
    taken = {one.name: given[one.name] for one in parameters if one.name in given}
    seen.note("called without", cls)
    made = seen.note("called", lambda: cls(**taken))
    seen.note(
        "by position", lambda: cls(*[taken.pop(one, 0) for one in cls.__match_args__], **taken)
    )
    see_class(seen, library, cls)
    if made is not None:
        see_object(seen, library, made, other)
    return seen


def see_class(seen: Seen, library: Any, cls: Any) -> None:
    for one in library.fields(cls):
        facts = (one.type, one.init, one.repr, one.compare, dict(one.metadata), one.kw_only)
        has = [one.default is not library.MISSING, one.default_factory is not library.MISSING]
        seen.note(f"field {one.name}", lambda: (facts, has))  # noqa: B023 -- called at once
    seen.note("class", lambda: (cls.__match_args__, vars(cls).get("__slots__"), cls.__qualname__))
    seen.note("text", lambda: (cls.__doc__, cls.__module__, cls.__hash__ is None))
    for name in "abcdefwxyz":
        value = getattr(cls, name, None)
        seen.note(f"attribute {name}", lambda: type(value) is MemberDescriptorType or value)  # noqa: B023


def see_object(seen: Seen, library: Any, made: Any, other: Any) -> None:
    first = [one.name for one in library.fields(made) if one.init and one.name != "noted"][:1]
    changes = dict.fromkeys(first, other)
    same, changed = copy.copy(made), seen.note("replaced", lambda: library.replace(made, **changes))
    seen.note("as dict", lambda: library.asdict(made))
    seen.note("deep copy", lambda: copy.deepcopy(made))
    seen.note("pickled", lambda: pickle.loads(pickle.dumps(made)))
    seen.note("copied", lambda: same)
    seen.note("equal", lambda: (made == made, made == same, made == changed, made == 1))  # noqa: PLR0124
    seen.note("hash", lambda: (hash(made) == hash(same), {made: 1}[made]))
    for name in [one.name for one in library.fields(made)]:
        copied = copy.copy(made)
        seen.note(f"set {name}", lambda: setattr(copied, name, 5))  # noqa: B023 -- called at once
        seen.note(f"with {name}", lambda: copied)  # noqa: B023 -- the same
        seen.note(f"delete {name}", lambda: delattr(copied, name))  # noqa: B023 -- the same


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Base", "Child"])
@settings(max_examples=100, deadline=None)
@given(
    source=sources(),
    given=st.fixed_dictionaries(dict.fromkeys(GIVEN, VALUES)),
    other=VALUES,
)
def test_a_class_is_what_the_standard_library_makes_of_it(
    name: str, source: str, given: dict[str, Any], other: Any
) -> None:
    assert observe(ours, source, name, given, other) == observe(
        dataclasses, source, name, given, other
    )


@dataclass(frozen=True, slots=True)
class Point:
    """A point."""

    x: float
    y: float = 0.0


class Pair(NamedTuple):
    """Two of them."""

    one: Point
    other: list[Point]


@dataclass(slots=True)
class Node:
    """An object that may hold itself."""

    below: Node | Pair | None = None
    names: dict[str, Point] = field(default_factory=dict)


def test_the_standard_library_knows_these_classes() -> None:
    """Those who ask it, such as pytest and rich, are told of fields; its functions work."""
    assert dataclasses.is_dataclass(Point)
    assert [one.name for one in dataclasses.fields(Point)] == ["x", "y"]
    assert dataclasses.fields(Point)[1].default == 0.0
    assert dataclasses.replace(Point(1), y=2) == Point(1, 2)
    assert dataclasses.asdict(Node(names={"a": Point(1)}))["names"] == {"a": {"x": 1, "y": 0.0}}
    assert "Point(x=1, y=0.0)" in pprint.pformat(Point(1))


def test_a_standard_dataclass_may_inherit_from_one() -> None:
    @dataclasses.dataclass(frozen=True)
    class Space(Point):
        z: float = 3.0

    assert repr(Space(1)).endswith("Space(x=1, y=0.0, z=3.0)")


def test_dataclasses_within_others_become_plain() -> None:
    node = Node(Pair(Point(1), [Point(2)]), {"a": Point(3)})
    copied = dataclasses.make_dataclass("Node", ["below", "names"])(node.below, node.names)
    assert ours.asdict(node) == dataclasses.asdict(copied)
    assert ours.asdict(node)["names"] is not node.names


def test_an_object_that_holds_itself_can_be_shown() -> None:
    node = Node()
    node.below = node
    assert repr(node) == "Node(below=..., names={})"


def test_a_frozen_object_takes_no_other_attribute() -> None:
    """The standard library's refuses with a `TypeError` that speaks of `super`."""
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'z'"):
        setattr(Point(1), "z", 1)  # noqa: B010 -- mypy knows that it cannot be


def test_a_plain_class_may_add_attributes_to_a_frozen_one() -> None:
    class Named(Point):
        name: str

    named = Named(1)
    named.name = "here"
    assert (named, named.name) == (Named(1), "here")
    del named.name
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del named.x


def test_objects_of_two_classes_are_never_equal() -> None:
    class Named(Point):
        pass

    assert Point(1) != Named(1)
    assert Named(1) != Point(1)
    assert Point(1) == Point(1)


def test_methods_that_a_class_has_stay() -> None:
    @dataclass(frozen=True, slots=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

        def __hash__(self) -> int:
            return 7

    assert (repr(Named("alice")), hash(Named("alice"))) == ("alice", 7)


def test_a_default_that_all_objects_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Named\.names has a default that all would share"):

        @dataclass
        class Named:
            names: list[str] = []  # noqa: RUF012 -- it is what is refused


def test_fields_of_an_object_are_those_of_its_class() -> None:
    assert [one.name for one in fields(Point(1))] == [one.name for one in fields(Point)]


def test_who_asks_for_parameters_before_the_first_object_is_told() -> None:
    @dataclass
    class Named:
        name: str = ""

    assert list(inspect.signature(Named).parameters) == ["name"]


def test_all_can_be_made_before_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no child makes its own."""

    @dataclass
    class Named:
        name: str = ""

    module = ModuleType("prepared.one")
    vars(module).update(Named=Named, some=[1])
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert not inspect.isfunction(vars(Named)["__init__"])
    prepare("prepared")
    assert inspect.isfunction(vars(Named)["__init__"])
