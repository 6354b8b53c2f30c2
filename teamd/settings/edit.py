"""Keys that a command of the person's puts into `team.toml`, with all else left as it stands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from teamd.errors import SettingsError
from teamd.settings.load import parse


def with_keys(old: bytes, section: str, keys: Mapping[str, Any], *, path: Path) -> bytes:
    """Return the file's bytes with these keys in a section, below its heading or at the end.

    Args:
        old: what stands in the file; empty for a new one.
        section: the name of a table.
        keys: with values that TOML has; those that are there already with that value are left.
        path: the file, for the sentences; it is not touched.

    Raises:
        SettingsError: what stands there is wrong, has another value for a key, or would be wrong.
    """
    parse(old, path=path)
    known = tomllib.loads(old.decode())
    there = known.get(section, {})
    if differing := [key for key in keys if there.get(key, keys[key]) != keys[key]]:
        what = ", ".join(f"{section}.{key}" for key in differing)
        raise SettingsError(path, [f"{what} has another value already; change it by hand"])
    missing = {key: value for key, value in keys.items() if key not in there}
    if not missing:
        return old
    new = _inserted(old, section, missing)
    if _document(new) != {**known, section: {**there, **missing}}:
        what = f"[{section}] cannot be written there; write it by hand: "
        raise SettingsError(path, [what + tomli_w.dumps(missing).strip().replace("\n", ", ")])
    parse(new, path=path)
    return new


def _inserted(old: bytes, section: str, keys: Mapping[str, Any]) -> bytes:
    end = b"\r\n" if b"\r\n" in old else b"\n"
    lines = b"".join(_line(key, value).encode() + end for key, value in keys.items())
    heading = re.compile(
        rb"^[ \t]*\[[ \t]*%s[ \t]*\][^\r\n]*\r?\n" % section.encode(), re.MULTILINE
    )
    if found := heading.search(old):
        return old[: found.end()] + lines + old[found.end() :]
    gap = b"" if not old else end if old.endswith(b"\n") else 2 * end
    return old + gap + b"[%s]" % section.encode() + end + lines


def _line(key: str, value: Any) -> str:
    """Return a key with its value on one line."""
    if isinstance(value, list):
        return f"{key} = [{', '.join(map(_spelled, value))}]"
    return f"{key} = {_spelled(value)}"


def _spelled(value: Any) -> str:
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")


def _document(data: bytes) -> dict[str, Any] | None:
    try:
        return tomllib.loads(data.decode())
    except ValueError:
        return None
