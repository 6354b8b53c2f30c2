"""The server process: uvicorn on a loopback or Unix socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from uvicorn import Config, Server

from teamctl.web.events import BACKLOG, ConnectionLimit, EventLog, allow_descriptors, protocol
from teamctl.web.guard import Guard, Tokens
from teamctl.web.mail import TeamMail
from teamctl.web.pages import Pages, parts
from teamctl.web.watcher import PartsWatcher
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError, translate_os_errors
from teamd.files.paths import TeamPaths
from teamd.files.safe_open import PRIVATE_FILE, private_umask

LOOPBACK: Final = "127.0.0.1"
FORWARDED_PORT: Final = 8080  # the host name in the link to a Unix socket that `ssh -L` forwards
_NAMES: Final = (LOOPBACK, "localhost")
_KEEP_SECONDS: Final = 30  # for an idle connection
_END_SECONDS: Final = 1
_LONGEST_PATH: Final = 107  # bytes of a socket's name, unix(7)


def serve(
    choice: TeamOptions,
    paths: TeamPaths,
    *,
    file: Path | None,
    port: int,
    forwarded: int | None,
    readonly: bool,
    tell: Callable[[str], None],
) -> None:
    """Serve until a signal ends it.

    Args:
        choice: the team for actions.
        paths: the same team.
        file: the path of a Unix socket; `None` for loopback.
        port: on loopback, 0 for any free one; for a Unix socket, the port in the link.
        forwarded: the port on the browser's machine if a tunnel changes it.
        readonly: whether actions are refused.
        tell: called with the link once the server accepts connections.
    """
    tokens = Tokens.made(readonly=readonly)
    with _ended_by_signals(), _loopback(port) if file is None else _in_file(file) as listening:
        own = listening.getsockname()[1] if file is None else port or FORWARDED_PORT
        number = forwarded or own
        hosts = frozenset(f"{name}:{one}" for name in _NAMES for one in (own, number))
        mail = TeamMail(paths)
        watcher = PartsWatcher(parts(choice, paths, mail), EventLog())
        app = Guard(Pages(choice, paths, mail, watcher, tokens).app(), hosts=hosts, tokens=tokens)
        allow_descriptors()
        listening.listen(BACKLOG)
        tell(f"http://{LOOPBACK}:{number}/#token={tokens.full or tokens.reading}")
        if forwarded is not None:
            there = f"{LOOPBACK}:{own}" if file is None else file
            tell(f"to be opened where `ssh -N -L {forwarded}:{there} …` to this machine runs")
        _run(app, listening)


def _run(app: Guard, listening: socket.socket) -> None:
    config = Config(
        app,
        http=protocol(ConnectionLimit()),
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
        raise TeamError(f"there is no folder {file.parent} for the socket; name another place")
    if len(os.fsencode(file)) > _LONGEST_PATH:
        raise TeamError(f"{file} is too long for a socket; name a place of a shorter path")
    if not file.is_socket():
        if file.exists() or file.is_symlink():
            raise TeamError(f"{file} is there already and is no socket; name another place")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(file))
        except ConnectionRefusedError:
            file.unlink()  # stale: its server was killed
            return
    raise TeamError(f"another server listens at {file}; end it, or name another place")
