"""The kinds of values that a setting can have: each checks one and says what it must be."""

from __future__ import annotations

import math
import os
import re
import shlex
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from teamd.errors import BadName
from teamd.messages import LEAD, NAME, check_name
from teamd.model_server.facts import EFFORTS

BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
SHOWN_CHARACTERS: Final = 60
SHOWN_NUMBER: Final = 10**18


def quoted(text: str) -> str:
    """The text in double quotes, cut after 60 characters, what a terminal obeys escaped."""
    cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
    escaped = cut.replace("\\", r"\\").replace('"', r"\"")
    return f'"{printable(escaped)}"'


def printable(text: str) -> str:
    """The text on one line, with nothing in it that a terminal obeys."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def bare(key: str) -> str:
    """A key as it stands in a file."""
    return key if BARE_KEY.fullmatch(key) else quoted(key)


def shown(value: object) -> str:
    """A value of TOML in a few words."""
    match value:
        case str():
            return quoted(value)
        case bool():
            return str(value).lower()
        case int() if abs(value) >= SHOWN_NUMBER:  # Python may refuse to spell it
            return "a number of that size"
        case int() | float():
            return str(value)
    nouns: dict[type, str] = {list: "a list", dict: "a table"}
    return nouns.get(type(value), "a date or a time")


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


def disables_sandbox(value: object, _base: object) -> bool:
    """No sandbox around commands, whatever the reason."""
    return value in ("external", "off")


def switched_off(value: object, base: object) -> bool:
    """A guard that was on."""
    return bool(base) and not value


MAX_WHOLE: Final = 2**31 - 1
MAX_TOKENS: Final = 10**15
MAX_USD: Final = 1_000_000_000
MAX_SECONDS: Final = 1_000_000  # eleven days; the clocks of select(2) and poll(2) end at 24
# Patterns are compiled where a setting needs them: all of them take 3 ms of each start.
_BRANCH: Final = (
    r"(?a)(?!refs/|HEAD$)(?!.*(?:\.\.|//|/\.|\.lock(?:/|$)|\.$))"
    r"[A-Za-z0-9_][A-Za-z0-9_./+-]*(?<!/)"
)
_VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_HTTP_ADDRESS: Final = r"(?i)https?://[^\s/?#]+(?:/[^\s?#]*)?"
_HEADER_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110, 5.6.2: token
_HEADER_VALUE: Final = r"(?:[!-~](?:[\t -~]*[!-~])?)?"  # RFC 9110, 5.5, ASCII only
# A name, with a star for whatever stands before its first dot, and a port.
_HOST_NAME: Final = (
    r"(?i)(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
    r"(?::[0-9]{1,5})?"
)
_NAME_WORDS: Final = "up to 64 of A-Z a-z 0-9 _ - with a letter or digit first"
_TOOL_PATTERN: Final = r"[a-z_*?]{1,128}"
_NAME_PATTERN: Final = r"[A-Za-z0-9*?][A-Za-z0-9_*?-]{0,63}"
_SHELL_SIGNS: Final = frozenset(";&|()<>$`\n")
_HEADERS_WORDS: Final = "a table of headers, each one line of ASCII text"
_VARIABLES_WORDS: Final = 'a list of names of environment variables, such as ["PATH"]'


class Wrong(Exception):
    """A value that cannot stand.

    `str()` follows the key to make a sentence; it is empty where `must be …, not …` is enough.
    """


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of values: what one must be.

    Attributes:
        words: follow `must be`.
        fits: whether a value can stand; it may raise `Wrong` itself, to say more.
        make: turns one that fits into what the program uses; a path is relative to a folder.
    """

    words: str
    fits: Callable[[Any], bool]
    make: Callable[[Any, Path], Any] = lambda value, _: value

    def read(self, value: Any, folder: Path) -> Any:
        """Return the value as the program uses it; a path is relative to `folder`.

        Raises:
            Wrong: it is not of this kind.
        """
        if not self.fits(value):
            raise Wrong
        return self.make(value, folder)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    if _is_integer(value) and value > MAX_WHOLE:
        raise Wrong(f"must be a whole number of at most {MAX_WHOLE}")
    return _is_integer(value) and value >= 1


def _number(words: str, most: float, *, zero: bool = True) -> ValueKind:
    """A kind of numbers, whole or not, up to `most`, with which their words end."""

    def fits(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return 0 <= value <= most and (zero or value > 0)

    # What is not finite fits nothing.
    return ValueKind(f"{words} {most}", fits, lambda value, _: float(value))


def _is_branch(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(_BRANCH, value) is not None


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    if "\0" in value:
        raise Wrong("must not hold a NUL character; leave it out")
    return True


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _is_teammate_name(value: Any) -> bool:
    try:
        return _is_name(value) and bool(check_name(value))
    except BadName as bad:
        raise Wrong(f"is refused: {bad}") from bad


def _is_address(value: Any) -> bool:
    if not isinstance(value, str) or not re.fullmatch(_HTTP_ADDRESS, value):
        return False
    if value.rstrip("/").endswith("/v1"):
        raise Wrong("must not end in /v1, which is added to it; leave /v1 out")
    return True


def _are_headers(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    for name, line in value.items():
        if not re.fullmatch(_HEADER_NAME, name):
            raise Wrong(f"must be {_HEADERS_WORDS}; {bare(name)} cannot be a header's name")
        if not isinstance(line, str) or not re.fullmatch(_HEADER_VALUE, line):
            raise Wrong(f"must be {_HEADERS_WORDS}; that of {bare(name)} is not")
    return True


def _is_command(value: Any) -> bool:
    if not _is_text(value):
        return False
    if _SHELL_SIGNS & set(value):
        raise Wrong('must be the first words of one command, such as "git push", without signs')
    try:
        return bool(shlex.split(value))
    except ValueError as error:
        raise Wrong("has a quote that is not closed; close it") from error


def _is_glob(value: Any) -> bool:
    if not _is_text(value):
        return False
    if value.startswith(("/", "~")) or ".." in value.split("/"):
        raise Wrong("must be relative to the workspace, and in it")
    return True


def _are_approvers(value: Any) -> bool:
    return isinstance(value, list) and all(name == LEAD for name in value)


def _are_variables(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    if not all(isinstance(name, str) and re.fullmatch(_VARIABLE, name) for name in value):
        raise Wrong(f"must be {_VARIABLES_WORDS}; one of them is no such name")
    return True


def _are_host_names(value: Any) -> bool:
    return _is_list_of(value, lambda name: re.fullmatch(_HOST_NAME, name) is not None)


def _are_places(value: Any) -> bool:
    """Relative paths that stay within the folder they are relative to."""

    def fits(path: str) -> bool:
        parts = Path(path).parts
        return bool(parts) and "\0" not in path and parts[0] != "/" and ".." not in parts

    if isinstance(value, list) and not _is_list_of(value, fits):
        raise Wrong("must hold paths that are relative to the workspace, and in it")
    return isinstance(value, list)


def _are_folders(value: Any) -> bool:
    return _is_list_of(value, lambda path: bool(path.strip()) and "\0" not in path)


def _is_list_of(value: Any, fits: Callable[[str], bool]) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and fits(one) for one in value)


def _absolute(value: list[str], folder: Path) -> tuple[Path, ...]:
    # Without `..`: what a folder lies in is seen by its name.
    try:
        return tuple(Path(os.path.normpath(folder / Path(path).expanduser())) for path in value)
    except RuntimeError as error:  # no such user, or one without a home
        raise Wrong("has a path with `~`, and that home is not known; write it out") from error


FLAG: Final = ValueKind("true or false", lambda value: isinstance(value, bool))
WHOLE: Final = ValueKind("a whole number of at least 1", _is_whole)
# Over a year they are more than `WHOLE` takes.
TOKENS: Final = ValueKind(
    f"a whole number from 0, for no limit, to {MAX_TOKENS}",
    lambda value: _is_integer(value) and 0 <= value <= MAX_TOKENS,
)
COUNT: Final = ValueKind(
    f"a whole number from 0, for no limit, to {MAX_WHOLE}",
    lambda value: _is_integer(value) and 0 <= value <= MAX_WHOLE,
)
RATE: Final = _number("a number of USD from 0 to", MAX_USD)
USD: Final = _number("a number of USD from 0, for no limit, to", MAX_USD)
SECONDS: Final = _number("a number of seconds above 0 and up to", MAX_SECONDS, zero=False)
# 0 where that switches something off.
SECONDS_OR_ZERO: Final = _number("a number of seconds of at least 0 and up to", MAX_SECONDS)
SHARE: Final = _number("a number above 0 and up to", 1, zero=False)
TEXT: Final = ValueKind("non-empty text", _is_text)
COMMAND: Final = ValueKind("non-empty text", _is_text)  # what teamd itself runs
BRANCH: Final = ValueKind('the name of a branch, such as "team/main"', _is_branch)
CHECK: Final = ValueKind(
    'a command such as "pytest -q", or "" for none', lambda value: value == "" or _is_text(value)
)
EFFORT: Final = ValueKind(
    '"low", "medium", "high", "xhigh" or "max"', lambda value: value in EFFORTS
)
TOOL_SET: Final = ValueKind('"all" or "basic"', lambda value: value in ("all", "basic"))
DURABILITY: Final = ValueKind('"disk" or "os"', lambda value: value in ("disk", "os"))
CACHE_TTL: Final = ValueKind('"auto", "5m" or "1h"', lambda value: value in ("auto", "5m", "1h"))
TEAM_NAME: Final = ValueKind(_NAME_WORDS, _is_name)
TEAMMATE_NAME: Final = ValueKind(_NAME_WORDS, _is_teammate_name)
ADDRESS: Final = ValueKind("an address that begins with http:// or https://", _is_address)
HEADERS: Final = ValueKind(
    _HEADERS_WORDS, _are_headers, lambda value, _: MappingProxyType(dict(value))
)
SANDBOX: Final = ValueKind(
    '"auto", "bubblewrap", "external" or "off"',
    lambda value: value in ("auto", "bubblewrap", "external", "off"),
)
HOST_NAMES: Final = ValueKind(
    'a list of host names, such as ["docs.example.org", "*.example.org", "localhost:8080"]',
    _are_host_names,
    lambda value, _: tuple(name.lower() for name in value),
)
PLACES: Final = ValueKind(
    'a list of paths in the workspace, such as ["deploy", "config/prod.yml"]',
    _are_places,
    lambda value, _: tuple(value),
)
PATTERNS: Final = ValueKind(
    'a list of patterns of paths in the workspace, such as ["tests/**", ".ci/**"]',
    _are_places,
    lambda value, _: tuple(map(os.path.normpath, value)),  # git takes no `./`
)
FOLDERS: Final = ValueKind(
    'a list of folders, such as ["~/datasets", "/srv/docs"]', _are_folders, _absolute
)
TOOL: Final = ValueKind(
    'a tool\'s name, or a pattern such as "*_file"',
    lambda value: isinstance(value, str) and re.fullmatch(_TOOL_PATTERN, value) is not None,
)
COMMAND_PREFIX: Final = ValueKind('the first words of a command, such as "git push"', _is_command)
PATH: Final = ValueKind('a pattern of paths, such as "docs/**"', _is_glob)
TEAMMATE_PATTERN: Final = ValueKind(
    'a teammate\'s name, or a pattern such as "*"',
    lambda value: isinstance(value, str) and re.fullmatch(_NAME_PATTERN, value) is not None,
)
THEN: Final = ValueKind('"allow", "ask" or "deny"', lambda value: value in ("allow", "ask", "deny"))
APPROVERS: Final = ValueKind(
    'a list of agents, of which there is one: ["lead"]',
    _are_approvers,
    lambda value, _: tuple(value),
)
VARIABLES: Final = ValueKind(_VARIABLES_WORDS, _are_variables, lambda value, _: tuple(value))


def _existing(noun: str, is_one: Callable[[int], bool]) -> ValueKind:
    """A folder or a file that is there, as an absolute path without links."""

    def resolved(value: Any, folder: Path) -> Path:
        try:
            path: Path = (folder / value).resolve()
            there = False
            with suppress(FileNotFoundError, NotADirectoryError):
                there = is_one(path.stat().st_mode)
        except (OSError, ValueError, RuntimeError) as error:  # too long; a NUL; links in a circle
            raise Wrong from error
        if not there:
            where = printable(str(path))
            raise Wrong(f"names no {noun}: {where} is not there; make it or name another")
        return path

    return ValueKind(
        f"the path of a {noun}",
        lambda value: isinstance(value, str | Path) and bool(str(value).strip()),
        resolved,
    )


FOLDER: Final = _existing("folder", stat.S_ISDIR)
FILE: Final = _existing("file", stat.S_ISREG)
