"""What is around a workspace: sockets that hear whoever gets out, trees of files, processes."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket; who reaches it is noted by the kernel until somebody looks."""

    socket: socket.socket
    address: Any

    def callers(self) -> int:
        """Take what came in since the last look; return how much that was."""
        count = 0
        with suppress(BlockingIOError):
            while True:
                self._take()
                count += 1
        return count

    def call(self) -> None:
        """Reach it, as whoever gets out would."""
        with socket.socket(self.socket.family, self.socket.type) as caller:
            caller.connect(self.address)
            caller.sendall(b"proof")

    def _take(self) -> None:
        if self.socket.type == socket.SOCK_DGRAM:
            self.socket.recv(1 << 10)
        else:
            self.socket.accept()[0].close()


@contextmanager
def listening(path: Path, abstract: str) -> Iterator[dict[str, Listener]]:
    """Listen as a web server, a name server and twice as a program of the person's.

    Args:
        path: of a socket that is a file.
        abstract: the name of one that is not.
    """
    wanted: dict[str, tuple[int, int, Any]] = {
        "web": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "dns": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "path": (socket.AF_UNIX, socket.SOCK_STREAM, str(path)),
        "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}"),
    }
    with ExitStack() as stack:
        found = {}
        for name, (family, kind, address) in wanted.items():
            one = stack.enter_context(socket.socket(family, kind))
            one.bind(address)
            one.setblocking(False)
            if kind == socket.SOCK_STREAM:
                one.listen()
            found[name] = Listener(one, one.getsockname())
        yield found


def digest(*roots: Path) -> Mapping[str, str]:
    """Describe every file, folder and link of these trees, whose roots may be missing."""
    return {str(path): _describe(path) for root in roots for path in walk(root)}


def walk(root: Path) -> Iterator[Path]:
    """Yield a tree with its root, if that is there; no link is followed."""
    if os.path.lexists(root):
        yield root
    for folder, folders, names in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *names))


def holding(roots: Iterable[Path], *texts: str) -> list[Path]:
    """Return the regular files that hold one of these texts."""
    files = (path for root in roots for path in walk(root))
    regular = (path for path in files if stat.S_ISREG(path.lstat().st_mode))
    wanted = [text.encode() for text in texts]
    return [path for path in regular if any(text in path.read_bytes() for text in wanted)]


def command_lines(word: str) -> list[str]:
    """Return the command lines of all processes in which a word stands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            found += [" ".join(words)] * (word in words)
    return found


def _describe(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"link to {path.readlink()}"
    content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
    return f"{stat.filemode(mode)} {content}"
