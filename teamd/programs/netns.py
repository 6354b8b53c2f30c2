"""Opens a listening socket in the network namespace of another process, and hands it over.

A program of its own, started as `python -I -S netns.py PID PORT FD`: joining a namespace changes
the whole process. FD is a Unix socket over which the listening one goes. So a proxy can serve a
sandbox that has no network, with nothing of ours running inside it.

The process must be one of the same user's, in a user namespace which that user made: then its
owner has all rights there, see user_namespaces(7).
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_WAITING = 100


def main(pid: int, port: int, fd: int) -> None:
    """Join the namespaces, listen on the loopback address, and send the socket."""
    libc = ctypes.CDLL(None, use_errno=True)
    namespaces = [
        (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind)
        for name, kind in (("user", _CLONE_NEWUSER), ("net", _CLONE_NEWNET))
    ]
    for namespace, kind in namespaces:
        if libc.setns(namespace, kind):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    with socket.socket() as listener, socket.socket(fileno=fd) as way:
        listener.bind(("127.0.0.1", port))
        listener.listen(_WAITING)
        socket.send_fds(way, [b"\0"], [listener.fileno()])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
