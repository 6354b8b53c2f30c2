"""A replacement for Python in forked commands, so that the `teamd` that they start is forked too.

The server writes the first line, `#!…/python -IS`, and listens at the socket next to the file. This
module imports built-in modules only, because imports take time. All programs except `teamd` are run
by Python. Linked under the names of the commands in a separate folder, it is a command that a shell
finds.
"""

from __future__ import annotations

import _socket
import array
import marshal
import os
import sys

_STARTS_TEAMD = ["-P", "-m", "teamd_commands", "teamd"]
_COMMANDS = ("teamd", "teamctl")
_CHANNEL = 3
# This process must not match when a test searches for its leftover processes by environment.
_WAIT = """
read -r status <&3 || exit 1
case $status in -*) kill "$status" $$ ;; esac
exit "$status"
"""


def main() -> None:
    """Act as the command until it ends; if this process is killed, so is the command."""
    folder, name = os.path.split(sys.argv[0])
    if name in _COMMANDS:
        argv = [name, *sys.argv[1:]]
        path = os.environ["PATH"].split(os.pathsep)
        os.environ["PATH"] = os.pathsep.join(one for one in path if one != folder)
    elif sys.argv[1:5] == _STARTS_TEAMD:
        argv = ["teamd", *sys.argv[5:]]
    else:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    fds = [fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_open(fd)]
    channel = _ask(argv, fds)
    while (part := channel.recv(1)) != b"\n":  # the pid
        if not part:
            sys.exit("the server of forked commands has gone")
    kept = os.dup(channel.fileno())
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd, number in ((nothing, 0), (nothing, 1), (nothing, 2), (kept, _CHANNEL)):
        os.dup2(fd, number)
    os.set_inheritable(_CHANNEL, True)  # even if its number does not change
    os.closerange(_CHANNEL + 1, max(*fds, nothing, kept) + 1)  # only the command keeps the pipes
    os.execve("/bin/sh", ["sh", "-c", _WAIT], {})


def _ask(argv: list[str], fds: list[int]) -> _socket.socket:
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    server.connect(os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), "socket"))
    mine, theirs = _socket.socketpair()
    given = array.array("i", [theirs.fileno(), *fds])
    server.sendmsg([b"fork"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, given)])
    server.close()
    theirs.close()
    wanted = {
        "argv": argv,
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "new_session": os.getsid(0) == os.getpid(),
        "numbers": fds,
        "umask": os.umask(0),
    }
    mine.sendall(marshal.dumps(wanted))
    mine.shutdown(_socket.SHUT_WR)
    return mine


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:  # the descriptor used for listing, closed by now
        return False
    return True


if __name__ == "__main__":
    main()
