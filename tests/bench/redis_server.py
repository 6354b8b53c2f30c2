"""A Redis server of one's own, in a folder of its own, on a socket there; gone at the end."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.waiting import wait_until


@dataclass(frozen=True)
class Servers:
    """Two servers, by whether each write is synced; or none, where they are not installed."""

    sockets: dict[bool, Path]
    version: str

    @property
    def found(self) -> bool:
        """Return whether there are any."""
        return bool(self.sockets)

    def __call__(self, durable: bool) -> Any:
        """Connect to one of them."""
        redis = import_module("redis")  # a peer, not a need
        return redis.Redis(unix_socket_path=str(self.sockets[durable]))


@contextmanager
def redis_server() -> Iterator[Servers]:
    """Run both kinds for as long as the block lasts."""
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
