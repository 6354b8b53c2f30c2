"""Commands as they are declared: click is built from them, and plain calls do without it.

To load click takes longer than most commands take. So its decorators stand here by their names,
and note what they are given. A call that says nothing but names, values and options as they are
declared is understood here; any other, with all help and all mistakes, is click's, which gets the
same declarations, see `click_commands`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Final, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

_NOTED: Final = "declared_parameters"  # an attribute of a command's function
# Settings of parameters by which a value that is not given, or is a text, stays what it is.
_HARMLESS: Final = frozenset(
    {"callback", "default", "help", "hidden", "is_flag", "metavar", "required", "shell_complete",
     "show_default", "type"}
)  # fmt: skip


class ValueType:
    """A type of values that click is to make.

    Args:
        name: of click's class, or of one in `click_commands`.
        bounds: its arguments, by position.
        named: those by name.
    """

    __slots__ = ("bounds", "name", "named")

    def __init__(self, name: str, *bounds: Any, **named: Any) -> None:
        self.name = name
        self.bounds = bounds
        self.named = named

    def read(self, word: str) -> int | None:
        """Return what a word means; `None` where click has to say."""
        if self.name != "IntRange" or self.named.keys() != {"min"} or self.bounds:
            return None
        least: int = self.named["min"]
        # More digits than Python reads are a mistake to be told.
        plain = word.isascii() and word.isdigit() and len(word) < 10  # noqa: PLR2004 -- see above
        return int(word) if plain and int(word) >= least else None


class Parameter:
    """An option or an argument.

    Attributes:
        names: as click is given them.
        settings: the same.
        name: of the function's parameter.
        flag: whether it is an option without a value.
        many: whether it is an argument that takes all words that are left.
        known: whether it is understood here.
    """

    __slots__ = ("flag", "known", "many", "name", "names", "option", "settings")

    def __init__(self, names: tuple[str, ...], settings: dict[str, Any], *, option: bool) -> None:
        self.names = names
        self.settings = settings
        self.option = option
        own = [name for name in names if not name.startswith("-")]
        # click's rule: the first of the names with most dashes.
        longest = max(names, key=lambda name: name[:2].count("-"))
        self.name = own[0] if own else longest.lstrip("-").replace("-", "_").lower()
        self.flag = bool(settings.get("is_flag"))
        self.many = not option and settings.get("nargs") == -1
        known = _HARMLESS | {"nargs"} if self.many else _HARMLESS
        self.known = settings.keys() <= known and not any("/" in name for name in names)

    @property
    def required(self) -> bool:
        """Return whether there must be a value."""
        return bool(
            self.settings.get("required", not self.option and "default" not in self.settings)
        )

    def default(self) -> Any:
        """Return what the function gets where nothing is given."""
        nothing: Any = () if self.many else False if self.flag else None
        return self._passed(self.settings.get("default", nothing))

    def read(self, word: str) -> Any:
        """Return what the function gets for a word; `None` where click has to say."""
        kind = self.settings.get("type")
        if kind is None:
            textual = isinstance(self.settings.get("default", ""), str | None)  # click asks it, too
            value: Any = word if textual else None
        else:
            value = kind.read(word)
        return None if value is None else self._passed(value)

    def _passed(self, value: Any) -> Any:
        callback = self.settings.get("callback")
        return value if callback is None else callback(None, None, value)


_WHICH_FILE: Final = "The settings file  [default: the team's own team.toml, else the project's]."
_WHICH_FOLDER: Final = "The team directory  [default: $TEAMD_DIR, else .team/ here or above]."
TEAM_OPTIONS: Final = tuple(
    Parameter((name,), {"metavar": metavar, "help": text}, option=True)
    for name, metavar, text in (
        ("--config", "FILE", _WHICH_FILE),
        ("--team-dir", "DIR", _WHICH_FOLDER),
        ("--team", "NAME", "The team .teams/NAME/ of this project."),
    )
)
TEAM_NAMES: Final = tuple(one.name for one in TEAM_OPTIONS)


class Command:
    """A command and what it takes.

    Attributes:
        run: the function; gets a `Choice` first where it takes the options of a team.
        parameters: in the order in which the decorators were applied.
        for_team: whether it takes those options.
        needs_click: whether it asks click for what it runs in.
    """

    __slots__ = ("for_team", "needs_click", "parameters", "run")

    def __init__(self, run: Callable[..., Any], *, needs_click: bool = False) -> None:
        self.run = run
        self.parameters: list[Parameter] = getattr(run, _NOTED, [])
        self.for_team = TEAM_OPTIONS[0] in self.parameters
        self.needs_click = needs_click

    def read(self, words: Sequence[str]) -> dict[str, Any] | None:
        """Return what a call gives each parameter; `None` where that is for click to say."""
        if self.needs_click or not all(one.known for one in self.parameters):
            return None
        options = {name: one for one in self.parameters if one.option for name in one.names}
        found: dict[str, Any] = {}
        given: list[str] = []
        rest = iter(words)
        for word in rest:
            if not word.startswith("-") or word == "-":
                given.append(word)
            elif not _read_option(options.get(word), rest, found):
                return None
        return found if self._fill(found, given) else None

    def _fill(self, found: dict[str, Any], given: list[str]) -> bool:
        """Add arguments and defaults; returns whether the arguments are as they should be."""
        arguments = [one for one in reversed(self.parameters) if not one.option]
        least = sum(one.required for one in arguments)
        many = arguments.pop() if arguments and arguments[-1].many else None
        rest = given[len(arguments) :]
        if len(given) < least or "" in given or (rest and many is None):
            return False
        for one, word in zip(arguments, given, strict=False):
            found[one.name] = one.read(word)
            if found[one.name] is None:
                return False
        if many is not None and rest:
            found[many.name] = tuple(rest)
        for one in self.parameters:
            if one.name not in found:
                if one.option and one.required:
                    return False
                found[one.name] = one.default()
        return True


class Group:
    """A command that has others below it.

    Attributes:
        run: its function, called before that of the other.
        commands: those below it, by their names.
    """

    def __init__(self, run: Callable[..., Any], **settings: Any) -> None:
        self.itself = Command(run)
        self.settings = settings
        self.commands: dict[str, Command] = {}

    def command(self) -> Callable[[Callable[..., Any]], Command]:
        """Declare a command below this one, as click's decorator does."""

        def declare(run: Callable[..., Any]) -> Command:
            made = self.commands[run.__name__] = Command(run)
            return made

        return declare


def command(*, needs_click: bool = False) -> Callable[[Callable[..., Any]], Command]:
    """Declare a command, as click's decorator does."""
    return lambda run: Command(run, needs_click=needs_click)


def group(**settings: Any) -> Callable[[Callable[..., Any]], Group]:
    """Declare a group, as click's decorator does."""
    return lambda run: Group(run, **settings)


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Declare an option, as click's decorator does."""
    return _noting(Parameter(names, settings, option=True))


def argument(*names: str, **settings: Any) -> Callable[[F], F]:
    """Declare an argument, as click's decorator does."""
    return _noting(Parameter(names, settings, option=False))


def team_options(run: F) -> F:
    """Add the options that name a team; the function gets the `Choice` that they make.

    They may stand before or behind the command's name.
    """
    for one in TEAM_OPTIONS:
        _noting(one)(run)
    return run


def split_team_options(words: Sequence[str]) -> tuple[dict[str, Any], Sequence[str]]:
    """Return what the options before a command's name say, and the words from there on."""
    found: dict[str, Any] = dict.fromkeys(TEAM_NAMES)
    options = {one.names[0]: one for one in TEAM_OPTIONS}
    given: dict[str, Any] = {}
    rest = list(words)
    while rest and _read_option(options.get(rest[0]), iter(rest[1:]), given):
        rest = rest[2:]
    return found | given, rest


def _read_option(one: Parameter | None, rest: Any, found: dict[str, Any]) -> bool:
    """Read an option's value; returns whether it could be understood."""
    if one is None or one.name in found:
        return False
    if one.flag:
        found[one.name] = one._passed(True)  # noqa: SLF001
        return True
    word = next(rest, "")
    if not word or word.startswith("-"):
        return False
    found[one.name] = one.read(word)
    return found[one.name] is not None


def _noting(one: Parameter) -> Callable[[F], F]:
    def note(run: F) -> F:
        if not hasattr(run, _NOTED):
            setattr(run, _NOTED, [])
        getattr(run, _NOTED).append(one)
        return run

    return note
