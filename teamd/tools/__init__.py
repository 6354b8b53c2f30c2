"""Tools of teammates: a tool is a small class, a `Toolbox` the set that one teammate has."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from teamd.masking import Mask
from teamd.messages import new_id
from teamd.settings.known_tools import MISSING, TOOLS, UNKNOWN, KnownTool
from teamd.tools.output import clip

if TYPE_CHECKING:
    from teamd.tools.context import ToolContext

# Of one result, however long a list or a name in it is; [tools] output_bytes mostly is far less.
_MOST_BYTES: Final = 1 << 22
NO_OUTPUT: Final = "(no output)"  # the result of a call that has nothing to say
_KEYWORDS: Final = ("type", "description", "enum", "default", "items", "properties", "required")


class ToolError(Exception):
    """A tool's failure: `str()` is a sentence that tells the model how to go on."""


class PermissionPending(Exception):
    """A call waits for a person's permission; `str()` tells how to give it.

    Attributes:
        request: the id of the request.
        deadline: when the request expires, in seconds since the epoch.
    """

    def __init__(self, request: str, why: str, deadline: float) -> None:
        super().__init__(why)
        self.request = request
        self.deadline = deadline


class Input(BaseModel):
    """Input of a tool. Unknown keys are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def identity(self) -> dict[str, Any]:
        """Return the values that identify this call: two calls with equal values do the same.

        Values are parsed and defaults filled in, so that the spelling makes no difference.
        """
        return self.model_dump(mode="json")


class CommandInput(Input):
    """A command that some other call has run, as the rules for `bash` see it."""

    command: str


InputT = TypeVar("InputT", bound=Input)
_BASH: Final = "bash"


class Tool(Generic[InputT]):
    """One thing that a teammate can do; its type parameter becomes `Input`.

    A class in this package with a name in `settings.known_tools` is a tool of the program. Each
    parameter of its constructor is a field of `ToolContext`.

    Attributes:
        name: matches `[a-zA-Z0-9_-]{1,128}`.
        description: the text about it for the model.
        Input: declares the input: schema, checks and error sentence follow from it.
        facts: from the registry; a tool that is not in it counts as acting, and everybody has it.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    Input: type[InputT]
    facts: ClassVar[KnownTool] = UNKNOWN

    def __init_subclass__(cls) -> None:
        """Take the declaration of the input from the type parameter; find the facts by the name."""
        super().__init_subclass__()
        if "facts" not in vars(cls):
            cls.facts = TOOLS.get(vars(cls).get("name", ""), cls.facts)
        (cls.Input,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]

    @classmethod
    @cache  # 20 ms for all tools, and the same for every teammate
    def describe(cls) -> dict[str, Any]:
        """Return the tool's entry in a request; callers must not change it."""
        # The docstring of the input says less than the tool's description.
        schema = _slim(cls.Input.model_json_schema() | {"description": ""})
        return {"name": cls.name, "description": cls.description, "input_schema": schema}

    @classmethod
    def make(cls, context: ToolContext) -> Self:
        """Make the tool of one teammate."""
        names = inspect.signature(cls).parameters
        return cls(**{name: getattr(context, name) for name in names})

    def command_of(self, arguments: InputT, /) -> str | None:  # noqa: ARG002 -- of some
        """Return a command that the call makes the program run later: it needs bash's permission.

        Only a few calls of a few tools have one.
        """
        return None

    def is_under_way(self, arguments: InputT, /) -> bool:  # noqa: ARG002 -- of some
        """Return whether the work that a call looks at, such as a job, has not ended yet."""
        return False

    async def recall(self, arguments: InputT, key: str, /) -> str:  # noqa: ARG002 -- of some
        """Return the known facts about a call during which the process was killed; may be empty."""
        return ""

    async def call(self, arguments: InputT, key: str, /) -> str:
        """Run the call and return the text for the model.

        Args:
            arguments: the model's input, validated.
            key: identifies this call; it is the same when the call is repeated after a crash.

        Raises:
            ToolError: it could not be done.
        """
        raise NotImplementedError


def _slim(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with only the keywords that help a model to write the input.

    Titles, bounds, empty defaults and `null` for an optional parameter cost tokens in each request.
    The input is checked against the whole declaration, and a mistake is explained to the model.
    """
    if choices := schema.get("anyOf"):
        (only,) = (choice for choice in choices if choice != {"type": "null"})
        schema = only | schema
    slim = {key: schema[key] for key in _KEYWORDS if schema.get(key)}
    if "items" in slim:
        slim["items"] = _slim(slim["items"])
    if "properties" in schema:
        slim["properties"] = {name: _slim(one) for name, one in schema["properties"].items()}
    return slim


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAccess:
    """The tools that a teammate may use.

    Attributes:
        workspace: those that reach the workspace; `None` for all.
        dropped: tools of any kind that it lacks.
    """

    workspace: frozenset[str] | None = None
    dropped: frozenset[str] = frozenset()

    def allows(self, tool: Tool[Any]) -> bool:
        """Return whether a tool may be used."""
        listed = not tool.facts.grantable or self.workspace is None or tool.name in self.workspace
        return listed and tool.name not in self.dropped


_EVERY_TOOL: Final = ToolAccess()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a call; `text` is never empty or blank, and its length is bounded."""

    text: str
    is_error: bool = False


class Toolbox:
    """The tools of one teammate, by name, in a fixed order.

    Args:
        tools: the tools, each with a unique name.
        gate: returns why an acting tool may not be used now, as a sentence; `None` if it may.
        mask: keeps secrets out of results, and out of text for others: only a tool that reaches the
            workspace gets the model's input unmasked.
        permit: raises an exception to stop a call; by default it allows all. It returns the
            approver's words, which the model reads above the result.
    """

    def __init__(
        self,
        tools: Iterable[Tool[Any]],
        *,
        gate: Callable[[str], str | None] | None = None,
        permit: Callable[[str, Input, str], str] = lambda *_: "",
        mask: Mask | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._gate = gate
        self._permit = permit
        self._mask = mask or Mask()
        # Made once: they are sent with every request, and must be the same bytes each time.
        self._schemas = [tool.describe() for tool in self._tools.values()]
        self._granted = _EVERY_TOOL
        self._shown = self._schemas  # for that grant

    def schemas(self, granted: ToolAccess = _EVERY_TOOL) -> list[dict[str, Any]]:
        """Return the `tools` of a request: name, description, `input_schema` (JSON Schema 2020-12).

        Returns:
            The same list for the same grant; callers must not change it.
        """
        if granted != self._granted:
            self._granted = granted
            self._shown = [one for one in self._schemas if self._has(one["name"], granted)]
        return self._shown

    def facts(self, name: str) -> KnownTool:
        """Return the facts about a tool; a call of one that does not exist changes nothing."""
        return self._tools[name].facts if name in self._tools else MISSING

    def parse(self, name: str, arguments: object) -> Input | None:
        """Return the validated input of a call; `None` if its tool is missing or refuses it."""
        if name not in self._tools:
            return None
        try:
            parsed: Input = self._tools[name].Input.model_validate(arguments)
        except ValidationError:
            return None
        return parsed

    def is_under_way(self, name: str, parsed: Input) -> bool:
        """Return whether the work that a call looks at, such as a job, has not ended yet."""
        return self._tools[name].is_under_way(parsed)

    def _has(self, name: str, granted: ToolAccess) -> bool:
        tool = self._tools.get(name)
        return tool is not None and granted.allows(tool)

    async def run(
        self,
        name: str,
        arguments: object,
        *,
        key: str = "",
        granted: ToolAccess = _EVERY_TOOL,
        begin: Callable[[], None] = lambda: None,
    ) -> Result:
        """Run one call to its end; every failure is a `Result`, never an exception.

        Args:
            name: the tool's.
            arguments: the model's input.
            key: identifies this call, see `Tool.call`; if empty, a new one is made.
            granted: which tools may run.
            begin: called right before the call runs, after all checks.

        Raises:
            PermissionPending: it waits for a person, and nothing was begun.
        """
        result = await self._run(name, arguments, key or new_id(), granted, begin)
        return replace(result, text=self._mask.text(result.text))

    async def recall(self, name: str, arguments: object, key: str) -> str:
        """Return the known facts about a call during which the process was killed; may be empty."""
        parsed = self.parse(name, arguments)
        try:
            said = "" if parsed is None else await self._tools[name].recall(parsed, key)
            return self._mask.text(_clean(said))
        except Exception as error:  # noqa: BLE001 -- the edge of every tool, see `_run`
            return _failure(error).text

    async def _run(
        self,
        name: str,
        arguments: object,
        key: str,
        granted: ToolAccess,
        begin: Callable[[], None],
    ) -> Result:
        if not self._has(name, granted):
            there = ", ".join(known for known in self._tools if self._has(known, granted))
            return Result(text=f"no tool named {name!r}; there are: {there}", is_error=True)
        tool = self._tools[name]
        if not tool.facts.grantable:
            arguments = self._mask.value(arguments)
        try:
            checked = tool.Input.model_validate(arguments)
        except ValidationError as error:
            return Result(text=_clean(_explain(tool, error)), is_error=True)
        try:
            said = self._check(tool, checked, key, granted)
        except PermissionPending:
            raise
        except Exception as error:  # noqa: BLE001 -- a check that fails opens nothing
            return _failure(error)
        begin()
        try:
            text = await tool.call(checked, key)
        # The edge of every tool: an unforeseen error is reported to the model and does not end the
        # teammate. A cancellation is not an `Exception` and passes.
        except Exception as error:  # noqa: BLE001
            return _failure(error, said)
        return Result(text=_clean(said + (text if text.strip() else NO_OUTPUT)))

    def _check(self, tool: Tool[Any], arguments: Input, key: str, granted: ToolAccess) -> str:
        """Raise an exception if a call may not run; return the approver's words."""
        self._check_gate(tool)
        said = self._permit(tool.name, arguments, key)
        if (command := tool.command_of(arguments)) is None:
            return said
        if not self._has(_BASH, granted):
            raise ToolError(f"{command!r} is a command, and you have no bash; mail lead about it")
        self._check_gate(self._tools[_BASH])
        return said + self._permit(_BASH, CommandInput(command=command), key)

    def _check_gate(self, tool: Tool[Any]) -> None:
        if (
            tool.facts.acts
            and self._gate is not None
            and (why := self._gate(tool.name)) is not None
        ):
            raise ToolError(why)


def _failure(error: Exception, said: str = "") -> Result:
    text = str(error)
    why = text if _clean(text).strip() else type(error).__name__
    return Result(text=_clean(said + why), is_error=True)


@cache
def load_tools() -> tuple[type[Tool[Any]], ...]:
    """Return the classes of all tools, in the order in which a model sees them."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    ours = [kind for kind in _kinds_of(Tool) if kind.__module__.startswith(f"{__name__}.")]
    by_name = {kind.name: kind for kind in ours if hasattr(kind, "name")}
    if unknown := by_name.keys() - TOOLS.keys():
        raise LookupError(f"settings/known_tools.py lacks the tools {', '.join(sorted(unknown))}")
    return tuple(by_name[name] for name in TOOLS)


def make_tools(context: ToolContext) -> Iterator[Tool[Any]]:
    """Yield the tools of a teammate."""
    for kind in load_tools():
        if not kind.facts.holder or kind.facts.holder in context.holder:
            yield kind.make(context)


def warm_up() -> None:
    """Make the schemas of all tools, so that forked children share them."""
    for tool in load_tools():
        tool.describe()


def _kinds_of(base: type[Tool[Any]]) -> Iterator[type[Tool[Any]]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds_of(kind)


def _clean(text: str) -> str:
    """Replace text that a request cannot carry: NULs, half surrogate pairs, too many characters."""
    return clip(text.encode(errors="replace"), _MOST_BYTES)


def _explain(tool: Tool[Any], error: ValidationError) -> str:
    wrong = "; ".join(
        f"{'.'.join(map(str, detail['loc'])) or 'input'}: {detail['msg']}"
        for detail in error.errors(include_url=False)
    )
    known = tool.Input.model_fields.items()
    fields = ", ".join(name if field.is_required() else f"{name}?" for name, field in known)
    return f"bad input for {tool.name}: {wrong}. It takes an object with: {fields or 'nothing'}"
