"""The actions of a postman in a scene; the other host exists only as frames."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from teamd.files.paths import TeamPaths
from teamd.hosts import own_name
from teamd.hosts.cursor import Cursor, CursorFile
from teamd.hosts.lines import MAIL, START, OutLine, encode_body
from teamd.hosts.outbox import Outbox
from teamd.hosts.outbox_file import Header
from teamd.hosts.places import HostPlaces
from teamd.journal import Journal
from teamd.messages import Message
from teamd.postman.build import build_postman
from teamd.postman.frames import HelloFrame, LineFrame, Offer, ReceiptFrame
from teamd.postman.links import Links
from teamd.settings.schema import HostSettings, Settings

FAR: Final = "h2"
_SESSION: Final = "far"
_EPOCH: Final = "0123456789abcdef"


def send_far(paths: TeamPaths, *contents: str) -> None:
    """Send mail to the other host."""
    for content in contents:
        Outbox(paths, FAR).append(MAIL, **_mail(content))


def damage_outbox(paths: TeamPaths) -> None:
    """Overwrite the beginning of the outbox with garbage."""
    fd = os.open(HostPlaces(paths).outbox(FAR), os.O_RDWR)
    os.pwrite(fd, b"?", 0)
    os.fsync(fd)
    os.close(fd)


def take_name(paths: TeamPaths, name: str) -> None:
    HostPlaces(paths).create()
    own_name.take_name(paths, name, durable=True)


def carry(paths: TeamPaths) -> None:
    """Send the content of the outbox to the other host."""
    links = _links(paths)
    settle(links)
    assert any(b'"lines"' in frame for _, frame in links.sent())


def carry_and_confirm(paths: TeamPaths) -> None:
    """Send the content of the outbox and receive its confirmation, which empties the outbox."""
    links = _links(paths)
    hello = settle(links)
    assert hello.offer is not None
    raw = HostPlaces(paths).outbox(FAR).read_bytes().splitlines(keepends=True)[-1]
    line = OutLine.decode(raw)
    assert line is not None
    receipt = ReceiptFrame(_SESSION, Cursor(hello.offer.header.epoch, line.n, line.chain))
    links.round(set(), [(FAR, receipt.encode())], 0.0)


def receive(paths: TeamPaths, *contents: str) -> None:
    """Receive mail that the other host has sent, from its first line on."""
    _receive(paths, contents, "bob")


def receive_for_nobody(paths: TeamPaths, *contents: str) -> None:
    """Receive mail for an unknown name, which is reported to its sender."""
    _receive(paths, contents, "nobody")


def _receive(paths: TeamPaths, contents: Sequence[str], to: str) -> None:
    links = _links(paths)
    settle(links, len(contents))
    chain, raw = START, []
    for n, content in enumerate(contents, start=1):
        line = OutLine.make(n, chain, encode_body(MAIL, _mail(content, to)))
        chain = line.chain
        raw.append(line.raw)
    cursor = CursorFile(HostPlaces(paths).received(FAR), durable=False).read()
    behind = raw[cursor.n if cursor else 0 :]
    links.round(set(), [(FAR, LineFrame(_EPOCH, b"".join(behind)).encode())], 0.0)
    confirmed = f'"n":{len(contents)},'.encode()
    assert any(b'"receipt"' in frame and confirmed in frame for _, frame in links.sent())


def settle(links: Links, last: int = 0) -> HelloFrame:
    """Answer the postman's first frame as a host that has received no mail yet."""
    links.start([FAR])
    links.connected(0.0)
    said: dict[str, Any] = json.loads(links.sent()[0][1])
    header, offer = Header(_EPOCH), Offer.from_json(said["offer"])
    before = None
    if offer is not None:
        before = Cursor(offer.header.epoch, offer.header.first - 1, offer.header.chain)
    mine = Offer(header, Cursor(_EPOCH, 0, START), last)
    hello = HelloFrame(session=_SESSION, answers=said["ask"], offer=mine, received=before)
    links.round(set(), [(FAR, hello.encode())], 0.0)
    return replace(hello, offer=offer)


def _links(paths: TeamPaths) -> Links:
    HostPlaces(paths).create()
    # Confirmed lines are removed from the outbox once they take up much of this size.
    hosts = HostSettings(name="h1", outbox_bytes=2048)
    settings = replace(Settings(), hosts=hosts)
    journal = Journal(paths.log("postman"), "postman")
    return build_postman(paths, settings, journal, lambda: None).links


def _mail(content: str, to: str = "bob") -> dict[str, Any]:
    made = f"id-{content}"
    message = Message(sender="alice", to="bob", content=content, id=made, timestamp=1.0).to_json()
    del message["to"]
    return {"to": to, "team": "project", "message": message}
