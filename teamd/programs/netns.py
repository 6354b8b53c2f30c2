"""Joins the network namespace of another process, to listen there or to run a program in it.

This is a script, since joining a namespace changes the whole process. It is started as
`python -I -S netns.py PID NUMBER ACTION …`. NUMBER is the inode of the namespace, or 0 for any; it
detects that the pid was reused. The actions:

- `listen PORT FD` sends a listening socket through the Unix socket FD; so a proxy can serve a
  sandbox without a network from outside.
- `run PROGRAM ARGUMENT…` executes the program.

The namespace must belong to a user namespace of the same user, who then has all rights there, see
user_namespaces(7).
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
    """Join the network namespace of a process, and the user namespace that owns it.

    That is not always the process's own user namespace: bubblewrap makes two, one in the other.

    Raises:
        OSError: it cannot be joined, or is not the namespace of that number.
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


def main(pid: str, number: str, action: str, *words: str) -> None:
    join(int(pid), int(number))
    if action == "listen":
        listen(*map(int, words))
    else:
        os.execv(words[0], words)  # noqa: S606 -- what it is for


if __name__ == "__main__":
    main(*sys.argv[1:])
