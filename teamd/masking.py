"""Known secrets, and texts and outputs without them."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Self
from urllib.parse import quote

MASK: Final = "[secret]"
SHORTEST: Final = 8  # characters; a shorter one would be found in words that are none
_BASE64_BYTES: Final = 3  # that four characters encode
_ESCAPE: Final = "surrogateescape"  # a variable may hold any bytes


class Mask:
    """Replaces the secrets that this process knows, as they are or in a usual encoding.

    It protects from accidents, and from a key that a command just prints. It cannot find what was
    taken apart or encrypted.

    Args:
        secrets: those known from the beginning; `learn` adds others.
    """

    def __init__(self, *secrets: str) -> None:
        self._known: frozenset[str] = frozenset()
        self._forms: list[str] = []
        self._encoded: list[bytes] = []
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Mask these too, from now on; one that is too short to be told from words is left out."""
        known = self._known.union(secret for secret in secrets if len(secret) >= SHORTEST)
        if known == self._known:
            return
        self._known = known
        # The longest that begins at a place is the one to replace.
        forms = {form for secret in known for form in _forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._encoded = [form.encode(errors=_ESCAPE) for form in self._forms]

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        there = [re.escape(form) for form in self._forms if form in text]
        return re.sub("|".join(there), MASK, text) if there else text

    def value(self, value: Any) -> Any:
        """Return a value as JSON has it, without secrets in its texts; keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        return value

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """Return an output without secrets, and its end that may be the begin of one."""
        there = [re.escape(form) for form in self._encoded if form in data]
        held_at = len(data) - self._overlap(data)
        parts, at = [], 0
        for found in re.finditer(b"|".join(there), data) if there else ():
            if found.start() >= held_at:
                break
            parts += [data[at : found.start()], MASK.encode()]
            at = found.end()
            if at > held_at:  # what seemed to be the begin of one is in the middle of this one
                held_at = len(data) - self._overlap(data[at:])
        return b"".join([*parts, data[at:held_at]]), data[held_at:]

    def _overlap(self, data: bytes) -> int:
        """Return how much of the end of an output is the begin of a secret."""
        return max((_common(data, form) for form in self._encoded), default=0)


class MaskedOutput:
    """Takes an output in pieces, inside a `with` block; finds a secret wherever the cuts are.

    Args:
        mask: knows the secrets.
        sink: gets the output without them; what might be the begin of one waits for what follows.
    """

    def __init__(self, mask: Mask, sink: Callable[[bytes], object]) -> None:
        self._mask = mask
        self._sink = sink
        self._held = b""

    def take(self, chunk: bytes) -> None:
        """Add what came."""
        clear, self._held = self._mask.split(self._held + chunk)
        if clear:
            self._sink(clear)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Pass on what waited: nothing comes after it."""
        held, self._held = self._held, b""
        if held:
            whole = self._mask.text(held.decode(errors=_ESCAPE))
            self._sink(whole.encode(errors=_ESCAPE))


class MaskedStream(io.TextIOWrapper):
    """A text stream such as standard error, to which no secret is written.

    Args:
        mask: knows the secrets.
        stream: whose place it takes.
    """

    def __init__(self, mask: Mask, stream: io.TextIOWrapper) -> None:
        encoding, errors = stream.encoding, stream.errors
        super().__init__(stream.buffer, encoding, errors, line_buffering=True)
        self._mask = mask
        self._below = stream  # which would close the file when nobody knows it any more

    def write(self, text: str, /) -> int:
        """Write a text without secrets."""
        super().write(self._mask.text(text))
        return len(text)


def may_be_masked(text: str, masked: str) -> bool:
    """Whether a text is, or may be, another one without its secrets."""
    parts = map(re.escape, masked.split(MASK))
    return re.fullmatch(".+".join(parts), text, re.DOTALL) is not None


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is, in JSON, in a URL, in hex, and in base64 within a longer text."""
    data = secret.encode(errors=_ESCAPE)
    yield from (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    yield from (quote(data), quote(data, safe=""), data.hex(), data.hex().upper())
    for before in range(_BASE64_BYTES):
        # Characters that hold bits of what stands before or behind it are anything.
        first = -(-before * 4 // _BASE64_BYTES)
        last = (before + len(data)) * 4 // _BASE64_BYTES
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:last]


def _common(data: bytes, form: bytes) -> int:
    """Return the length of the longest part that ends the one and begins the other."""
    tail = data[-(len(form) - 1) :]
    at = tail.find(form[:1])
    while at >= 0 and not form.startswith(tail[at:]):
        at = tail.find(form[:1], at + 1)
    return len(tail) - at if at >= 0 else 0
