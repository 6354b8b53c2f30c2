"""Other queues for messages: a bare file, SQLite and Redis Streams.

Each is created with its own folder, durable or not. `sender` opens it and returns a function that
sends a message, given the sender's name and the message's number; that function and `read` run in
separate processes. A reader stores the messages before it removes them, except that of the bare
file, which loses them if it is killed. It takes messages as fast as it can, and inspects none
before it has all. The readers of a bare file and of SQLite wait for a change in the folder, as ours
does.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from teamd.files.watch import watch
from teamd.messages import new_id
from tests.waiting import wait_until


@dataclass(frozen=True)
class Servers:
    """Two Redis servers, by whether each write is synced; empty if Redis is not installed."""

    sockets: dict[bool, Path]
    version: str

    @property
    def found(self) -> bool:
        """Return whether Redis is installed."""
        return bool(self.sockets)

    def __call__(self, durable: bool) -> Any:
        redis = import_module("redis")  # not a dependency
        return redis.Redis(unix_socket_path=str(self.sockets[durable]))


@contextmanager
def redis_server() -> Iterator[Servers]:
    """Run both servers until the end of the block."""
    program = shutil.which("redis-server")
    if find_spec("redis") is None:
        program = None
    if program is None:
        yield Servers({}, "no Redis (redis-server and the package redis), left out")
        return
    with tempfile.TemporaryDirectory() as folder:
        sockets = {durable: Path(folder) / f"{durable}.sock" for durable in (False, True)}
        started = [_start(program, Path.cwd(), path, durable) for durable, path in sockets.items()]
        try:
            for path in sockets.values():
                wait_until(path.exists, what="Redis listens")
            version = subprocess.run([program, "--version"], capture_output=True, check=True)
            words = version.stdout.decode().split()
            yield Servers(
                sockets, f"Redis {words[2].removeprefix('v=')}, redis {version_of('redis')}"
            )
        finally:
            for process, data in started:
                process.kill()
                process.wait()
                shutil.rmtree(data)


def _start(
    program: str, here: Path, socket: Path, durable: bool
) -> tuple[subprocess.Popen[bytes], Path]:
    data = Path(tempfile.mkdtemp(dir=here, prefix=".redis-"))
    argv = [program, "--port", "0", "--unixsocket", str(socket), "--dir", str(data)]
    argv += ["--appendonly", "yes", "--appendfsync", "always" if durable else "everysec"]
    argv += ["--save", "", "--loglevel", "warning"]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL), data


Send = Callable[[str, int], object]

TEXT: Final = "x" * 100


def line(sender: str, n: int) -> bytes:
    """Build a message as any program would."""
    names = {"id": new_id(), "type": "message", "from": sender, "to": "bob"}
    return json.dumps({**names, "content": text(n), "timestamp": time.time()}).encode() + b"\n"


def text(n: int) -> str:
    """Return the content of a message, which begins with its number."""
    return f"{n} {TEXT}"


def batches(folder: Path, wanted: int, take: Callable[[], int]) -> None:
    """Take messages until this many have arrived.

    Args:
        folder: the folder that is watched for changes when there are no messages.
        wanted: the number of messages.
        take: takes the available messages, and returns their number.
    """
    with closing(watch(folder)) as watching:
        while wanted > 0:
            wanted -= (count := take())
            if not count:
                select.select([watching], [], [], 1.0)
            watching.changed()  # clear events, including those that taking has caused


class Flock:
    """A file with an open descriptor and `flock`."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._path, self._durable = folder / "inbox", durable
        self._path.touch()

    def sender(self) -> Send:
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND)

        def send(sender: str, n: int) -> None:
            made = line(sender, n)
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, made)
            fcntl.flock(fd, fcntl.LOCK_UN)
            if self._durable:
                os.fdatasync(fd)

        return send

    def read(self, wanted: int) -> Iterator[bytes]:
        found: list[bytes] = []
        with self._path.open("r+b", 0) as file:

            def take() -> int:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                if lines := file.readall().splitlines():
                    file.truncate(0)
                fcntl.flock(file, fcntl.LOCK_UN)
                found.extend(lines)
                return len(lines)

            batches(self._path.parent, wanted, take)
        yield from found


class Sqlite:
    """A table in a database in WAL mode."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._path, self._level = folder / "mail.db", "FULL" if durable else "NORMAL"
        made = self._open()
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE mail (n INTEGER PRIMARY KEY, line BLOB)")
        made.execute("CREATE TABLE kept (n INTEGER PRIMARY KEY, line BLOB)")
        made.close()

    def _open(self) -> sqlite3.Connection:
        opened = sqlite3.connect(self._path, isolation_level=None, timeout=60)
        opened.execute(f"PRAGMA synchronous={self._level}")
        return opened

    def sender(self) -> Send:
        opened = self._open()
        return lambda sender, n: opened.execute(
            "INSERT INTO mail (line) VALUES (?)", (line(sender, n),)
        )

    def read(self, wanted: int) -> Iterator[bytes]:
        opened = self._open()

        def take() -> int:
            opened.execute("BEGIN IMMEDIATE")
            opened.execute("INSERT INTO kept (line) SELECT line FROM mail ORDER BY n LIMIT 100")
            count: int = opened.execute("SELECT changes()").fetchone()[0]
            opened.execute("DELETE FROM mail WHERE n IN (SELECT n FROM mail ORDER BY n LIMIT 100)")
            opened.execute("COMMIT")
            return count

        batches(self._path.parent, wanted, take)
        yield from (row[0] for row in opened.execute("SELECT line FROM kept"))
        opened.close()


class Redis:
    """A stream with a group of one reader."""

    def __init__(self, _: Path, *, durable: bool, connect: Callable[[bool], Any]) -> None:
        self._connect = partial(connect, durable)
        server = self._connect()
        server.flushall()
        server.xgroup_create("mail", "readers", mkstream=True)

    def sender(self) -> Send:
        server = self._connect()
        return lambda sender, n: server.xadd("mail", {"line": line(sender, n)})

    def read(self, wanted: int) -> Iterator[bytes]:
        server = self._connect()
        found: list[bytes] = []
        while len(found) < wanted:
            came = server.xreadgroup("readers", "bob", {"mail": ">"}, count=100, block=10)
            for _, entries in came or []:
                found += (fields[b"line"] for _, fields in entries)
                ids = [one for one, _ in entries]
                server.xack("mail", "readers", *ids)
                server.xdel("mail", *ids)
        yield from found
