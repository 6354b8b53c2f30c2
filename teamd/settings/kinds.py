"""The kinds of values that a setting can have: each checks one and says what it must be."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from teamd.errors import BadName
from teamd.messages import NAME, check_name
from teamd.settings.words import bare, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_WHOLE: Final = 2**31 - 1
MAX_TOKENS: Final = 10**15
MAX_USD: Final = 1_000_000_000
MAX_SECONDS: Final = 1_000_000  # eleven days; the clocks of select(2) and poll(2) end at 24
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ADDRESS: Final = re.compile(r"https?://[^\s/?#]+(?:/[^\s?#]*)?", re.IGNORECASE)
HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2: token
HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")  # RFC 9110, 5.5, ASCII only


class Wrong(Exception):
    """A value that cannot stand.

    `str()` follows the key to make a sentence; it is empty where `must be …, not …` is enough.
    """


class Kind(Protocol):
    """What a value must be; `words` follow `must be`."""

    words: str

    def read(self, value: Any, folder: Path) -> Any:
        """Return the value as the program uses it; a path is relative to `folder`.

        Raises:
            Wrong: it is not of this kind.
        """


class Flag:
    """Yes or no."""

    words = "true or false"

    def read(self, value: Any, folder: Path) -> bool:  # noqa: ARG002 -- a kind's signature
        """Return it as it is."""
        if not isinstance(value, bool):
            raise Wrong
        return value


class Whole:
    """A whole number; true and false are none."""

    words = "a whole number of at least 1"

    def read(self, value: Any, folder: Path) -> int:  # noqa: ARG002 -- a kind's signature
        """Return it as it is."""
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Wrong
        if value > MAX_WHOLE:
            raise Wrong(f"must be a whole number of at most {MAX_WHOLE}")
        return value


class Tokens:
    """A number of tokens, and 0 for no limit; over a year they are more than `Whole` takes."""

    words = f"a whole number from 0, for no limit, to {MAX_TOKENS}"

    def read(self, value: Any, folder: Path) -> int:  # noqa: ARG002 -- a kind's signature
        """Return it as it is."""
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TOKENS:
            raise Wrong
        return value


class Rate:
    """A price in USD."""

    words = f"a number of USD from 0 to {MAX_USD}"

    def read(self, value: Any, folder: Path) -> float:  # noqa: ARG002 -- a kind's signature
        """Return it as a float."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Wrong
        if not 0 <= value <= MAX_USD:  # so it is a number, and finite
            raise Wrong
        return float(value)


class Usd(Rate):
    """A sum of money, and 0 for no limit."""

    words = f"a number of USD from 0, for no limit, to {MAX_USD}"


class Seconds:
    """A time that something may take, whole or not; 0 where that switches something off."""

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero
        least = "of at least" if zero else "above"
        self.words = f"a number of seconds {least} 0 and up to {MAX_SECONDS}"

    def read(self, value: Any, folder: Path) -> float:  # noqa: ARG002 -- a kind's signature
        """Return it as a float."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Wrong
        if not 0 <= value <= MAX_SECONDS or (value == 0 and not self._zero):
            raise Wrong
        return float(value)


class Share:
    """A part of a whole."""

    words = "a number above 0 and up to 1"

    def read(self, value: Any, folder: Path) -> float:  # noqa: ARG002 -- a kind's signature
        """Return it as a float."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Wrong
        if not 0 < value <= 1:
            raise Wrong
        return float(value)


class Text:
    """Words, not empty and not only white space."""

    words = "non-empty text"

    def read(self, value: Any, folder: Path) -> str:  # noqa: ARG002 -- a kind's signature
        """Return it as it is."""
        if not isinstance(value, str) or not value.strip():
            raise Wrong
        if "\0" in value:
            raise Wrong("must not hold a NUL character; leave it out")
        return value


class Choice:
    """One of a few words."""

    def __init__(self, *choices: str) -> None:
        self._choices = choices
        self.words = " or ".join(f'"{choice}"' for choice in choices)

    def read(self, value: Any, folder: Path) -> str:  # noqa: ARG002 -- a kind's signature
        """Return it as it is."""
        if not isinstance(value, str) or value not in self._choices:
            raise Wrong
        return value


class Name:
    """A name by the rule for names; a teammate's is not a reserved one."""

    words = "up to 64 of A-Z a-z 0-9 _ - with a letter or digit first"

    def __init__(self, *, of_teammate: bool) -> None:
        self._of_teammate = of_teammate

    def read(self, value: Any, folder: Path) -> str:  # noqa: ARG002 -- a kind's signature
        """Return it as it is."""
        if not isinstance(value, str) or not NAME.fullmatch(value):
            raise Wrong
        if self._of_teammate:
            try:
                check_name(value)
            except BadName as bad:
                raise Wrong(f"is refused: {bad}") from bad
        return value


class Address:
    """Where a server of the Messages API listens."""

    words = "an address that begins with http:// or https://"

    def read(self, value: Any, folder: Path) -> str:  # noqa: ARG002 -- a kind's signature
        """Return it as it is."""
        if not isinstance(value, str) or not ADDRESS.fullmatch(value):
            raise Wrong
        if value.rstrip("/").endswith("/v1"):
            raise Wrong("must not end in /v1, which is added to it; leave /v1 out")
        return value


class Headers:
    """Lines that go with every request of HTTP."""

    words = "a table of headers, each one line of ASCII text"

    def read(self, value: Any, folder: Path) -> Mapping[str, str]:  # noqa: ARG002 -- a kind's
        """Return a read-only copy."""
        if not isinstance(value, dict):
            raise Wrong
        for name, line in value.items():
            if not HEADER_NAME.fullmatch(name):
                raise Wrong(f"must be {self.words}; {bare(name)} cannot be a header's name")
            if not isinstance(line, str) or not HEADER_VALUE.fullmatch(line):
                raise Wrong(f"must be {self.words}; that of {bare(name)} is not")
        return MappingProxyType(dict(value))


class Variables:
    """Names of environment variables."""

    words = 'a list of names of environment variables, such as ["PATH"]'

    def read(self, value: Any, folder: Path) -> tuple[str, ...]:  # noqa: ARG002 -- a kind's
        """Return them in their order."""
        if not isinstance(value, list):
            raise Wrong
        for name in value:
            if not isinstance(name, str) or not VARIABLE.fullmatch(name):
                raise Wrong(f"must be {self.words}; one of them is no such name")
        return tuple(value)


class Existing:
    """A folder or a file that is there."""

    def __init__(self, *, folder: bool) -> None:
        self._folder = folder
        self._noun = "folder" if folder else "file"
        self.words = f"the path of a {self._noun}"

    def read(self, value: Any, folder: Path) -> Path:
        """Return it as an absolute path without links."""
        if not isinstance(value, str | Path) or not str(value).strip():
            raise Wrong
        try:
            path = (folder / value).resolve()
            there = self._stands_at(path)
        except (OSError, ValueError, RuntimeError) as error:  # too long; a NUL; links in a circle
            raise Wrong from error
        if not there:
            where = printable(str(path))
            raise Wrong(f"names no {self._noun}: {where} is not there; make it or name another")
        return path

    def _stands_at(self, path: Path) -> bool:
        """Whether it is there; a path that cannot be one, such as links in a circle, raises."""
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISDIR(mode) if self._folder else stat.S_ISREG(mode)
