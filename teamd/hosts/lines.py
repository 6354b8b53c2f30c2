"""The lines of an outbox: numbered, and chained by digests.

The chain shows whether two machines have the same lines: each line's digest covers the line before
it. A line's first two keys are its number and that digest; the digest covers the rest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from teamd.errors import NotAMessage
from teamd.messages import parse_object

MAIL: Final = "mail"
REQUEST: Final = "request"  # a command for another host, executed at most once
ANSWER: Final = "answer"
MAX_LINE_BYTES: Final = 1_000_000  # a broker accepts messages up to 1 MiB
START: Final = ""  # the chain before the first line of an epoch
_LINE: Final = re.compile(rb'{"n": (\d{1,18}), "chain": "([0-9a-f]{32})", (.*})\n')
_EMPTY: Final = hashlib.blake2b(digest_size=16)
_MAIL: Final = b'"kind": "mail",'  # the start of mail, from `encode_body`
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


class OutLine(NamedTuple):  # fast to create, for large backlogs
    """One line.

    Attributes:
        raw: the whole line with its newline.
        start: the offset of the body in `raw`.
    """

    n: int
    chain: str
    raw: bytes
    start: int

    @classmethod
    def make(cls, n: int, before: str, body: bytes) -> OutLine:
        """Return the line that follows a line with chain `before`."""
        chain = link(before, body)
        raw = b'{"n": %d, "chain": "%s", %s\n' % (n, chain.encode(), body)
        return cls(n, chain, raw, len(raw) - len(body) - 1)

    @classmethod
    def decode(cls, raw: bytes) -> OutLine | None:
        """Parse a line; `None` if it is invalid. The body is not checked."""
        found = _LINE.fullmatch(raw)
        if found is None:
            return None
        return cls(int(found[1]), found[2].decode(), raw, found.start(3))

    @property
    def body(self) -> bytes:
        """The line without its number and chain, as bytes."""
        return self.raw[self.start : -1]

    def follows(self, n: int, chain: str) -> bool:
        """Return whether this line directly follows the line with that number and chain."""
        return self.n == n + 1 and self.chain == link(chain, self.body)

    @property
    def is_mail(self) -> bool:
        """Whether the line contains mail; `False` if it is not an object."""
        return self.raw.startswith(_MAIL, self.start) or read_fields(self).get("kind") == MAIL

    @property
    def is_request(self) -> bool:
        """Whether the line is a command, which must not be sent twice.

        Raises:
            NotAMessage: the line is not an object.
        """
        return self.fields().get("kind") == REQUEST

    def fields(self) -> dict[str, Any]:
        """Return the line's `kind` and its other fields.

        Raises:
            NotAMessage: the line is not an object.
        """
        return parse_object(b"{" + self.body)


def read_run(content: bytes, n: int, chain: str, most: int) -> list[OutLine]:
    """Return consecutive lines that directly follow a given line.

    Args:
        content: starts with the lines; an invalid or unconnected line ends them.
        n: the number of the line before.
        chain: the chain of that line.
        most: the maximum number of lines.
    """
    found: list[OutLine] = []
    at, before, line_at = 0, chain.encode(), _LINE.match
    while len(found) < most and (line := line_at(content, at)) is not None:
        raw, number, own, body = line.group(0, 1, 2, 3)
        at, start = at + len(raw), line.start(3) - at
        digest = _EMPTY.copy()  # inlined `link`, since a call for each line is slow
        digest.update(before)
        digest.update(body)
        chain = digest.hexdigest()
        before, n = chain.encode(), n + 1
        if own != before or int(number) != n:
            break
        found.append(OutLine(n, chain, raw, start))
    return found


def pass_over(content: bytes, n: int) -> bytes:
    """Return the content after its first lines, those with numbers up to `n`."""
    at = 0
    while (line := _LINE.match(content, at)) is not None and int(line[1]) <= n:
        at = line.end()
    return content[at:]


def read_fields(line: OutLine) -> dict[str, Any]:
    """Return the fields of a line; empty if it is not an object."""
    try:
        return line.fields()
    except NotAMessage:
        return {}


def encode_body(kind: str, fields: Mapping[str, Any]) -> bytes:
    """Return the body of a line, which follows its number and chain.

    Raises:
        ValueError: a number in it is infinite.
    """
    return _ENCODER.encode({"kind": kind, **fields}).encode("utf-8", "replace")[1:]


def link(before: str, body: bytes) -> str:
    """Return the chain of a line: the digest of the previous chain and the body."""
    digest = _EMPTY.copy()  # faster than creating a digest
    digest.update(before.encode())
    digest.update(body)
    return digest.hexdigest()
