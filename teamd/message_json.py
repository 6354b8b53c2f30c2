"""The JSON of messages: what a line from outside may hold, and how it is read."""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from typing import Any, Final, TypeGuard

from teamd.errors import NotAMessage

_END_OF_TIME: Final = 253_402_128_000.0  # year 9999; beyond it no calendar of ours knows a date
_MAX_DEPTH: Final = 100  # what can be read can be written again, however deep the stack is by then
_TAG: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z _-]{0,39}")


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


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the object of a line.

    Raises:
        NotAMessage: there is none, or it holds what no other program could read.
    """
    _refuse_bytes(line)
    try:
        value = _STRICT.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotAMessage("it is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise NotAMessage("it is not JSON") from error
    if isinstance(value, list):
        raise NotAMessage("it is a JSON array; write one object a line")
    if not isinstance(value, dict):
        raise NotAMessage("it is not a JSON object")
    if _may_be_deep(line) and any(_deeper(found, _MAX_DEPTH) for found in value.values()):
        raise NotAMessage(f"it is nested deeper than {_MAX_DEPTH}")
    return value


def _refuse_bytes(line: bytes) -> None:
    if line.startswith(BOM_UTF8):
        raise NotAMessage("it begins with a byte order mark (BOM)")
    if line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise NotAMessage("it is UTF-16; write UTF-8")
    if b"\0" in line:
        raise NotAMessage("it holds a NUL byte")


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
