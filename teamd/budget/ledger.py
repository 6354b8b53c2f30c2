"""The ledger `.team/ledger.jsonl`: what model calls may take before, and have taken after.

A line is a record. `terms` are the limits in force; `reserve` keeps back the most that a call may
take, before it is made; `settle` says what it took; `refused` that one was not made, and `resumed`
that it may be tried again. A process that dies in between leaves its reservation open, and whoever
looks next settles it in full. When the file has grown long it is replaced by one with the sums
(`account`) and what is still open.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from teamd.budget.accounts import Account, Accounts, Reservation, Terms
from teamd.errors import translate_os_errors
from teamd.files import directories, files, locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from teamd.budget.accounts import Refusal
    from teamd.process_id import Identity

LONGEST_BYTES: Final = 256 * 1024
_HEAD_BYTES: Final = 64


@dataclass(eq=False)
class Ledger:
    """One process's view of the ledger; what others have added is read as it goes on.

    Attributes:
        path: the file, which is its own lock.
        longest_bytes: when it is replaced by its sums.
        is_alive: whether a process that has kept something back will still settle it.
    """

    path: Path
    _: KW_ONLY
    longest_bytes: int = LONGEST_BYTES
    is_alive: Callable[[Identity], bool] = attrgetter("alive")

    def __post_init__(self) -> None:
        self._accounts = Accounts()
        self._head = b""
        self._offset = 0
        self._named = b""  # how the file begins whose name is known to be safe

    def read(self) -> Accounts:
        """All accounts; calls of dead processes count in full. Nothing is locked or written.

        Raises:
            StoreError: it cannot be read.
        """
        accounts = Accounts()
        for line in (files.read(self.path) or b"").split(b"\n"):
            _apply(accounts, line)
        for kept in accounts.orphans(self.is_alive):
            _close(accounts, kept, kept.in_full())
        return accounts

    def agree(self, terms: Terms) -> None:
        """Put terms in force, for the next call of whomever.

        Raises:
            StoreError: it cannot be written; the old ones stay.
        """
        with self._locked() as fd:
            if terms.encode() != self._accounts.terms.encode():
                self._add(fd, {"record": "terms", **terms.encode()}, durable=True)
            else:
                self._sync(fd)

    def terms(self) -> Terms:
        """The terms in force."""
        with self._locked():
            return self._accounts.terms

    def reserve(self, wanted: Reservation) -> Refusal | None:
        """Keep back what a call may take, unless a limit forbids it.

        Returns:
            Why nothing was kept back, or `None`: then it is on disk, and the call may be made.

        Raises:
            StoreError: it cannot be written; the call must not be made.
        """
        with self._locked() as fd:
            self._bury(fd)
            refusal = self._accounts.refusal(wanted)
            if refusal is None:
                # On disk before the call: what a power cut forgot would be spent a second time.
                # Without a limit it is a note for `usage`, and no call waits for the disk.
                durable = self._accounts.terms.limited
                self._add(fd, {"record": "reserve", **wanted.encode()}, durable=durable)
            elif not refusal.passing and self._is_news(wanted):
                self._add(fd, {"record": "refused", **wanted.encode()}, durable=False)
            return refusal

    def settle(self, reservation: Reservation, account: Account | None) -> None:
        """Say what a call has taken; `None` for: nobody knows, so it counts in full.

        What somebody else has settled meanwhile stays as it is.
        """
        with self._locked() as fd:
            if reservation.id in self._accounts.held:
                # Lost in a power cut, it is settled in full: dearer, and never too little.
                self._settle(fd, reservation, account or reservation.in_full())
            if os.fstat(fd).st_size > self.longest_bytes:
                self._replace()

    def standing_refusal(
        self, name: str, price: Callable[[Reservation, Terms], Reservation] = lambda kept, _: kept
    ) -> Refusal | None:
        """Why a teammate whose call was refused would be refused again, if it would.

        Args:
            name: the teammate's.
            price: gives the call the price that it has by now.
        """
        with self._locked() as fd:
            self._bury(fd)
            wanted = self._accounts.refused.get(name)
            if wanted is None:
                return None
            refusal = self._accounts.refusal(price(wanted, self._accounts.terms))
            return None if refusal is None or refusal.passing else refusal

    def let_go(self, name: str) -> None:
        """Let a teammate whose call was refused try again."""
        with self._locked() as fd:
            if name in self._accounts.refused:
                self._add(fd, {"record": "resumed", "teammate": name}, durable=False)

    def is_refused(self, name: str) -> bool:
        """Whether the last call of a teammate was refused, and nobody has let it go since."""
        with self._locked():
            return name in self._accounts.refused

    def _is_news(self, wanted: Reservation) -> bool:
        last = self._accounts.refused.get(wanted.teammate)
        return last is None or (last.model, last.tokens) != (wanted.model, wanted.tokens)

    def _bury(self, fd: int) -> None:
        for kept in self._accounts.orphans(self.is_alive):
            self._settle(fd, kept, kept.in_full())

    def _settle(self, fd: int, reservation: Reservation, account: Account) -> None:
        record = {"record": "settle", "id": reservation.id, **account.encode()}
        self._add(fd, record, durable=False)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock, knowing all that the file says."""
        with locks.locked(self.path) as fd, translate_os_errors(self.path):
            self._catch_up(fd)
            yield fd

    def _catch_up(self, fd: int) -> None:
        # Every file begins with a number of its own: an inode may come back, a length be reached.
        head = os.pread(fd, _HEAD_BYTES, 0)
        if not head.startswith(self._head) or os.fstat(fd).st_size < self._offset:
            self._accounts = Accounts()
            self._head, self._offset = b"", 0
        if not head:
            files.write_at_end(fd, _line({"record": "begun", "number": os.urandom(8).hex()}))
        new = files.read_descriptor(fd, self._offset)
        whole = new.rfind(b"\n") + 1  # what a killed writer tore is ended by the next line
        for line in new[:whole].split(b"\n"):
            _apply(self._accounts, line)
        self._offset += whole
        self._head = os.pread(fd, min(_HEAD_BYTES, self._offset), 0)

    def _add(self, fd: int, record: dict[str, Any], *, durable: bool) -> None:
        files.write_at_end(fd, _line({**record, "time": time.time()}))
        self._catch_up(fd)  # applied as everybody else reads it
        if durable:
            self._sync(fd)

    def _sync(self, fd: int) -> None:
        """Make all records safe, and the name of a file that another process may have put there."""
        files.sync(fd)
        if not (self._named and self._head.startswith(self._named)):
            directories.sync_directory(self.path.parent)
            self._named = self._head

    def restore(self, used: Mapping[str, Account]) -> None:
        """Replace a damaged ledger by one with what is known to have been used, at once.

        Nobody else may be at work.
        """
        self._accounts = Accounts(used=dict(used))
        self._replace()

    def _replace(self) -> None:
        """Put the sums in the place of the records; whoever waits for the lock opens the new."""
        accounts = self._accounts
        records: list[dict[str, Any]] = [
            {"record": "begun", "number": os.urandom(8).hex()},
            {"record": "terms", **accounts.terms.encode()},
        ]
        for name, account in accounts.used.items():
            records.append({"record": "account", "teammate": name, **account.encode()})
        for kind, kept in (("reserve", accounts.held), ("refused", accounts.refused)):
            records += [{"record": kind, **other.encode()} for other in kept.values()]
        files.replace(self.path, b"".join(map(_line, records)))


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _apply(accounts: Accounts, line: bytes) -> None:
    """Apply a record; what is none, or of a later kind, is passed over."""
    with suppress(
        ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError
    ):
        record = json.loads(line, parse_float=Decimal)
        match record.get("record"):
            case "terms":
                accounts.terms = Terms.decode(record)
            case "account":
                accounts.charge(str(record["teammate"]), Account.decode(record))
            case "reserve":
                reservation = Reservation.decode(record)
                accounts.held[reservation.id] = reservation
                accounts.refused.pop(reservation.teammate, None)
            case "refused":
                refused = Reservation.decode(record)
                accounts.refused[refused.teammate] = refused
            case "resumed":
                del accounts.refused[str(record["teammate"])]
            case "settle":
                _close(accounts, accounts.held[str(record["id"])], Account.decode(record))


def _close(accounts: Accounts, reservation: Reservation, account: Account) -> None:
    del accounts.held[reservation.id]
    accounts.charge(reservation.teammate, account)
