"""Markdown with front matter: YAML between two `---` lines, and the text after it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from teamd.errors import SettingsError

MAX_BYTES: Final = 262_144
_FRONT: Final = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_SINGLE: Final = (str, int, float, date)
_FIELD: Final = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The front matter and body of a file."""

    path: Path
    fields: Mapping[str, Any]
    body: str

    def text(self, key: str) -> str:
        """Return a field's text on one line; empty if it is missing or not a single value."""
        value = self.fields.get(key)
        # YAML reads some words as numbers or dates.
        return " ".join(_shown(value).split()) if isinstance(value, _SINGLE) else ""

    def words(self, key: str) -> tuple[str, ...] | None:
        """Return a field's words, from a list or from text with commas; `None` if it is missing."""
        value = self.fields.get(key)
        if isinstance(value, str):
            value = value.split(",")
        if not isinstance(value, list):
            return None
        # Nested lists are skipped: a few nested aliases would make gigabytes of text.
        words = (_shown(word).strip() for word in value if isinstance(word, (str, int, float)))
        return tuple(word for word in words if word)


def _shown(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # a number of thousands of digits, which Python refuses to convert
        return ""


def read(path: Path) -> Document:
    """Read a file; without front matter the whole text is the body.

    Raises:
        SettingsError: it is too long, is not text, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise SettingsError(path, [f"it cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise SettingsError(path, ["it is not UTF-8; save it as such"]) from error
    if len(data) > MAX_BYTES:
        raise SettingsError(path, [f"it is larger than {MAX_BYTES} bytes; shorten it"])
    if "\0" in text:
        raise SettingsError(path, ["it holds a NUL character, so it is not text"])
    front = _FRONT.match(text)
    fields = {} if front is None else _fields(front[1])
    body = text if front is None else text[front.end() :]
    return Document(path=path, fields=MappingProxyType(fields), body=body.strip())


def _fields(front: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(front)
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError):
        # PyYAML's constructors raise the last three errors, for example for `!!bool maybe`. Many
        # files contain `description: Use when: …`, which is not YAML but which other readers
        # accept.
        found = dict(_plain(front))
    return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}


def _plain(front: str) -> Iterator[tuple[str, str]]:
    for line in front.splitlines():
        if field := _FIELD.fullmatch(line.rstrip()):
            yield field[1], field[2]
