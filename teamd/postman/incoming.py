"""The receiving half of a link: lines in their order, each once, noted before it is confirmed."""

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
    """Does what lines say."""

    def deliver(self, host: str, lines: Sequence[OutLine], *, suspected: bool) -> None:
        """Put mail where it belongs; it is safe when this returns.

        Args:
            host: where it comes from.
            lines: each holds mail, as far as its begin tells.
            suspected: whether some may have been delivered before.

        Raises:
            StoreError: all of them come again.
        """

    def act(self, host: str, line: dict[str, Any]) -> None:
        """Do what a request asks for, or take an answer; it never comes again."""


_is_mail: Final = attrgetter("is_mail")
_MOST_BYTES: Final = 1 << 22  # more than a sender may have under way
BATCH_LINES: Final = 256  # half a window: the other half is on its way meanwhile


@dataclass(slots=True)
class Incoming:
    """What arrives of another host's outbox.

    Attributes:
        host: whose it is.
        file: says how much of it has arrived.
        receiver: gets what arrives.
        window: so many lines of it may have been delivered, and not been noted.
        batch: so many are delivered, noted and confirmed together.
        report: hears what could not be made good.
    """

    host: str
    file: CursorFile
    receiver: Receiver
    _: KW_ONLY
    window: int
    report: Callable[[str], None]
    batch: int = BATCH_LINES
    cursor: Cursor | None = None
    stranger: bool = False  # lines of another epoch came: the other side is to be asked
    owes: bool = False  # a receipt
    _suspected: int = 0  # lines up to this number may have been delivered
    _pending: list[OutLine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cursor = self.file.read()
        if self.file.damaged and not self.file.blank:
            self.report("what was received from it is not known any more: its cursor was damaged")
        if self.cursor is not None:  # killed between inbox and cursor, maybe
            self._suspected = self.cursor.n + self.window

    @property
    def pending(self) -> bool:
        """Whether there are lines for `take`."""
        return bool(self._pending)

    def gather(self, frame: LineFrame) -> None:
        """Keep the lines of a frame that come next; `take` deals with them."""
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
        room = self.window - len(self._pending)  # no sender may have more under way
        self._pending += read_run(pass_over(frame.content, n), n, chain, room)

    def take(self) -> None:
        """Deliver a batch of what was gathered, and note it.

        Raises:
            StoreError: what is not noted by then comes again, and the rest behind it.
        """
        pending, self._pending = self._pending, []
        self.owes = self.owes or bool(pending)
        for is_mail, run in groupby(pending[: self.batch], key=_is_mail):
            if is_mail:
                self._deliver(list(run))
            else:
                for line in run:
                    self._note(line)  # first: what is asked for is done once at most
                    self.receiver.act(self.host, read_fields(line))
        self._pending = pending[self.batch :]

    def settle(self, offer: Offer | None) -> bool:
        """Go on with the outbox that the other side has just told of; return whether it is another.

        Raises:
            StoreError: that could not be noted.
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
        if offer.confirmed.n >= before.n:  # the rest was confirmed by a folder that is gone
            before = offer.confirmed
        return self._adopt(before, suspected=self._suspect(offer))

    def _suspect(self, offer: Offer) -> int:
        """Return up to which line of an outbox that is new here mail may be here already."""
        if self._follows_on(offer):
            return offer.header.copied
        met = self.cursor is not None or self.file.damaged or offer.confirmed.n
        return offer.last if met else 0

    def _follows_on(self, offer: Offer) -> bool:
        return self.cursor is not None and self.cursor.epoch == offer.header.former

    def _report_change(self, offer: Offer) -> None:
        """Say what became of the outbox that was known here, if one was."""
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
        self._pending.clear()  # it followed the former one
        return True

    def _deliver(self, lines: list[OutLine]) -> None:
        suspected = lines[0].n <= self._suspected
        self._suspected = max(self._suspected, lines[-1].n)  # if it fails: some may be there then
        self.receiver.deliver(self.host, lines, suspected=suspected)
        self._note(lines[-1])

    def _note(self, line: OutLine) -> None:
        assert self.cursor is not None  # noqa: S101 -- for the type checker
        cursor = Cursor(self.cursor.epoch, line.n, line.chain)
        self.file.write(cursor)
        self.cursor = cursor
