"""Text from elsewhere, as a terminal and a program that reads JSON may be given it.

A terminal obeys control characters: they move its cursor, set its title, fill its clipboard. Format
characters hide words, or turn their order round. And text of ours, with styles on a terminal.
"""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_UNUSUAL: Final = re.compile(r"[^\n\t -~]")
_KINDS: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control, format, half a pair, breaks
# Zero-width non-joiner and joiner: Persian words and many emoji are spelt with them.
_JOINERS: Final = frozenset({"\u200c", "\u200d"})
_LAST_BYTE: Final = 0xFF
_STYLES: Final = r"\033\[[0-?]*[ -/]*[@-~]"
COLOURS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_FIRST_COLOUR: Final = {"": 30, "bright_": 90}


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a line as `click.echo` does, without loading click: styled on a terminal only."""
    stream = sys.stderr if err else sys.stdout
    if not str(stream.encoding).lower().startswith("utf"):
        import click  # noqa: PLC0415 -- it finds a way round an encoding that cannot write all

        click.echo(text, err=err)
        return
    if "\033" in text and (not stream.isatty() or os.environ.get("TERM") == "dumb"):
        text = re.sub(_STYLES, "", text)
    stream.write(f"{text}\n")
    stream.flush()


def style(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """Return a text with the codes for its style, as `click.style` does; see no-color.org."""
    codes = []
    if fg and not os.environ.get("NO_COLOR"):
        kind = "bright_" if fg.startswith("bright_") else ""
        codes.append(_FIRST_COLOUR[kind] + COLOURS.index(fg.removeprefix(kind)))
    codes += [1] * bold + [2] * dim
    return "".join(f"\033[{code}m" for code in codes) + f"{text}\033[0m"


def plain(text: str) -> str:
    r"""Return text with control characters shown, such as `\x1b`; newlines and tabs stay."""
    return _UNUSUAL.sub(_shown, text)


def escape_json(document: str) -> str:
    """Return a JSON document with such characters escaped; it means the same."""
    return _UNUSUAL.sub(_escaped, document)


def _shown(found: re.Match[str]) -> str:
    character = found[0]
    if not _obeyed(character):
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number <= _LAST_BYTE else f"\\u{number:04x}"


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if not _obeyed(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs)


def _obeyed(character: str) -> bool:
    """Return whether a terminal might obey a character, or not show it."""
    import unicodedata  # noqa: PLC0415 -- a megabyte, only for what is not ASCII

    return character not in _JOINERS and unicodedata.category(character) in _KINDS
