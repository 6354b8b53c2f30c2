"""Read mail to other hosts from their outboxes, without changing anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.hosts.outbox import ConfirmedPosition, Outbox, OutLine
from teamd.hosts.places import HostAddress, HostPlaces
from teamd.messages import Message
from teamd.transcript.file import message_in

_SPELT_AS_IT_IS: Final = re.compile(r"[\w.-]+", re.ASCII)


def crossing(paths: TeamPaths, begun: str) -> Iterator[tuple[HostAddress, Message, bool, Path]]:
    """Yield the mail in the outboxes whose id starts with `begun`.

    Yields:
        The receiver, the message, whether its inbox has it, and the outbox file.
    """
    places = HostPlaces(paths)
    for host in places.known() if places.outboxes.is_dir() else ():
        # The bytes to search for, if JSON does not escape any of them.
        known = begun.encode() if _SPELT_AS_IT_IS.fullmatch(begun) else b""
        for line, arrived in _lines(paths, host, known):
            found = _decode(host, line)
            if found is not None and found[1].id.startswith(begun):
                yield *found, arrived, places.outbox(host)


def texts_crossing(paths: TeamPaths, to: HostAddress, sender: str, message_id: str) -> list[str]:
    """Return the texts that a sender sent under an id to a receiver on another host.

    Mail that has arrived there is forgotten here after a while.
    """
    return [
        message.content
        for address, message, _, _ in crossing(paths, message_id)
        if address == to and (message.id, message.sender) == (message_id, sender)
    ]


def _lines(paths: TeamPaths, host: str, known: bytes) -> Iterator[tuple[OutLine, bool]]:
    """Yield the lines of an outbox that contain `known`, and whether each is confirmed."""
    with suppress(StoreError):  # `teamctl doctor` reports it
        position = ConfirmedPosition.read(HostPlaces(paths).confirmed(host)) or ConfirmedPosition()
        for number, line in enumerate(Outbox(paths, host).read()):
            if known in line.raw:
                yield line, number < position.lines


def _decode(host: str, line: OutLine) -> tuple[HostAddress, Message] | None:
    match line.fields:
        case {"kind": "mail", "to": str(to), "team": str(team), "message": dict(found)}:
            if (message := message_in(found)) is not None:
                return HostAddress(to, team, host), message
    return None
