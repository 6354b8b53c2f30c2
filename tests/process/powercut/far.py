"""The actions of a postman in a scene; the broker exists only as the messages it delivers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, NoReturn

from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.messages import MAX_MESSAGE_BYTES, Message
from teamd.postman import process
from teamd.postman.connection import LostConnection
from teamd.postman.delivery import FarDelivery
from teamd.postman.receiving import Receiver
from teamd.postman.sending import AFTER, AGAIN, KEY, Sender

OWN, FAR = "h1", "h2"
_TEAM: Final = "project"


@dataclass(slots=True)
class Broker:
    """A connection to a broker that has just lost its storage, and is then lost itself.

    Attributes:
        held: the messages for this host.
        last: the number up to which messages may have been received before.
        published: the keys of the messages from this host.
        confirmed: the number of confirmations that this host has written.
    """

    held: Sequence[Any] = ()
    last: int = 0
    published: list[str] = field(default_factory=list)
    confirmed: int = 0

    async def last_number(self) -> int:
        return self.last

    async def bind(self) -> None: ...

    async def fetch(self, _: int, *, seconds: float) -> Sequence[Any]:
        del seconds
        if not self.held:
            raise LostConnection("the scene is over")
        found, self.held = self.held, ()
        return found

    async def put(self, *_: object) -> None:
        self.confirmed += 1

    async def publish(self, _: str, __: bytes, headers: Mapping[str, str]) -> asyncio.Future[Any]:
        self.published.append(headers[KEY])
        stored = asyncio.get_running_loop().create_future()
        stored.set_result(SimpleNamespace(duplicate=False))
        return stored


def send_far(paths: TeamPaths, *contents: str) -> None:
    """Send mail to the other host."""
    for content in contents:
        Outbox(paths, FAR).append(**_mail(content))


def damage_outbox(paths: TeamPaths) -> None:
    """Overwrite the beginning of the outbox with garbage."""
    fd = os.open(HostPlaces(paths).outbox(FAR), os.O_RDWR)
    os.pwrite(fd, b"?", 0)
    os.fsync(fd)
    os.close(fd)


def take_name(paths: TeamPaths, name: str) -> None:
    HostPlaces(paths).create()
    process.take_name(paths, name, durable=True)


def carry(paths: TeamPaths) -> None:
    """Send the content of the outbox to the other host."""
    asyncio.run(_carry(paths, confirm=False))


def carry_and_confirm(paths: TeamPaths) -> None:
    """Send the content of the outbox and receive its confirmation, which empties the outbox."""
    asyncio.run(_carry(paths, confirm=True))


async def _carry(paths: TeamPaths, *, confirm: bool) -> None:
    HostPlaces(paths).create()
    broker: Any = Broker()
    sender = Sender(
        Outbox(paths, FAR), OWN, broker, lambda: True, lambda _: None, _not_expected
    )  # fmt: skip
    sending = asyncio.create_task(sender.run(None))
    # It waits for a confirmation once it has published all lines, without real input and output.
    await asyncio.wait([sending], timeout=0.1)
    assert broker.published
    if confirm:
        sender.confirm(len(broker.published), broker.published[-1])
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending


def receive(paths: TeamPaths, *contents: str) -> None:
    """Receive mail that the other host has sent, from its first line on."""
    asyncio.run(_receive(paths, contents, "bob", repeated=True))


def receive_for_nobody(paths: TeamPaths, *contents: str) -> None:
    """Receive mail for an unknown name, which is reported to its sender."""
    asyncio.run(_receive(paths, contents, "nobody", repeated=False))


async def _receive(paths: TeamPaths, contents: Sequence[str], to: str, *, repeated: bool) -> None:
    """Receive mail that may have come before, or (if not `repeated`) certainly has not."""
    HostPlaces(paths).create()
    after, held = "", list[Any]()
    for number, content in enumerate(contents, start=1):
        line = json.dumps({"kind": "mail", **_mail(content, to)}).encode()
        key = f"key-{content}"
        again = {AGAIN: "1"} if repeated else {}
        held.append(_message(number, line, {KEY: key, AFTER: after, **again}))
        after = key
    broker: Any = Broker(held, last=len(held) if repeated else 0)
    with closing(Journal(paths.log("postman"), "postman")) as journal:
        hosts = FarHosts(paths, OWN)
        post = MailRouter(paths, durable=True, max_bytes=MAX_MESSAGE_BYTES, hosts=hosts)
        delivery = FarDelivery(post, _TEAM, journal)
        with suppress(LostConnection):
            await Receiver(OWN, broker, delivery, _not_expected, journal, durable=True).run({})
    assert broker.confirmed


def _message(number: int, line: bytes, headers: Mapping[str, str]) -> Any:
    sequence = SimpleNamespace(stream=number)
    return SimpleNamespace(
        subject=f"mail.{OWN}.{FAR}",
        data=line,
        headers=headers,
        metadata=SimpleNamespace(sequence=sequence, num_delivered=1),
        ack=_nothing,
        nak=_not_expected,
    )


def _nothing() -> Coroutine[Any, Any, None]:
    return asyncio.sleep(0)


def _not_expected(*_: object, **__: object) -> NoReturn:
    raise AssertionError


def _mail(content: str, to: str = "bob") -> dict[str, Any]:
    made = f"id-{content}"
    message = Message(sender="alice", to="bob", content=content, id=made, timestamp=1.0).to_json()
    del message["to"]
    return {"to": to, "team": _TEAM, "message": message}
