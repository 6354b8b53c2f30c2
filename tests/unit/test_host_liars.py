"""What a host that lies in every field of its frames can do to another one: nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from teamd.hosts.cursor import Cursor, CursorFile
from teamd.hosts.lines import OutLine
from teamd.postman import frames
from teamd.postman.frames import HelloFrame, LineFrame
from teamd.postman.incoming import Incoming

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LONG = "e" * 900_000
HALF = "\ud800"
OFFER: dict[str, Any] = {"epoch": "e", "first": 1, "chain": "", "former": None, "copied": 0}
CONFIRMED: dict[str, Any] = {"epoch": "e", "n": 0, "chain": ""}


class Nobody:
    """Takes what arrives."""

    def deliver(self, host: str, lines: Sequence[dict[str, Any]], *, suspected: bool) -> None:
        """Do nothing with mail."""

    def act(self, host: str, line: dict[str, Any]) -> None:
        """Do nothing with requests."""


def hello(**facts: Any) -> bytes:
    offer = {**OFFER, "confirmed": CONFIRMED, "last": 5}
    said = {"kind": "hello", "session": "s", "ask": "", "answers": "q", "offer": offer}
    return json.dumps({**said, "received": None, **facts}).encode()


@pytest.mark.parametrize(
    ("facts", "confirmed"),
    [
        ({"epoch": LONG}, {}),
        ({"epoch": "\x1b[31m"}, {}),
        ({"chain": HALF}, {}),
        ({"chain": LONG}, {}),
        ({"first": 10**4000}, {}),
        ({"first": True}, {}),
        ({"former": LONG}, {}),
        ({"copied": -1}, {}),
        ({"last": 10**4000}, {}),
        ({}, {"chain": HALF}),
        ({}, {"n": 10**4000}),
        ({}, {"epoch": LONG}),
    ],
)
def test_an_offer_of_impossible_values_is_none(
    tmp_path: Path, facts: dict[str, Any], confirmed: dict[str, Any]
) -> None:
    """Any of them would be said again, noted in a cursor of fixed size, or hashed."""
    offer = {**OFFER, "confirmed": {**CONFIRMED, **confirmed}, "last": 5, **facts}
    heard = frames.decode(hello(offer=offer))
    assert isinstance(heard, HelloFrame)
    assert heard.offer is None
    assert not Incoming(
        "h2", CursorFile(tmp_path / "c", durable=False), Nobody(), window=256, report=print
    ).settle(heard.offer)


@pytest.mark.parametrize("key", ["session", "ask", "answers"])
@pytest.mark.parametrize("value", [LONG, HALF, "\n", 1, None, ["q"]])
def test_a_hello_whose_names_could_not_be_said_again_is_none(key: str, value: Any) -> None:
    assert frames.decode(hello(**{key: value})) is None


def test_the_longest_cursor_that_can_be_read_fits_into_its_file(tmp_path: Path) -> None:
    """A longer one would run over the one before it, and a kill then leaves neither."""
    longest = Cursor.from_json({"epoch": "e" * 40, "n": 10**18 - 1, "chain": "f" * 32})
    assert longest is not None
    file = CursorFile(tmp_path / "h2.json", durable=False)
    for _ in range(3):
        file.write(longest)
    assert file.path.stat().st_size == 512
    assert CursorFile(file.path, durable=False).read() == longest


def test_lines_far_ahead_or_of_a_false_chain_are_not_taken(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "h2.json", durable=False)
    file.write(Cursor("e", 0, ""))
    incoming = Incoming("h2", file, Nobody(), window=256, report=print)
    ahead = OutLine.make(10**17, "", b'"kind": "mail"}')
    false = b'{"n": 1, "chain": "' + b"0" * 32 + b'", "kind": "mail"}\n'
    incoming.gather(LineFrame("e", [ahead.raw, false, b"\xff\n", b"\n"]))
    incoming.take()
    assert incoming.cursor == Cursor("e", 0, "")
