"""The ledger `.team/ledger.jsonl`: a reservation before each model call, a settlement after it.

A process that dies between the two records of a call leaves an open reservation, which counts in
full. It is settled in full when another call does not fit beside it, or when the file has grown
long. A long file is replaced by one with the sums and the open reservations.

Each line is a record, a JSON object. `terms`: the limits in force. `reserve`: the most that a call
may use, before it is made. `settle`: its use. `refused`: a call was not made. `resumed`: it may be
tried again. `raised`: a person has raised a limit. `account` and `day`: the sums of one teammate,
and of the whole team on one day.

A call counts for the local day on which it was reserved. The record contains that day, so that
readers in another time zone, or after a change of the clock, agree.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, replace
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from teamd.budget import days
from teamd.budget.account import Account, Reservation
from teamd.budget.accounts import Accounts, Terms
from teamd.budget.limits import Raise, Refusal
from teamd.errors import StoreError, translate_os_errors
from teamd.files import directories, files, locks
from teamd.process_id import Identity

LONGEST_BYTES: Final = 256 * 1024
KEPT_DAYS: Final = 100
_HEAD_BYTES: Final = 64
_DECODER: Final = json.JSONDecoder(parse_float=Decimal)
# The errors that a damaged line, or a record of a later version, can cause.
_DAMAGED: Final = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


@dataclass(eq=False)
class Ledger:
    """A process's view of the ledger, which reads the records of other processes as they come.

    Attributes:
        path: the file, which is also the lock.
        longest_bytes: a longer file is replaced by its sums.
        is_alive: tells whether a process still runs and so will settle its reservations.
        today: returns the local day.
    """

    path: Path
    _: KW_ONLY
    longest_bytes: int = LONGEST_BYTES
    is_alive: Callable[[Identity], bool] = attrgetter("alive")
    today: Callable[[], str] = days.today

    def __post_init__(self) -> None:
        self._accounts = Accounts()
        self._owed: dict[str, Account | None] = {}  # finished calls that are not yet settled
        self._head = b""
        self._offset = 0
        self._named = b""  # the start of the file whose name is known to be on disk

    def read(self) -> Accounts:
        """Return all accounts; calls of dead processes count in full.

        Takes no lock and writes nothing.

        Raises:
            StoreError: the ledger cannot be read.
        """
        accounts = Accounts()
        apply(accounts, files.read(self.path) or b"")
        for kept in accounts.orphans(self.is_alive):
            accounts.close(kept, kept.in_full())
        return accounts

    def prepare(self) -> None:
        """Read the file and sync its name, so that forked children need not."""
        with self._locked() as fd:
            self._sync(fd)

    def agree(self, terms: Terms) -> None:
        """Put terms in force for the next call of any teammate.

        Raises:
            StoreError: the ledger cannot be written; the old terms stay in force.
        """
        with self._locked() as fd:
            if terms.encode() != self._accounts.terms.encode():
                self._add(fd, {"record": "terms", **terms.encode()})
            self._sync(fd)

    def reserve(
        self,
        wanted: Reservation,
        price: Callable[[Reservation, Terms], Reservation] = lambda kept, _: kept,
    ) -> Refusal | None:
        """Reserve the most that a call may use, unless a limit forbids it.

        Args:
            wanted: the most that the call may use.
            price: adds the price by the terms in force.

        Returns:
            Why nothing was reserved; `None` if the reservation is on disk and the call may be made.

        Raises:
            StoreError: the ledger cannot be written; the call must not be made.
        """
        with self._locked() as fd:
            self._settle_owed(fd)
            wanted = replace(price(wanted, self._accounts.terms), day=self._day())
            # A reservation counts the same before and after it is settled in full. So dead
            # processes are searched only if the call does not fit.
            refusal = self._accounts.refusal(wanted)
            if refusal is not None and self._bury(fd):
                refusal = self._accounts.refusal(wanted)
            if refusal is None:
                self._add(fd, {"record": "reserve", **wanted.encode()})
                # Sync before the call: after a power cut, an unsynced use would be spent again.
                # Without a limit the record is only for `usage`, and the call does not wait.
                if self._accounts.terms.bound(wanted):
                    locks.release(fd)  # one sync covers the reservations of several processes
                    self._sync(fd)
            elif not refusal.passing:
                self._refuse(fd, replace(wanted, day=refusal.of if refusal.until else ""))
            return refusal

    def settle(self, reservation: Reservation, account: Account | None) -> None:
        """Record the usage of a call; `None` if it is unknown, so that the call counts in full.

        A call that another process has settled meanwhile stays as it is. If the record cannot be
        written now, it is written before the next call of this process.
        """
        self._owed[reservation.id] = account
        with suppress(StoreError), self._locked() as fd:
            self._settle_owed(fd)
            if os.fstat(fd).st_size > self.longest_bytes:
                self._bury(fd)  # otherwise their reservations would be kept forever
                self._replace()

    def standing_refusal(
        self, name: str, price: Callable[[Reservation, Terms], Reservation] = lambda kept, _: kept
    ) -> Refusal | None:
        """Return why a teammate whose call was refused would be refused again, or `None`.

        Args:
            name: the name of the teammate.
            price: adds today's price to the call.
        """
        with self._locked() as fd:
            self._bury(fd)
            _, standing = self._standing(name, price)
            return next(iter(standing), None)

    def raise_limits(
        self,
        name: str,
        more: Mapping[str, Decimal],
        price: Callable[[Reservation, Terms], Reservation] = lambda kept, _: kept,
    ) -> tuple[list[Raise], Refusal | None]:
        """Raise the limits that stop a teammate, if it can then continue; otherwise raise none.

        Args:
            name: the name of the teammate.
            more: the amount by unit: `usd`, `tokens`.
            price: as for `standing_refusal`.

        Returns:
            The raises, which are on disk. Without any, the limit that stops the teammate, if any.
        """
        with self._locked() as fd:
            self._bury(fd)
            wanted, standing = self._standing(name, price)
            raises = [one.raised_by(more[one.unit]) for one in standing if one.unit in more]
            if wanted is None or not raises:
                return [], next(iter(standing), None)
            left = _lasting(self._accounts.with_raised(raises).refusals(wanted))
            if left:
                return [], next(one for one in standing if one.key == left[0].key)
            self._add(fd, *({"record": "raised", **one.encode()} for one in raises))
            self._sync(fd)  # if it were lost, the person would have to raise the limit again
            return raises, None

    def let_go(self, name: str) -> None:
        """Let a teammate whose call was refused try again."""
        with self._locked() as fd:
            if name in self._accounts.refused:
                self._add(fd, {"record": "resumed", "teammate": name})

    def is_refused(self, name: str) -> bool:
        """Return whether a teammate's last call was refused and no person has resumed it since.

        A call that a daily or monthly limit refused may be tried again in the next period.
        """
        with self._locked():
            last = self._accounts.refused.get(name)
            today = self._day()
            return last is not None and last.day in ("", today, days.month_of(today))

    def _standing(
        self, name: str, price: Callable[[Reservation, Terms], Reservation]
    ) -> tuple[Reservation | None, list[Refusal]]:
        """Return a teammate's refused call, and the reasons why it would be refused again."""
        last = self._accounts.refused.get(name)
        if last is None:
            return None, []
        wanted = replace(price(last, self._accounts.terms), day=self._day())
        return wanted, _lasting(self._accounts.refusals(wanted))

    def _refuse(self, fd: int, wanted: Reservation) -> None:
        last = self._accounts.refused.get(wanted.teammate)
        known = last and (last.model, last.tokens, last.day)
        if known != (wanted.model, wanted.tokens, wanted.day):
            self._add(fd, {"record": "refused", **wanted.encode()})

    def _day(self) -> str:
        """Return the local day, but never a day before the oldest day that is kept.

        After the clock was set back, calls must count for a day whose sum is known. The sum of a
        removed day would start at 0 again.
        """
        known, today = self._accounts.days, self.today()
        return max(today, min(known)) if len(known) >= KEPT_DAYS else today

    def _bury(self, fd: int) -> bool:
        """Settle the calls of dead processes in full; return whether there were any."""
        orphans = self._accounts.orphans(self.is_alive)
        for kept in orphans:
            self._settle(fd, kept, kept.in_full())
        return bool(orphans)

    def _settle_owed(self, fd: int) -> None:
        """Settle the finished calls of this process; a call lost in a power cut counts in full."""
        for call, account in list(self._owed.items()):
            if (kept := self._accounts.held.get(call)) is not None:
                self._settle(fd, kept, account or kept.in_full())
            del self._owed[call]

    def _settle(self, fd: int, reservation: Reservation, account: Account) -> None:
        record = {"record": "settle", "id": reservation.id, **account.encode()}
        self._add(fd, record)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock, with all records of the file applied."""
        with locks.locked(self.path) as fd, translate_os_errors(self.path):
            self._catch_up(fd)
            yield fd

    def _catch_up(self, fd: int) -> None:
        # Every file starts with a random number, which tells a new file from the old one.
        head, size = os.pread(fd, _HEAD_BYTES, 0), os.fstat(fd).st_size
        if not head.startswith(self._head) or size < self._offset:
            self._accounts = Accounts()
            self._head, self._offset = b"", 0
        if not head:
            files.write_at_end(fd, encode(_begun()))
        elif size == self._offset:
            return
        new = files.read_descriptor(fd, self._offset)
        whole = new.rfind(b"\n") + 1  # the next writer completes the line of a killed writer
        apply(self._accounts, new[:whole])
        self._offset += whole
        if len(self._head) < _HEAD_BYTES:
            self._head = os.pread(fd, min(_HEAD_BYTES, self._offset), 0)

    def _add(self, fd: int, *records: dict[str, Any]) -> None:
        """Add records, without a sync."""
        now = time.time()
        files.write_at_end(fd, b"".join(encode({**record, "time": now}) for record in records))
        self._catch_up(fd)  # applied as other processes read it

    def _sync(self, fd: int) -> None:
        """Sync all records, and the name of the file if another process may have replaced it."""
        files.sync(fd)
        if not (self._named and self._head.startswith(self._named)):
            directories.sync_directory(self.path.parent)
            self._named = self._head

    def restore(self, used: Mapping[str, Account], by_day: Mapping[str, Account]) -> None:
        """Replace a damaged ledger by the known usage; no teammate may be running."""
        self._accounts = Accounts(used=dict(used), days=dict(by_day))
        self._replace()

    def _replace(self) -> None:
        """Replace the records by their sums; processes that wait for the lock open the new file."""
        sums = summarise(self._accounts, kept_days=KEPT_DAYS)
        files.replace(self.path, b"".join(map(encode, (_begun(), *sums))))


def encode(record: dict[str, Any]) -> bytes:
    """Return the line of a record, including its newline."""
    return json.dumps(record).encode() + b"\n"


def apply(accounts: Accounts, lines: bytes) -> None:
    """Apply the records of whole lines; damaged lines and later kinds are skipped."""
    for line in lines.split(b"\n"):
        with suppress(*_DAMAGED):
            _apply_record(accounts, _DECODER.decode(line.decode()))


def _apply_record(accounts: Accounts, record: dict[str, Any]) -> None:
    match record.get("record"):
        case "terms":
            accounts.terms = Terms.decode(record)
        case "raised":
            accounts.lift(Raise.decode(record))
        case "refused":
            refused = Reservation.decode(record)
            accounts.refused[refused.teammate] = refused
        case "resumed":
            del accounts.refused[str(record["teammate"])]
        case kind:
            _apply_use(accounts, kind, record)


def _apply_use(accounts: Accounts, kind: str | None, record: dict[str, Any]) -> None:
    match kind:
        case "reserve":
            accounts.hold(Reservation.decode(record))
        case "settle":
            accounts.close(accounts.held[str(record["id"])], Account.decode(record))
        case "account":
            accounts.charge(str(record["teammate"]), Account.decode(record))
        case "day":
            accounts.charge_day(str(record["day"]), Account.decode(record))


def summarise(accounts: Accounts, *, kept_days: int) -> Iterator[dict[str, Any]]:
    """Yield records that lead to the same accounts, with the last `kept_days` days."""
    yield {"record": "terms", **accounts.terms.encode()}
    for day, account in sorted(accounts.days.items())[-kept_days:]:
        yield {"record": "day", "day": day, **account.encode()}
    for (limit, of), amount in accounts.raised.items():
        yield {"record": "raised", **Raise(limit=limit, of=of, amount=amount).encode()}
    for name, account in accounts.used.items():
        yield {"record": "account", "teammate": name, **account.encode()}
    for kind, kept in (("reserve", accounts.held), ("refused", accounts.refused)):
        yield from ({"record": kind, **other.encode()} for other in kept.values())


def _begun() -> dict[str, Any]:
    return {"record": "begun", "number": os.urandom(8).hex()}


def _lasting(refusals: Iterable[Refusal]) -> list[Refusal]:
    return [one for one in refusals if not one.passing]
