"""The kinds of setting values, and the rules by which one value allows more than another.

A kind checks a value, describes valid values and converts a value for the program.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import shlex
import stat
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from teamd.errors import BadName
from teamd.messages import LEAD, NAME, check_name
from teamd.model_server.facts import EFFORTS

MAX_WHOLE: Final = 2**31 - 1
MAX_TOKENS: Final = 10**15  # the tokens of a year exceed `MAX_WHOLE`
MAX_USD: Final = 1_000_000_000
MAX_SECONDS: Final = 1_000_000  # eleven days; select(2) and poll(2) accept at most 24
# From one host to another:
HOST_REQUESTS: Final = ("spawn", "shutdown", "interrupt", "pause", "resume")
SHOWN_CHARACTERS: Final = 60
_SHOWN_NUMBER: Final = 10**18
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def quoted(text: str) -> str:
    """Return the text in double quotes, cut after 60 characters, safe for a terminal."""
    cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
    escaped = cut.replace("\\", r"\\").replace('"', r"\"")
    return f'"{printable(escaped)}"'


def printable(text: str) -> str:
    """Return the text on one line, with control characters escaped."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def bare(key: str) -> str:
    """Return a key as TOML spells it, in quotes only if necessary."""
    return key if _BARE_KEY.fullmatch(key) else quoted(key)


def shown(value: object) -> str:
    """Return a value from TOML in a few words."""
    match value:
        case str():
            return quoted(value)
        case bool():
            return str(value).lower()
        case int() if abs(value) >= _SHOWN_NUMBER:  # Python may refuse to convert it to text
            return "a number of that size"
        case int() | float():
            return str(value)
    nouns: dict[type, str] = {list: "a list", dict: "a table"}
    return nouns.get(type(value), "a date or a time")


class Wrong(Exception):
    """A value is refused; `str()` follows the key in the sentence about it."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of value.

    Attributes:
        must_be: describes such a value, after the words `must be`.
        fits: whether a value is of this kind; it may raise `Wrong` to say more.
        make: converts a valid value for the program, given the folder to which paths are relative.
    """

    must_be: str
    fits: Callable[[Any], bool]
    make: Callable[[Any, Path], Any] = lambda value, _: value

    def read(self, value: Any, folder: Path) -> Any:
        """Return the converted value.

        Raises:
            Wrong: the value is not of this kind.
        """
        if not self.fits(value):
            raise Wrong(f"must be {self.must_be}, not {shown(value)}")
        return self.make(value, folder)


def _integer(must_be: str, least: int, most: int) -> ValueKind:
    """Integers; the description ends with the largest."""
    return ValueKind(
        f"{must_be} {most}", lambda value: type(value) is int and least <= value <= most
    )


def _number(must_be: str, most: float, *, zero: bool = True) -> ValueKind:
    """Numbers from 0, or above 0; NaN does not fit. The description ends with the largest."""

    def fits(value: Any) -> bool:
        return type(value) in (int, float) and 0 <= value <= most and (zero or value > 0)

    return ValueKind(f"{must_be} {most}", fits, lambda value, _: float(value))


def _one_of(*choices: str) -> ValueKind:
    *first, last = map(quoted, choices)
    return ValueKind(f"{', '.join(first)} or {last}", lambda value: value in choices)


def _matching(must_be: str, pattern: str | re.Pattern[str]) -> ValueKind:
    """Text that a pattern matches; it is compiled at its first use."""

    def fits(value: Any) -> bool:
        return isinstance(value, str) and re.fullmatch(pattern, value) is not None

    return ValueKind(must_be, fits)


def _list_of(
    must_be: str,
    fits: Callable[[str], object],
    make: Callable[[str, Path], Any] = lambda one, _: one,
) -> ValueKind:
    """A list of text, which becomes a tuple."""

    def all_fit(value: Any) -> bool:
        if not isinstance(value, list):
            return False
        for one in value:
            if not (isinstance(one, str) and fits(one)):
                raise Wrong(f"must be {must_be}; {shown(one)} cannot be in it")
        return True

    return ValueKind(must_be, all_fit, lambda value, base: tuple(make(one, base) for one in value))


def _existing(noun: str, is_one: Callable[[int], bool]) -> ValueKind:
    """A folder or a file that exists, as an absolute path without links."""
    must_be = f"the path of a {noun}"

    def resolved(value: str, folder: Path) -> Path:
        try:
            path = (folder / value).resolve()
            exists = False
            with suppress(FileNotFoundError, NotADirectoryError):
                exists = is_one(path.stat().st_mode)
        except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, or circular links
            raise Wrong(f"must be {must_be}, not {shown(value)}") from error
        if not exists:
            where = printable(str(path))
            raise Wrong(f"names no {noun}: {where} does not exist; make it or name another")
        return path

    return ValueKind(
        must_be, lambda value: isinstance(value, str) and bool(value.strip()), resolved
    )


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    if "\0" in value:
        raise Wrong("must not hold a NUL character; leave it out")
    return True


def _is_teammate_name(value: Any) -> bool:
    try:
        return TEAM_NAME.fits(value) and bool(check_name(value))
    except BadName as bad:
        raise Wrong(f"is refused: {bad}") from bad


def _is_address(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    if not re.fullmatch(r"(?i)https?://[^\s/?#]+(?:/[^\s?#]*)?", value):
        return False
    if value.rstrip("/").endswith("/v1"):
        raise Wrong("must not end in /v1, which is added to it; leave /v1 out")
    return True


def _are_headers(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    for name, line in value.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):  # RFC 9110, 5.6.2: token
            raise Wrong(f"must be {HEADERS.must_be}; {bare(name)} cannot be a header's name")
        # RFC 9110, 5.5, ASCII only
        if not isinstance(line, str) or not re.fullmatch(r"(?:[!-~](?:[\t -~]*[!-~])?)?", line):
            raise Wrong(f"must be {HEADERS.must_be}; that of {bare(name)} is not")
    return True


def _is_command(value: Any) -> bool:
    if not _is_text(value):
        return False
    if set(";&|()<>$`\n") & set(value):
        raise Wrong(
            'must be the first words of one command, such as "git push", without shell operators'
        )
    try:
        return bool(shlex.split(value))
    except ValueError as error:
        raise Wrong("has a quote that is not closed; close it") from error


def _are_variables(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    for name in value:
        if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)):
            # Not shown: `KEY=value` may be a secret.
            raise Wrong(f"must be {VARIABLES.must_be}; one of them is not such a name")
    return True


def _is_glob(value: Any) -> bool:
    if not _is_text(value):
        return False
    if value.startswith(("/", "~")) or ".." in value.split("/"):
        raise Wrong("must be relative to the workspace, and in it")
    return True


def _is_place(path: str) -> bool:
    """Return whether a path is relative and stays within its folder."""
    parts = Path(path).parts
    return bool(parts) and "\0" not in path and parts[0] != "/" and ".." not in parts


def _make_absolute(path: str, folder: Path) -> Path:
    # Without `..`, because the parents of a folder are compared by name.
    try:
        return Path(os.path.normpath(folder / Path(path).expanduser()))
    except RuntimeError as error:  # an unknown user, or a user without a home folder
        raise Wrong("has a path with `~`, and that home is not known; write it out") from error


def _is_server(value: str) -> bool:
    """Return whether a connection to this address can be tried."""
    try:
        parts = urlsplit(value)
        matches = re.fullmatch(r"(?:nats|tls)://[^\s/?#@]+", value)
        return bool(matches and parts.hostname and parts.port != 0)
    except ValueError:  # a bad port, or a number of IPv6 without its brackets
        return False


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def sends_plaintext(server: str) -> bool:
    """Return whether mail would leave this machine without TLS."""
    parts = urlsplit(server)
    return parts.scheme == "nats" and not is_loopback(parts.hostname or "")


def _is_allowance(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    for request, hosts in value.items():
        if request not in HOST_REQUESTS:
            known = ", ".join(HOST_REQUESTS)
            raise Wrong(f"must be {ALLOWANCE.must_be}; {bare(request)} is not one of: {known}")
        if not isinstance(hosts, list) or not all(map(TEAM_NAME.fits, hosts)):
            raise Wrong(f"must be {ALLOWANCE.must_be}; {bare(request)} is not a list of host names")
    return True


def _allowance(value: dict[str, list[str]], _: Path) -> MappingProxyType[str, tuple[str, ...]]:
    return MappingProxyType({one: tuple(map(str.lower, hosts)) for one, hosts in value.items()})


FLAG: Final = ValueKind("true or false", lambda value: isinstance(value, bool))

WHOLE: Final = _integer("a whole number from 1 to", 1, MAX_WHOLE)
COUNT: Final = _integer("a whole number from 0, for no limit, to", 0, MAX_WHOLE)
COPIES: Final = _integer("a whole number from 1 to", 1, 5)
TOKENS: Final = _integer("a whole number from 0, for no limit, to", 0, MAX_TOKENS)
RATE: Final = _number("a number of USD from 0 to", MAX_USD)
USD: Final = _number("a number of USD from 0, for no limit, to", MAX_USD)
SECONDS: Final = _number("a number of seconds above 0 and up to", MAX_SECONDS, zero=False)
SECONDS_OR_ZERO: Final = _number("a number of seconds of at least 0 and up to", MAX_SECONDS)
SHARE: Final = _number("a number above 0 and up to", 1, zero=False)

EFFORT: Final = _one_of(*EFFORTS)
TOOL_SET: Final = _one_of("all", "basic")
DURABILITY: Final = _one_of("disk", "os")
CACHE_TTL: Final = _one_of("auto", "5m", "1h")
SANDBOX: Final = _one_of("auto", "bubblewrap", "external", "off")
THEN: Final = _one_of("allow", "ask", "deny")

TEXT: Final = ValueKind("non-empty text", _is_text)
COMMAND: Final = ValueKind("non-empty text", _is_text)  # a file that teamd runs outside the sandbox
CHECK: Final = ValueKind(
    'a command such as "pytest -q", or "" for none', lambda value: value == "" or _is_text(value)
)
COMMAND_PREFIX: Final = ValueKind('the first words of a command, such as "git push"', _is_command)
BRANCH: Final = _matching(
    'the name of a branch, such as "team/main"',
    r"(?a)(?!refs/|HEAD$)(?!.*(?:\.\.|//|/\.|\.lock(?:/|$)|\.$))"
    r"[A-Za-z0-9_][A-Za-z0-9_./+-]*(?<!/)",
)
REMOTE: Final = _matching(
    'the name of a remote, such as "origin", or "" for none',
    r"(?a)(?!.*(?:\.\.|//))(?:[A-Za-z0-9_][A-Za-z0-9_./+-]*)?",
)
ADDRESS: Final = ValueKind("an address that begins with http:// or https://", _is_address)
HEADERS: Final = ValueKind(
    "a table of headers, each one line of ASCII text",
    _are_headers,
    lambda value, _: MappingProxyType(dict(value)),
)

TEAM_NAME: Final = _matching("up to 64 of A-Z a-z 0-9 _ - with a letter or digit first", NAME)
TEAMMATE_NAME: Final = ValueKind(TEAM_NAME.must_be, _is_teammate_name)
TEAMMATE_PATTERN: Final = _matching(
    'a teammate\'s name, or a pattern such as "*"', r"[A-Za-z0-9*?][A-Za-z0-9_*?-]{0,63}"
)
TOOL: Final = _matching('a tool\'s name, or a pattern such as "*_file"', r"[a-z_*?]{1,128}")
APPROVERS: Final = _list_of(
    'a list of agents, of which there is one: ["lead"]', lambda name: name == LEAD
)
VARIABLES: Final = ValueKind(
    'a list of names of environment variables, such as ["PATH"]',
    _are_variables,
    lambda value, _: tuple(value),
)

FOLDER: Final = _existing("folder", stat.S_ISDIR)
FILE: Final = _existing("file", stat.S_ISREG)
# It need not exist: without it only mail to other hosts waits.
PEM: Final = ValueKind(
    "the path of a file",
    lambda value: isinstance(value, str) and bool(value.strip("\0 ")),
    lambda value, folder: Path(os.path.normpath(folder / value)),
)
FOLDERS: Final = _list_of(
    'a list of folders, such as ["~/datasets", "/srv/docs"]',
    lambda path: path.strip() and "\0" not in path,
    _make_absolute,
)
PATH: Final = ValueKind('a pattern of paths, such as "docs/**"', _is_glob)
PLACES: Final = _list_of(
    'a list of relative paths in the workspace, such as ["deploy", "config/prod.yml"]', _is_place
)
PATTERNS: Final = _list_of(
    'a list of relative patterns of paths in the workspace, such as ["tests/**", ".ci/**"]',
    _is_place,
    lambda path, _: os.path.normpath(path),  # git does not accept `./`
)

# A name, in which a star matches all text before the first dot, and a port.
HOST_NAMES: Final = _list_of(
    'a list of host names, such as ["docs.example.org", "*.example.org", "localhost:8080"]',
    lambda name: re.fullmatch(
        r"(?i)(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)*"
        r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?(?::[0-9]{1,5})?",
        name,
    ),
    lambda name, _: name.lower(),
)
HOST: Final = ValueKind(TEAM_NAME.must_be, TEAM_NAME.fits, lambda name, _: name.lower())
SERVERS: Final = _list_of(
    'a list of addresses, such as ["tls://10.0.0.1:4222"] or ["tls://[fd00::1]:4222"]', _is_server
)
ALLOWANCE: Final = ValueKind(
    'a table of lists of hosts, such as { spawn = ["h1"] }', _is_allowance, _allowance
)


REQUIRED: Final = MISSING
Loosens: TypeAlias = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The declaration of a setting besides its name, type and default.

    Attributes:
        kind: checks its values.
        about: explains it in `team.toml`.
        example: is shown there if it has no default.
        loosens: for a protective setting: whether one value allows more than another. Such a value
            counts only in a file that the person has confirmed.
    """

    kind: ValueKind
    about: str
    example: str | int | None = None
    loosens: Loosens | None = None


def setting(
    default: Any,
    kind: ValueKind,
    about: str,
    example: str | int | None = None,
    *,
    loosens: Loosens | None = None,
) -> Any:
    """Declare a dataclass field that is a setting; `REQUIRED` means that it has no default."""
    key = Key(kind=kind, about=about, example=example, loosens=loosens)
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, metadata={"key": key})
    return field(default=default, metadata={"key": key})


def keys_of(section: type[Any]) -> dict[str, Key]:
    """Return the settings of one section, in their order."""
    return {declared.name: declared.metadata["key"] for declared in fields(section)}


def always(_value: object, _base: object) -> bool:
    """Any value: for a key without a default, such as a price, whose whole table then waits."""
    return True


def if_set(value: object, _base: object) -> bool:
    """A value that is not empty: an address, a command, a flag, a list."""
    return bool(value)


def higher(value: float, base: float) -> bool:
    """A higher number."""
    return value > base


def higher_limit(value: float, base: float) -> bool:
    """A higher number, or 0, which means no limit."""
    return (value or math.inf) > (base or math.inf)


def added(value: Collection[str], base: Collection[str]) -> bool:
    """A list with an entry that the other lacks."""
    return not set(value) <= set(base)


def removed(value: Collection[str] | None, base: Collection[str] | None) -> bool:
    """A list that lacks an entry of the other."""
    return not set(value or ()) >= set(base or ())


def replaced(value: object, base: object) -> bool:
    """A different value of a protective setting."""
    return bool(base) and value != base


def outside(value: Path, base: Path) -> bool:
    """A folder that is not within another, or hidden there, like `.git` and `.vscode`."""
    if not value.is_relative_to(base):
        return True
    return any(part.startswith(".") for part in value.relative_to(base).parts)


def allows(value: object, _base: object) -> bool:
    """A rule that allows calls without asking."""
    return value == "allow"


def disables_sandbox(value: object, _base: object) -> bool:
    """A value that removes the sandbox around commands."""
    return value in ("external", "off")


def switched_off(value: object, base: object) -> bool:
    """A protection that was on."""
    return bool(base) and not value


def switched_off_here(value: object, base: object) -> bool:
    """A protection that was on, or that a missing key left to the team's decision."""
    strength: dict[object, int] = {True: 2, None: 1, False: 0}
    return strength[value] < strength[base]
