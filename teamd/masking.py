"""Replaces known secrets in texts and in the output of commands."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Self
from urllib.parse import quote

MASK: Final = "[secret]"
SHORTEST: Final = 8  # characters; shorter secrets could also occur in ordinary text
_BASE64_BYTES: Final = 3  # three bytes become four characters
_ESCAPE: Final = "surrogateescape"  # a variable may contain any bytes


class Mask:
    """Replaces the secrets that this process knows, in plain form and in common encodings.

    It protects against accidents, and against a command that just prints a key. It does not find a
    secret that was split or encrypted.

    Args:
        secrets: the first secrets; `learn` adds others.
    """

    def __init__(self, *secrets: str) -> None:
        self._known: frozenset[str] = frozenset()
        self._forms: list[str] = []
        self._encoded: list[bytes] = []
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Mask more secrets; those shorter than `SHORTEST` are ignored."""
        known = self._known.union(secret for secret in secrets if len(secret) >= SHORTEST)
        if known == self._known:
            return
        self._known = known
        # Longest first: the longest secret that starts at a position is replaced.
        forms = {form for secret in known for form in _forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._encoded = [form.encode(errors=_ESCAPE) for form in self._forms]

    def text(self, text: str) -> str:
        """Return a text with its secrets replaced."""
        there = [re.escape(form) for form in self._forms if form in text]
        return re.sub("|".join(there), MASK, text) if there else text

    def value(self, value: Any) -> Any:
        """Return a JSON value with the secrets in its strings replaced; keys are unchanged."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        return value

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the masked output, and the rest at its end that may be the start of a secret."""
        there = [re.escape(form) for form in self._encoded if form in data]
        held_at = len(data) - self._overlap(data)
        parts, at = [], 0
        for found in re.finditer(b"|".join(there), data) if there else ():
            if found.start() >= held_at:
                break
            parts += [data[at : found.start()], MASK.encode()]
            at = found.end()
            if at > held_at:  # the possible start is inside this secret
                held_at = len(data) - self._overlap(data[at:])
        return b"".join([*parts, data[at:held_at]]), data[held_at:]

    def _overlap(self, data: bytes) -> int:
        """Return the number of bytes at the end of an output that may start a secret."""
        return max((_common(data, form) for form in self._encoded), default=0)


class MaskedOutput:
    """Masks output that arrives in chunks, including secrets that are split between chunks.

    Use it as a context manager.

    Args:
        mask: knows the secrets.
        sink: gets the masked output. A possible start of a secret is held back until the next
            chunk.
    """

    def __init__(self, mask: Mask, sink: Callable[[bytes], object]) -> None:
        self._mask = mask
        self._sink = sink
        self._held = b""

    def take(self, chunk: bytes) -> None:
        """Mask a chunk and pass it on."""
        clear, self._held = self._mask.split(self._held + chunk)
        if clear:
            self._sink(clear)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Pass on the held back bytes, because no chunk follows."""
        held, self._held = self._held, b""
        if held:
            whole = self._mask.text(held.decode(errors=_ESCAPE))
            self._sink(whole.encode(errors=_ESCAPE))


class MaskedStream(io.TextIOWrapper):
    """Replaces a text stream, such as standard error, and masks the texts written to it.

    Args:
        mask: knows the secrets.
        stream: the replaced stream.
    """

    def __init__(self, mask: Mask, stream: io.TextIOWrapper) -> None:
        encoding, errors = stream.encoding, stream.errors
        super().__init__(stream.buffer, encoding, errors, line_buffering=True)
        self._mask = mask
        self._below = stream  # kept: once garbage collected, it would close the file

    def write(self, text: str, /) -> int:
        """Mask and write a text."""
        super().write(self._mask.text(text))
        return len(text)


def may_be_masked(text: str, masked: str) -> bool:
    """Return whether `masked` may be the masked form of a text."""
    parts = map(re.escape, masked.split(MASK))
    return re.fullmatch(".+".join(parts), text, re.DOTALL) is not None


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret in plain form, in JSON, in a URL, in hex and in base64 within longer text."""
    data = secret.encode(errors=_ESCAPE)
    yield from (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    yield from (quote(data), quote(data, safe=""), data.hex(), data.hex().upper())
    for before in range(_BASE64_BYTES):
        # Skip the characters that also encode bits of the neighbouring bytes.
        first = -(-before * 4 // _BASE64_BYTES)
        last = (before + len(data)) * 4 // _BASE64_BYTES
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:last]


def _common(data: bytes, form: bytes) -> int:
    """Return the length of the longest suffix of `data` that is a prefix of `form`."""
    tail = data[-(len(form) - 1) :]
    at = tail.find(form[:1])
    while at >= 0 and not form.startswith(tail[at:]):
        at = tail.find(form[:1], at + 1)
    return len(tail) - at if at >= 0 else 0
