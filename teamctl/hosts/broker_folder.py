"""The folder of a broker: its CA, certificate and configuration, and the record behind them.

Commands that change it hold its lock. The record is written before the files derived from it, so
that an interrupted change cannot restore a removed host. The next change writes the rest again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from teamctl.hosts import authority, server
from teamctl.hosts.authority import Pair, Validity
from teamctl.hosts.record import BrokerRecord
from teamctl.hosts.token import Token
from teamd import programs
from teamd.errors import StoreError, TeamError, translate_os_errors
from teamd.files import directories, files, locks
from teamd.process_id import Identity

PROGRAM: Final = "nats-server"
_PLACES: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/bin")
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")  # also the local end of a tunnel
_HOUR: Final = timedelta(hours=1)
_CHECK_SECONDS: Final = 20.0


def find_program(others: Sequence[str] = _PLACES) -> str:
    """Return the path of nats-server; Debian installs it outside a user's PATH.

    Raises:
        TeamError: it is not installed.
    """
    found = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=os.pathsep.join(others))
    if found is None:
        raise TeamError(
            "nats-server, which carries the mail between hosts, is not installed here; "
            "`apt-get install nats-server` installs it (others: nats.io)"
        )
    return found


class BrokerFolder:
    """A broker's folder, as the commands of its host read and change it."""

    def __init__(self, folder: Path) -> None:
        self.files = server.BrokerFiles(folder)

    def read(self) -> BrokerRecord | None:
        """Return the broker's record; `None` if this host has no broker.

        Raises:
            StoreError: the record cannot be read.
        """
        data = files.read(self.files.record)
        try:
            return None if data is None else BrokerRecord.decode(data)
        except ValueError as error:
            raise StoreError(f"{self.files.record}: {error}; restore it from a backup") from error

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Exclude other commands that change the same folder."""
        directories.make_safe_directory(self.files.folder)
        with locks.locked(self.files.folder / "broker.lock"):
            yield

    def found(self, record: BrokerRecord) -> None:
        """Create a CA, unless there is one; it must precede everything that it signs."""
        if not files.exists(self.files.ca_cert):
            made = authority.new_authority(f"teamd broker {record.id}")
            files.replace(self.files.ca_key, made.key)
            files.replace(self.files.ca_cert, made.cert)

    def certify_server(self, record: BrokerRecord) -> None:
        """Issue the broker's certificate for its current addresses."""
        name = f"teamd broker {record.id}"
        names = dict.fromkeys((*record.addresses, *_LOCAL))
        own = authority.issue_server(self._authority(), name, names, Validity.long())
        files.replace(self.files.key, own.key)
        files.replace(self.files.cert, own.cert)

    def write(self, record: BrokerRecord) -> None:
        """Write the record, and the configuration and units derived from it.

        Raises:
            TeamError: nats-server rejects the configuration.
        """
        program = find_program()
        text = server.configuration(self.files, record).encode()
        tried = self.files.configuration.with_suffix(".tried")
        files.replace(tried, text, durable=False)
        try:
            _check(program, tried)
        finally:
            files.remove(tried)
        files.replace(self.files.record, record.encode())
        files.replace(self.files.configuration, text)
        for team in record.teams:
            unit = server.unit(self.files, record, team, program)
            files.replace(self.files.unit(team, record), unit.encode())

    def issue(self, record: BrokerRecord, team: str, host: str) -> Token:
        """Issue a host's certificate, and return the host's token.

        Raises:
            StoreError: the CA is missing.
        """
        pair = authority.issue_host(
            self._authority(), host, record.user(team, host), Validity.long()
        )
        return Token(
            team=team,
            name=host,
            servers=record.servers,
            cert=pair.cert.decode(),
            key=pair.key.decode(),
            ca=self._authority().cert.decode(),
        )

    def issue_witness(self, record: BrokerRecord) -> Pair:
        """Issue the certificate that only a broker with this revision of the record admits."""
        now = datetime.now(UTC)
        valid = Validity(now - _HOUR, now + _HOUR)
        return authority.issue_host(self._authority(), "witness", record.witness, valid)

    def running(self) -> Identity | None:
        """Return the process of nats-server with this configuration, if it runs."""
        try:
            pid = int(files.read(self.files.pid) or b"")
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (ValueError, OSError):
            return None
        ours = str(self.files.configuration).encode()
        return Identity.of(pid) if any(word.endswith(ours) for word in words) else None

    def signal_reload(self) -> bool:
        """Make the broker reload its configuration; return whether it runs."""
        process = self.running()
        return process is not None and process.signal(signal.SIGHUP)

    def _authority(self) -> Pair:
        cert, key = files.read(self.files.ca_cert), files.read(self.files.ca_key)
        if cert is None or key is None:
            where = self.files.folder
            raise StoreError(f"{where} has lost its CA; restore ca.crt and ca.key from a backup")
        return Pair(cert, key)


def _check(program: str, configuration: Path) -> None:
    """Let nats-server validate the configuration."""
    argv = [program, "-t", "-c", str(configuration)]
    with translate_os_errors(Path(program)):
        ended = asyncio.run(programs.capture(argv, timeout_seconds=_CHECK_SECONDS))
    if ended.status != 0:
        said = (ended.stderr or ended.stdout).decode(errors="replace").strip().splitlines()
        why = said[-1] if said else f"exit status {ended.status}"
        raise TeamError(f"{program} does not accept {configuration}: {why}")
