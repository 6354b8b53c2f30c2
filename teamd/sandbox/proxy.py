"""The network of a teammate's commands, and the proxy that connects them to a few named hosts.

The proxy listens in the network namespace of the sandbox and connects outside. It serves CONNECT,
for TLS, and plain HTTP (RFC 9110, 9.3.6 and RFC 9112, 3.2.2), and refuses all other requests.

A command that starts while a background job of the same teammate runs joins the network of the
job, so it can connect to a server that the job runs. If hosts are configured, all commands that run
at the same time share one network and its proxy.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from teamd.programs import JOIN, run_to_end
from teamd.sandbox.policy import PROXY_PORT

_STANDARD_PORTS: Final = (80, 443)
_REQUEST_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 10.0
_LISTEN_SECONDS: Final = 10.0
_HEAD_BYTES: Final = 65_536
_CHUNK: Final = 65_536
_MOST_CONNECTIONS: Final = 100
# Headers for one connection only, and Host, which the proxy sets from the requested URL.
_REPLACED: Final = (b"connection:", b"proxy-", b"keep-alive:", b"host:")


class Refused(Exception):
    """A request that the proxy refuses, with an HTTP status and a sentence."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


class HostProxy:
    """The proxy of one sandbox.

    Args:
        hosts: the allowed names, either alone for the ports 80 and 443 or with a port. `*.` matches
            any subdomain.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = tuple(hosts)
        self._open: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None

    def listen_in(self, pid: int) -> None:
        """Listen in the network namespace of a process.

        Raises:
            OSError: the proxy cannot listen there.
        """
        listener = _listen_in_namespace(pid, PROXY_PORT)
        self._serving = asyncio.get_running_loop().create_task(self._serve(listener))

    def close(self) -> None:
        """End all connections."""
        for task in (self._serving, *self._open):
            if task is not None:
                task.cancel()

    async def _serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._accept, sock=listener, limit=_HEAD_BYTES)
        async with server:
            await server.serve_forever()

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._open) >= _MOST_CONNECTIONS:
            writer.close()
            return
        self._open.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the client sees the end of the connection
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            host, port, first = _parse(head)
            self._check(host, port)
            theirs, ours = await _connect(host, port)
        except Refused as refused:
            text = f"teamd: {refused}\n".encode()
            status = f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            writer.write(f"{status}Content-Length: {len(text)}\r\n\r\n".encode() + text)
            await writer.drain()
            return
        try:
            if first is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                ours.write(first)
            await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))
        finally:
            ours.close()

    def _check(self, host: str, port: int) -> None:
        if not any(is_allowed(one, host, port) for one in self._hosts):
            named = ", ".join(self._hosts)
            why = f"{host}:{port} may not be reached; the hosts are: {named}"
            raise Refused("403 Forbidden", why)


def is_allowed(allowed: str, host: str, port: int) -> bool:
    """Return whether one entry of the settings allows a host, see `HostProxy`."""
    name, _, its_port = allowed.partition(":")
    inner = name.startswith("*.") and not host.startswith(".")
    fits = host.endswith(name[1:]) if inner else host == name
    return fits and (port == int(its_port) if its_port else port in _STANDARD_PORTS)


def _parse(head: bytes) -> tuple[str, int, bytes | None]:
    """Return the host, the port and, except for CONNECT, the request to send there.

    Raises:
        Refused: it is not a request for a proxy.
    """
    line, _, rest = head.partition(b"\r\n")
    try:
        method, target, version = line.decode("ascii").split(" ")
        connect = method == "CONNECT"
        url = urlsplit(f"//{target}" if connect else target)
        host, port = (url.hostname or "").rstrip("."), url.port
    except ValueError:
        raise Refused("400 Bad Request", "this is not a proxy request") from None
    if not host or url.username or (not connect and url.scheme != "http"):
        raise Refused("400 Bad Request", "this is not a proxy request")
    if connect:
        return host, port or 443, None
    fields = [one for one in rest.split(b"\r\n") if not one.lower().startswith(_REPLACED)]
    path = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
    first = f"{method} {path} {version}\r\nHost: {url.netloc}\r\nConnection: close"
    lines = [first.encode(), *fields]
    return host, port or 80, b"\r\n".join(lines)


async def _connect(host: str, port: int) -> tuple[StreamReader, StreamWriter]:
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        raise Refused("502 Bad Gateway", f"{host}:{port} cannot be reached: {error}") from None


async def _copy(source: StreamReader, target: StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(_CHUNK):
            target.write(chunk)
            await target.drain()
    with suppress(OSError, RuntimeError):
        target.write_eof()


@dataclass(slots=True)
class Network:
    """A network that commands share while at least one of them runs.

    Attributes:
        hosts: the outside hosts that they can connect to, see `HostProxy`.
    """

    hosts: Sequence[str]
    _inside: dict[str, int] = field(default_factory=dict)
    _number: int = 0  # the inode of the namespace: a pid may be reused
    _proxy: HostProxy | None = None

    @property
    def used(self) -> bool:
        """Return whether a command runs in it, so that others can join."""
        return bool(self._inside)

    def joining(self, argv: Sequence[str]) -> list[str]:
        """Return a bubblewrap command line that joins this network, if a command runs in it.

        The joining program is root in the user namespace that owns the network, so the user id must
        be given.
        """
        if not self.used:
            return list(argv)
        user = ("--uid", str(os.geteuid()), "--gid", str(os.getegid()))
        first = next(iter(self._inside.values()))
        return [*JOIN, str(first), str(self._number), "run", *argv, "--share-net", *user]

    def enter(self, command: str, first: int) -> None:
        """Record a command, by its id, and its first process; the first command starts the proxy.

        Raises:
            OSError: the proxy cannot start.
        """
        if self.hosts and self._proxy is None:
            proxy = HostProxy(self.hosts)
            proxy.listen_in(first)
            self._proxy = proxy
        self._number = os.stat(f"/proc/{first}/ns/net").st_ino  # noqa: PTH116 -- not a file
        self._inside[command] = first

    def leave(self, command: str) -> None:
        """Record that a command has ended, if it entered; the last command stops the proxy."""
        self._inside.pop(command, None)
        if self._proxy and not self.used:
            self._proxy.close()
            self._proxy = None


def _listen_in_namespace(pid: int, port: int) -> socket.socket:
    """Return a listening socket on the loopback address of a process's network, see `netns`.

    Raises:
        OSError: it cannot be made.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(_LISTEN_SECONDS)
        fd = theirs.fileno()
        argv = [*JOIN, str(pid), "0", "listen", str(port), str(fd)]
        done = run_to_end(argv, timeout_seconds=_LISTEN_SECONDS, env={}, pass_fds=[fd])
        if done.status != 0:
            why = done.stderr.decode(errors="replace").strip()[-200:]
            raise OSError(errno.EPERM, f"no proxy in the sandbox: {why}")
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=fds[0])
