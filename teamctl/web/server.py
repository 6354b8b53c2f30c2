"""The server process: uvicorn on a loopback or Unix socket, and the limits on its connections."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from teamctl.web.guard import Guard, Tokens
from teamctl.web.pages import Pages
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError, translate_os_errors
from teamd.files.safe_open import PRIVATE_FILE, private_umask

LOOPBACK: Final = "127.0.0.1"
FORWARDED_PORT: Final = 8080  # the host name in the link to a Unix socket that `ssh -L` forwards
_NAMES: Final = (LOOPBACK, "localhost")
_KEEP_SECONDS: Final = 30  # for an idle connection
_END_SECONDS: Final = 1
_LONGEST_PATH: Final = 107  # bytes of a socket's name, unix(7)
MOST_STRANGERS: Final = 128  # connections without a valid token
MOST_READERS: Final = 256  # connections with a valid token
BACKLOG: Final = 256  # accepted at once, before they are counted
STRANGER_SECONDS: Final = 15.0  # until the first request with a token
STUCK_SECONDS: Final = 10.0  # the time for a reader to read the sent data
_DESCRIPTORS: Final = 1024  # the descriptors for all connections, including watches and files


def serve(
    choice: TeamOptions,
    announce: Callable[[str, str], None],
    *,
    file: Path | None,
    port: int,
    forwarded: int | None,
    readonly: bool,
) -> None:
    """Serve a team until a signal ends it.

    Args:
        choice: the team for actions.
        announce: gets the link once it works, and a sentence about the tunnel, which may be empty.
        file: the path of a Unix socket; `None` for loopback.
        port: on loopback, 0 for any free one; for a Unix socket, the port in the link.
        forwarded: the port on the browser's machine if a tunnel changes it.
        readonly: whether actions are refused.
    """
    paths = choice.existing()
    tokens = Tokens.made(readonly=readonly)
    with _ended_by_signals(), _loopback(port) if file is None else _in_file(file) as listening:
        own = listening.getsockname()[1] if file is None else port or FORWARDED_PORT
        number = forwarded or own
        hosts = frozenset(f"{name}:{one}" for name in _NAMES for one in (own, number))
        app = Guard(Pages(choice, paths, tokens).app(), hosts=hosts, tokens=tokens)
        allow_descriptors()
        listening.listen(BACKLOG)
        there = f"{LOOPBACK}:{own}" if file is None else file
        tunnel = f"to be opened where `ssh -N -L {forwarded}:{there} …` to this machine runs"
        link = f"http://{LOOPBACK}:{number}/#token={tokens.full or tokens.reading}"
        announce(link, "" if forwarded is None else tunnel)
        _run(app, listening)


def _run(app: Guard, listening: socket.socket) -> None:
    config = Config(
        app,
        http=type("ServedConnection", (Connection,), {"crowd": ConnectionLimit()}),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # invalid requests are not reported
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_SECONDS,
        timeout_graceful_shutdown=_END_SECONDS,
    )
    asyncio.run(Server(config).serve(sockets=[listening]))


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End the block on SIGTERM or Ctrl-C, the usual ends of the server.

    uvicorn handles both while it serves, and raises them again afterwards.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _loopback(port: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # allows a restart on the port
        try:
            made.bind((LOOPBACK, port))
        except OSError as error:
            why = error.strerror
            raise TeamError(
                f"port {port} cannot be used ({why}); name another with --port"
            ) from error
        yield made


@contextmanager
def _in_file(file: Path) -> Iterator[socket.socket]:
    """Make a private Unix socket, replacing a stale one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made, translate_os_errors(file):
        _make_way(file)
        with private_umask():
            made.bind(str(file))
        file.chmod(PRIVATE_FILE)
        try:
            yield made
        finally:
            with suppress(FileNotFoundError):
                file.unlink()


def _make_way(file: Path) -> None:
    if not file.parent.is_dir():
        raise TeamError(f"there is no folder {file.parent} for the socket; name another path")
    if len(os.fsencode(file)) > _LONGEST_PATH:
        raise TeamError(f"{file} is too long for a socket; name a shorter path")
    if not file.is_socket():
        if file.exists() or file.is_symlink():
            raise TeamError(f"{file} already exists and is not a socket; name another path")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(file))
        except ConnectionRefusedError:
            file.unlink()  # stale: its server was killed
            return
    raise TeamError(f"another server listens at {file}; stop it, or name another path")


class ConnectionLimit:
    """All connections, the oldest first; beyond the limit the oldest stranger is closed.

    So a flood of connections closes only its own. Connections that showed a token are never closed;
    beyond their limit, new ones are refused.
    """

    def __init__(self, *, strangers: int = MOST_STRANGERS, readers: int = MOST_READERS) -> None:
        self._most = strangers, readers
        self._strangers: dict[Connection, None] = {}
        self._readers: dict[Connection, None] = {}

    def enter(self, one: Connection) -> None:
        """Count a new connection."""
        self._strangers[one] = None
        if len(self._strangers) > self._most[0]:
            next(iter(self._strangers)).abort()

    def know(self, one: Connection) -> bool:
        """Count a connection with a valid token; return whether there is room."""
        if one in self._readers:
            return True
        if len(self._readers) >= self._most[1]:
            return False
        self._strangers.pop(one, None)
        self._readers[one] = None
        return True

    def leave(self, one: Connection) -> None:
        self._strangers.pop(one, None)
        self._readers.pop(one, None)


class Connection(H11Protocol):
    """One connection; a subclass sets `crowd`, since uvicorn makes the connections."""

    crowd: ConnectionLimit

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        self._serve, self.app = self.app, self._named
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's
        """Count the connection, and limit its time without a token."""
        super().connection_made(transport)
        self.crowd.enter(self)
        self._limit(STRANGER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        self._limit(None)
        self.crowd.leave(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Close the connection soon unless the other side reads on."""
        super().pause_writing()
        self._limit(STUCK_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._limit(None)

    def vouch(self) -> bool:
        """Record that a token was shown; return whether there is room."""
        self._limit(None)
        return self.crowd.know(self)

    def abort(self) -> None:
        """Close at once, dropping unsent data."""
        self.crowd.leave(self)
        self.transport.abort()

    async def _named(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve a request with its connection in the scope."""
        scope["connection"] = self
        await self._serve(scope, receive, send)

    def _limit(self, seconds: float | None) -> None:
        """Close it after this many seconds; `None` cancels that."""
        if self._deadline is not None:
            self._deadline.cancel()
        later = asyncio.get_running_loop().call_later
        self._deadline = None if seconds is None else later(seconds, self.abort)


def allow_descriptors() -> None:
    """Raise the limit on open files as far as the connection limits need it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
