"""Joins the network of another process: to listen there, or to run a program in it.

A program of its own: joining a namespace changes the whole process. It is started as
`python -I -S netns.py PID NUMBER DEED …`, where NUMBER is the network's as the kernel has it, or
0 for any: the process may have ended, and its pid be another's. The deeds:

- `listen PORT FD` hands a listening socket over through the Unix socket FD; so a proxy can serve a
  sandbox that has no network, with nothing of ours running inside it.
- `run PROGRAM ARGUMENT…` becomes that program.

The network must have been made by a process of the same user's, in a user namespace of its own:
then that user has all rights there, see user_namespaces(7).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import sys

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_NS_GET_USERNS = 0xB701
_WAITING = 100


def join(pid: int, number: int) -> None:
    """Join the network of a process, and the user namespace whose network it is.

    That is not always the process's own: bubblewrap makes two, one inside the other.

    Raises:
        OSError: it cannot be joined, or is another one by now.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if number not in (0, os.fstat(network).st_ino):
        raise ProcessLookupError(pid)
    owner = fcntl.ioctl(network, _NS_GET_USERNS)
    os.set_inheritable(owner, False)
    for namespace, kind in ((owner, _CLONE_NEWUSER), (network, _CLONE_NEWNET)):
        if libc.setns(namespace, kind):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def listen(port: int, fd: int) -> None:
    """Listen on the loopback address, and send the socket."""
    with socket.socket() as listener, socket.socket(fileno=fd) as way:
        listener.bind(("127.0.0.1", port))
        listener.listen(_WAITING)
        socket.send_fds(way, [b"\0"], [listener.fileno()])


def main(pid: str, number: str, deed: str, *words: str) -> None:
    """Do what the command line says."""
    join(int(pid), int(number))
    if deed == "listen":
        listen(*map(int, words))
    else:
        os.execv(words[0], words)  # noqa: S606 -- what it is for


if __name__ == "__main__":
    main(*sys.argv[1:])
