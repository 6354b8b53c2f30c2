"""Read mail to other hosts from their outboxes, without changing anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from teamd.errors import NotAMessage, StoreError
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.hosts.cursor import CursorFile
from teamd.hosts.host_address import HostAddress
from teamd.hosts.lines import MAIL, OutLine
from teamd.hosts.outbox_file import find_end, read_lines, whole_size
from teamd.hosts.places import HostPlaces
from teamd.messages import Message
from teamd.transcript.file import message_in

_SPELT_AS_IT_IS: Final = re.compile(r"[\w.-]+", re.ASCII)
_LIKELY: Final = b'"kind": "mail"'


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
    places = HostPlaces(paths)
    confirmed = CursorFile(places.confirmed(host), durable=False).read()
    with files.opened(places.outbox(host)) as fd:
        if fd is None:
            return
        try:
            end = find_end(fd, whole_size(fd))
            if end is None:
                return
            same = confirmed is not None and confirmed.epoch == end.header.epoch
            done = confirmed.n if confirmed is not None and same else 0
            for line in read_lines(fd, len(end.header.encode()), end.size):
                if known in line.body:
                    yield line, line.n <= done
        except StoreError:  # damaged or just rewritten: `teamctl doctor` reports it
            return


def _decode(host: str, line: OutLine) -> tuple[HostAddress, Message] | None:
    if not line.body.startswith(_LIKELY):
        return None
    try:
        fields = line.fields()
    except NotAMessage:
        return None
    match fields:
        case {"kind": kind, "to": str(to), "team": str(team), "message": dict(found)}:
            if kind == MAIL and (message := message_in(found)) is not None:
                return HostAddress(to, team, host), message
    return None
