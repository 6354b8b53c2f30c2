"""The lines of an outbox: numbered, and chained by digests.

The chain tells whether two machines speak of the same lines: each line's digest covers the one
before it. A line's first two keys are its number and that digest; the digest covers the rest.
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
REQUEST: Final = "request"  # what one host asks of another: carried out once at most
ANSWER: Final = "answer"
MAX_LINE_BYTES: Final = 1_000_000  # a broker takes 1 MiB at a time
START: Final = ""  # the chain before the first line of an epoch
_LINE: Final = re.compile(rb'{"n": (\d{1,18}), "chain": "([0-9a-f]{32})", (.*})\n')
_EMPTY: Final = hashlib.blake2b(digest_size=16)
_MAIL: Final = b'"kind": "mail",'  # as `encode_body` begins
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


class OutLine(NamedTuple):  # quickly made: a backlog is many
    """One line.

    Attributes:
        raw: the whole line with its newline.
        start: where its body begins in that.
    """

    n: int
    chain: str
    raw: bytes
    start: int

    @classmethod
    def make(cls, n: int, before: str, body: bytes) -> OutLine:
        """Return the line with the next number, behind the chain of the one before."""
        chain = link(before, body)
        raw = b'{"n": %d, "chain": "%s", %s\n' % (n, chain.encode(), body)
        return cls(n, chain, raw, len(raw) - len(body) - 1)

    @classmethod
    def decode(cls, raw: bytes) -> OutLine | None:
        """Read a line; `None` for what is none. What it holds is not looked at."""
        found = _LINE.fullmatch(raw)
        if found is None:
            return None
        return cls(int(found[1]), found[2].decode(), raw, found.start(3))

    @property
    def body(self) -> bytes:
        """All but number and chain, as it stands there."""
        return self.raw[self.start : -1]

    def follows(self, n: int, chain: str) -> bool:
        """Return whether it comes right behind a line."""
        return self.n == n + 1 and self.chain == link(chain, self.body)

    @property
    def is_mail(self) -> bool:
        """Whether it holds mail; what is no object does not."""
        return self.raw.startswith(_MAIL, self.start) or read_fields(self).get("kind") == MAIL

    @property
    def is_request(self) -> bool:
        """Whether it asks for something to be done, which is never asked for twice.

        Raises:
            NotAMessage: it is no object.
        """
        return self.fields().get("kind") == REQUEST

    def fields(self) -> dict[str, Any]:
        """Return what it holds: `kind` and what that has.

        Raises:
            NotAMessage: it is no object.
        """
        return parse_object(b"{" + self.body)


def read_run(content: bytes, n: int, chain: str, most: int) -> list[OutLine]:
    """Return the lines that come right behind a line, each behind the one before.

    Args:
        content: begins with them; what is none of ours, or does not follow, ends them.
        n: the number of the line before.
        chain: its chain.
        most: so many lines at most.
    """
    found: list[OutLine] = []
    at, before, line_at = 0, chain.encode(), _LINE.match
    while len(found) < most and (line := line_at(content, at)) is not None:
        raw, number, own, body = line.group(0, 1, 2, 3)
        at, start = at + len(raw), line.start(3) - at
        digest = _EMPTY.copy()  # as in `link`, which a call for each line would slow down
        digest.update(before)
        digest.update(body)
        chain = digest.hexdigest()
        before, n = chain.encode(), n + 1
        if own != before or int(number) != n:
            break
        found.append(OutLine(n, chain, raw, start))
    return found


def pass_over(content: bytes, n: int) -> bytes:
    """Return what is behind the lines with numbers up to `n` with which some content begins."""
    at = 0
    while (line := _LINE.match(content, at)) is not None and int(line[1]) <= n:
        at = line.end()
    return content[at:]


def read_fields(line: OutLine) -> dict[str, Any]:
    """Return what a line holds; what is no object holds nothing."""
    try:
        return line.fields()
    except NotAMessage:
        return {}


def encode_body(kind: str, fields: Mapping[str, Any]) -> bytes:
    """Return what stands in a line behind its number and chain.

    Raises:
        ValueError: a number in it is infinite.
    """
    return _ENCODER.encode({"kind": kind, **fields}).encode("utf-8", "replace")[1:]


def link(before: str, body: bytes) -> str:
    """Return the chain of a line: the digest of the one before and of what the line holds."""
    digest = _EMPTY.copy()  # quicker than to make one
    digest.update(before.encode())
    digest.update(body)
    return digest.hexdigest()
