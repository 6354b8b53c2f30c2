"""The link with one other host: both halves, and the questions that synchronize them.

Frames may be lost, duplicated, delayed or reordered. Lines and receipts are safe anyway: each has
an epoch, a number, and a chain that matches only one history. All other decisions (a new epoch, an
old copy, where to continue) need an answer to a question that was just asked, so an outdated frame
cannot affect them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from teamd.errors import StoreError
from teamd.postman import frames
from teamd.postman.frames import HelloFrame, LineFrame, ReceiptFrame
from teamd.postman.incoming import Incoming
from teamd.postman.outgoing import Outgoing

_FIRST_PAUSE_SECONDS: Final = 3.0
_LONGEST_PAUSE_SECONDS: Final = 60.0


@dataclass(slots=True)
class Link:
    """The link with one other host.

    Attributes:
        send: called with each frame, which may get lost.
    """

    outgoing: Outgoing
    incoming: Incoming
    send: Callable[[bytes], None]
    session: str = field(default_factory=lambda: os.urandom(8).hex())
    _up: bool = False
    _question: str = ""  # the open question
    _far: str = ""  # the other side's session at the last synchronization
    _pause_seconds: float = _FIRST_PAUSE_SECONDS
    _due: float = math.inf

    def connected(self, now: float) -> None:
        """Synchronize again, since frames may have been lost."""
        self._up = True
        self.outgoing.look()
        self._ask(now)

    def disconnected(self) -> None:
        """Wait for a connection."""
        self._up, self._question, self._due = False, "", math.inf

    def woken(self, now: float) -> None:
        """The other side is back: ask at once if something is open."""
        if self._up and self._due < math.inf:
            self._ask(now)

    def look(self, now: float) -> None:
        """Send appended lines.

        Raises:
            StoreError: the outbox cannot be read.
        """
        changed = self.outgoing.look()
        if not self._up:
            return
        if changed:
            self._ask(now)
        self._fill(now)

    def heard(self, payload: bytes, now: float) -> None:
        """Process a frame; its lines are only gathered, and `finish` processes them in batches.

        Raises:
            StoreError: files could not be read or written.
        """
        match frames.decode(payload):
            case LineFrame() as lines:
                self.incoming.gather(lines)
            case ReceiptFrame(session=session, cursor=cursor) if session == self._far:
                if self.outgoing.confirm(cursor):
                    self._progress(now)
                self._fill(now)
            case HelloFrame() as hello:
                self._greet(hello, now)

    @property
    def pending(self) -> bool:
        """Whether there are received lines for `finish`."""
        return self.incoming.pending

    def finish(self, now: float) -> None:
        """Deliver a batch of received lines, and confirm them.

        Raises:
            StoreError: some lines were not delivered and will be repeated.
        """
        try:
            self.incoming.take()
        except StoreError:
            self._confirm()  # the lines delivered before
            raise
        if self.incoming.stranger and not self._question:
            self._ask(now)
        self._confirm()

    def due_seconds(self, now: float) -> float:
        """Return the seconds until `due` or `finish` has work."""
        return 0.0 if self.pending else max(0.0, self._due - now)

    def due(self, now: float) -> None:
        """Ask for the other side's state if nothing has happened for long."""
        if now < self._due:
            return
        pause = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
        self._ask(now, self._pause_seconds)
        self._pause_seconds = pause

    def close(self) -> None:
        self.outgoing.close()

    def _greet(self, hello: HelloFrame, now: float) -> None:
        fresh = bool(self._question) and hello.answers == self._question
        if fresh:
            self._question, self._far = "", hello.session
            self._progress(now)
            if self.outgoing.settle(hello.received, now):
                self._open_question(now)
        elif self._is_news(hello) and not self._question:
            self._open_question(now)
        if hello.ask:
            self._say(answers=hello.ask)
        elif self._question:
            self._say()
        if fresh:  # after the answer, which reports the state before this call
            self.incoming.settle(hello.offer)
        self._confirm()
        self._fill(now)

    def _is_news(self, hello: HelloFrame) -> bool:
        """Return whether the hello would change the state here if it is current."""
        cursor, offer = self.incoming.cursor, hello.offer
        unknown = offer is not None and (cursor is None or cursor.epoch != offer.header.epoch)
        return hello.session != self._far or unknown

    def _ask(self, now: float, pause: float = _FIRST_PAUSE_SECONDS) -> None:
        if pause == _FIRST_PAUSE_SECONDS:
            self._pause_seconds = pause
        self._open_question(now, pause)
        self._say()

    def _open_question(self, now: float, pause: float = _FIRST_PAUSE_SECONDS) -> None:
        self._question = self._question or os.urandom(8).hex()
        self._due = now + pause

    def _say(self, answers: str = "") -> None:
        hello = HelloFrame(
            session=self.session,
            ask=self._question,
            answers=answers,
            offer=self.outgoing.offer(),
            received=self.incoming.cursor,
        )
        self.send(hello.encode())

    def _confirm(self) -> None:
        if self.incoming.owes and self.incoming.cursor is not None:
            self.incoming.owes = False
            self.send(ReceiptFrame(self.session, self.incoming.cursor).encode())

    def _fill(self, now: float) -> None:
        if not self._up or self._question:
            return
        for lines in self.outgoing.take():
            self.send(lines.encode())
        if self.outgoing.waiting:
            self._due = min(self._due, now + self._pause_seconds)
        else:
            self._due = math.inf

    def _progress(self, now: float) -> None:
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._due = now + _FIRST_PAUSE_SECONDS
