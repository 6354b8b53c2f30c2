"""Programs that end at once, for whoever has no loop to wait in."""

from __future__ import annotations

import errno
import socket
import subprocess
from typing import TYPE_CHECKING, Final

from teamd.programs import JOIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LISTEN_SECONDS: Final = 10.0


def run_briefly(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> tuple[int, str]:
    """Run a program that ends at once, and wait for it; for whoever has no loop.

    Returns:
        Its exit status, or a negative one where it did not come to its end, and its output.
    """
    try:
        ended = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_seconds,
            env={} if env is None else env,
            cwd="/",
            pass_fds=pass_fds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return ended.returncode, ended.stdout.decode(errors="replace")


def listen_in_namespace(pid: int, port: int) -> socket.socket:
    """Return a socket that listens on the loopback address of a process's network, see `netns`.

    Raises:
        OSError: it cannot be made.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(_LISTEN_SECONDS)
        fd = theirs.fileno()
        argv = [*JOIN, str(pid), "0", "listen", str(port), str(fd)]
        status, said = run_briefly(argv, timeout_seconds=_LISTEN_SECONDS, pass_fds=[fd])
        if status != 0:
            raise OSError(errno.EPERM, f"no proxy in the sandbox: {said.strip()[-200:]}")
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=fds[0])
