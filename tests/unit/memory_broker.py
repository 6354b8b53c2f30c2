"""A broker in memory, for tests of one sender or one receiver of mail between hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from teamd.postman.connection import NotStored


@dataclass
class Delivered:
    """One delivery of a stored message, which may be acknowledged once."""

    number: int
    subject: str
    data: bytes
    headers: dict[str, str] | None
    deliveries: int = 0
    is_gone: bool = False  # acknowledged, so that the broker has forgotten it
    _is_answered: bool = True

    @property
    def metadata(self) -> Any:
        sequence = SimpleNamespace(stream=self.number)
        return SimpleNamespace(sequence=sequence, num_delivered=self.deliveries)

    def deliver(self) -> Delivered:
        self.deliveries += 1
        self._is_answered = False
        return self

    async def ack(self) -> None:
        self._answer()
        self.is_gone = True

    async def nak(self, delay: float) -> None:
        assert delay > 0, "the broker would deliver it again at once"
        self._answer()

    def _answer(self) -> None:
        if self._is_answered:
            raise RuntimeError("a message can be answered once for each delivery")
        self._is_answered = True


@dataclass
class MemoryBroker:
    """Stores messages once for each id, and the values of buckets.

    Attributes:
        refused: the numbers of publications that fail, from 1 on.
    """

    refused: frozenset[int] = frozenset()
    stored: list[Delivered] = field(default_factory=list)
    values: dict[tuple[str, str], bytes] = field(default_factory=dict)
    published: list[tuple[str, bytes, dict[str, str]]] = field(default_factory=list)

    def store(self, subject: str, data: bytes, headers: Mapping[str, str] | None) -> Delivered:
        message = Delivered(
            len(self.stored) + 1, subject, data, None if headers is None else dict(headers)
        )
        self.stored.append(message)
        return message

    async def publish(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> Any:
        self.published.append((subject, payload, dict(headers)))
        done = asyncio.get_running_loop().create_future()
        if len(self.published) in self.refused:
            done.set_exception(NotStored[0](description="refused"))
            return done
        made = headers["Nats-Msg-Id"]
        known = any((one.headers or {}).get("Nats-Msg-Id") == made for one in self.stored)
        if not known:
            self.store(subject, payload, headers)
        done.set_result(SimpleNamespace(duplicate=known))
        return done

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        self.values[bucket, key] = value

    async def last_number(self) -> int:
        return len(self.stored)

    def fetch_all(self) -> list[Delivered]:
        """Deliver every message that is not acknowledged, in order."""
        return [one.deliver() for one in self.stored if not one.is_gone]
