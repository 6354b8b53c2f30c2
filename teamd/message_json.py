"""The JSON of messages: what a line from outside may hold, and how it is read."""

from __future__ import annotations

import gc
import json
import math
import re
import sys
from contextlib import contextmanager
from functools import cache
from operator import itemgetter

from teamd.errors import NotAMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final, TypeGuard

_END_OF_TIME: Final = 253_402_128_000.0  # year 9999; beyond it no calendar of ours knows a date
_MAX_DEPTH: Final = 100  # what can be read can be written again, however deep the stack is by then
_TAG: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z _-]{0,39}")
_ENDS: Final = ("\n", "")
_MODULE: Final = "msgspec"
_STRAY_NEWLINE: Final = re.compile(rb"\n(?:(?<!}\n)|(?!{|\Z))")  # not between objects
_FEW: Final = 1 << 14  # bytes of lines: the decoder of many would take longer to load than it saves
_NAMES: Final = ("id", "type", "from")
_KNOWN: Final = frozenset({*_NAMES, "to", "content", "timestamp"})
_TEXTS: Final = [str] * len(_NAMES)
_names: Final = itemgetter(*_NAMES)


def is_moment(value: object) -> TypeGuard[float]:
    """Return whether a value from outside is a time in seconds since the epoch, up to year 9999."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < _END_OF_TIME


def is_tag(value: object) -> TypeGuard[str]:
    """Return whether a value from outside is a short plain name, which may be said again as it is.

    A name without an end would make what repeats it longer than a broker takes.
    """
    return isinstance(value, str) and _TAG.fullmatch(value) is not None


def parse_plain(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line in which nothing is to be mended; `None` for any other line.

    Nearly all lines are such, and take a third of the time. No escape spells a NUL or half a pair.
    Every text of a message is there and is one, and its time is a number of seconds.
    """
    if b"\0" in line or b"\\u" in line:
        return None
    try:
        text = line.decode("utf-8")
        value, end = _LENIENT.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if type(value) is not dict or text[end:] not in _ENDS or not _KNOWN.issuperset(value):
        return None
    try:
        names, content, moment = _names(value), value["content"], value["timestamp"]
    except KeyError:
        return None
    given = all(names) and [*map(type, names)] == _TEXTS and type(content) is str
    return value if given and type(moment) is float and 0 <= moment < _END_OF_TIME else None


def parse_lines(block: bytes) -> list[Any] | None:
    """Return what whole lines hold, in one go; `None` where anything is to be mended in any line.

    Returns:
        An object a line, with `sender`, `content`, `type`, `id` and `timestamp`, each as
        `parse_plain` takes it; `None` for few lines too, unless the decoder is loaded.
    """
    if len(block) < _FEW and _MODULE not in sys.modules:
        return None
    if b"\0" in block or (b"\\" in block and b"\\u0000" in block):
        return None
    try:
        found = load_decoder()(block)
    except (ValueError, RecursionError):
        return None
    return found if holds_one_a_line(block, len(found)) else None


def holds_one_a_line(block: bytes, count: int) -> bool:
    """Return whether each line of a block is one of so many objects that were found in it.

    No text holds a newline as it is: where each stands between two objects, a line holds one.
    """
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    return lines == count and not _STRAY_NEWLINE.search(block)


@cache
def load_decoder() -> Callable[[bytes], list[Any]]:
    """Load what decodes many lines at a time, five times as fast as the standard library."""
    from typing import Annotated  # noqa: PLC0415 -- as the next one

    import msgspec  # noqa: PLC0415 -- longer to load than all that a short command needs

    some = Annotated[str, msgspec.Meta(min_length=1)]
    moment = Annotated[float, msgspec.Meta(ge=0, lt=_END_OF_TIME)]
    texts = [("sender", some), ("content", str), ("type", some), ("id", some)]
    kind = msgspec.defstruct(
        "Plain",
        [*texts, ("timestamp", moment), ("to", str, "")],
        rename={"sender": "from"},
        forbid_unknown_fields=True,
        gc=False,
    )
    return msgspec.json.Decoder(kind).decode_lines


@contextmanager
def paused_collection() -> Iterator[None]:
    """Look for no garbage while many objects are made: each look would walk over all of them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the object of a line.

    Raises:
        NotAMessage: there is none, or it holds what no other program could read.
    """
    if b"\0" in line:
        raise NotAMessage("it holds a NUL byte")
    try:
        value = _STRICT.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotAMessage("it is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise NotAMessage("it is not JSON") from error
    if not isinstance(value, dict):
        raise NotAMessage("it is no JSON object")
    if _may_be_deep(line) and any(_deeper(found, _MAX_DEPTH) for found in value.values()):
        raise NotAMessage(f"it is nested deeper than {_MAX_DEPTH}")
    return value


def _may_be_deep(line: bytes) -> bool:
    """Return whether a line has brackets enough to be nested too deep: nearly none has."""
    return line.count(b"[") + line.count(b"{") > _MAX_DEPTH


def _deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_deeper(found, levels - 1) for found in value)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(digits)
    return number


# Python's own reader takes `NaN`, and `1e999` for infinity; no other program could read what
# would be made of them.
_STRICT: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
_LENIENT: Final = json.JSONDecoder()
