"""The receiving half of a link: processes lines in order, once each, and confirms recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Protocol

from teamd.hosts.cursor import Cursor, CursorFile
from teamd.hosts.lines import OutLine, pass_over, read_fields, read_run
from teamd.postman.frames import LineFrame, Offer


class Receiver(Protocol):
    """Processes received lines."""

    def deliver(self, host: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
        """Deliver mail; it is durable when this returns.

        Args:
            host: the sending host.
            lines: lines that start like mail.
            suspected: whether some of them may have been delivered before.

        Raises:
            StoreError: the delivery failed, and all lines will be repeated.
        """

    def act(self, host: str, line: dict[str, Any]) -> None:
        """Execute a request, or accept an answer; the line is never repeated."""


_is_mail: Final = attrgetter("is_mail")
_MOST_BYTES: Final = 1 << 22  # more than a sender may have in flight
BATCH_LINES: Final = 256  # half a window, while the other half is in flight


@dataclass(slots=True)
class Incoming:
    """Receives another host's outbox.

    Attributes:
        host: the sending host.
        file: the position up to which lines have arrived.
        receiver: processes the lines.
        window: the maximum number of lines that may be delivered but not recorded.
        batch: the number of lines that are delivered, recorded and confirmed together.
        report: called with problems that could not be resolved.
    """

    host: str
    file: CursorFile
    receiver: Receiver
    _: KW_ONLY
    window: int
    report: Callable[[str], None]
    batch: int = BATCH_LINES
    cursor: Cursor | None = None
    stranger: bool = False  # lines of another epoch arrived, so the other side must be asked
    owes: bool = False  # a receipt
    _suspected: int = 0  # lines up to this number may have been delivered
    _pending: list[OutLine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cursor = self.file.read()
        if self.file.damaged and not self.file.blank:
            self.report("what was received from it is not known any more: its cursor was damaged")
        if self.cursor is not None:  # perhaps killed between inbox and cursor
            self._suspected = self.cursor.n + self.window

    @property
    def pending(self) -> bool:
        """Whether there are lines for `take`."""
        return bool(self._pending)

    def gather(self, frame: LineFrame) -> None:
        """Keep the next lines from a frame; `take` processes them."""
        cursor = self.cursor
        if cursor is None or frame.epoch != cursor.epoch:
            self.stranger = True
            return
        self.owes = True
        n, chain = cursor.n, cursor.chain
        if self._pending:
            n, chain = self._pending[-1].n, self._pending[-1].chain
        if sum(len(line.raw) for line in self._pending) > _MOST_BYTES:
            return
        room = self.window - len(self._pending)  # no sender may have more in flight
        self._pending += read_run(pass_over(frame.content, n), n, chain, room)

    def take(self) -> None:
        """Deliver a batch of the gathered lines, and record it.

        Raises:
            StoreError: unrecorded lines and the rest will be repeated.
        """
        pending, self._pending = self._pending, []
        self.owes = self.owes or bool(pending)
        for is_mail, run in groupby(pending[: self.batch], key=_is_mail):
            if is_mail:
                self._deliver(list(run))
            else:
                for line in run:
                    self._note(line)  # recorded first, so that a request is executed at most once
                    self.receiver.act(self.host, read_fields(line))
        self._pending = pending[self.batch :]

    def settle(self, offer: Offer | None) -> bool:
        """Continue with the other side's current outbox; return whether the position has changed.

        Raises:
            StoreError: the new position could not be recorded.
        """
        self.stranger = False
        if offer is None:
            return False
        header, cursor = offer.header, self.cursor
        before = Cursor(header.epoch, header.first - 1, header.chain)
        if cursor is not None and cursor.epoch == header.epoch:
            if cursor.n >= before.n:
                return False
            gap = before.n - cursor.n
            self.report(f"this team's folder is an old copy: {gap} messages from it are gone")
            return self._adopt(before, suspected=offer.last)
        self._report_change(offer)
        # A folder that no longer exists has confirmed the lines before.
        if offer.confirmed.n >= before.n:
            before = offer.confirmed
        return self._adopt(before, suspected=self._suspect(offer))

    def _suspect(self, offer: Offer) -> int:
        """Return the last line of a new outbox that may have been delivered before."""
        if self._follows_on(offer):
            return offer.header.copied
        met = self.cursor is not None or self.file.damaged or offer.confirmed.n
        return offer.last if met else 0

    def _follows_on(self, offer: Offer) -> bool:
        return self.cursor is not None and self.cursor.epoch == offer.header.former

    def _report_change(self, offer: Offer) -> None:
        """Report why the known outbox was replaced by another one."""
        if self.cursor is None:
            if offer.confirmed.n:
                self.report(
                    f"this team's folder is a new one: {offer.confirmed.n} messages from it came "
                    "to an earlier one"
                )
        elif self._follows_on(offer):
            self.report(
                "it came back with an old copy of its folder, and begins anew, or what waited "
                "there was damaged"
            )
        else:
            self.report(
                "it has lost its folder: what waited there to be sent, and had not arrived, is gone"
            )

    def _adopt(self, cursor: Cursor, *, suspected: int) -> bool:
        self.file.write(cursor)
        self.cursor, self._suspected, self.owes = cursor, suspected, True
        self._pending.clear()  # these lines followed the former position
        return True

    def _deliver(self, lines: list[OutLine]) -> None:
        suspected = lines[0].n <= self._suspected
        # Even if the delivery fails, since some may be delivered.
        self._suspected = max(self._suspected, lines[-1].n)
        self.receiver.deliver(self.host, lines, suspected=suspected)
        self._note(lines[-1])

    def _note(self, line: OutLine) -> None:
        assert self.cursor is not None  # noqa: S101 -- for the type checker
        cursor = Cursor(self.cursor.epoch, line.n, line.chain)
        self.file.write(cursor)
        self.cursor = cursor
