"""Reading files that grow: their new lines, their last lines, and waiting for changes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from teamd.errors import translate_os_errors
from teamd.files import files
from teamd.files.safe_open import safe_open
from teamd.files.watch import Watch, wait_for, watch

_CHUNK: Final = 1 << 18


class GrowingFile:
    """A growing file, which may be replaced by a new one. Each whole line is read once.

    Args:
        path: the file, which may not exist yet.
        start: the offset of the first line to read in the present file.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path = path
        self._start = start
        self._fd = -1
        self._rest: list[bytes] = []  # the start of an unfinished line

    def __del__(self) -> None:
        self.close()

    def lines(self) -> Iterator[bytes]:
        """Yield the new lines since the last call."""
        with translate_os_errors(self._path):
            yield from self._read()
            if self._replaced():
                self.close()
                with suppress(FileNotFoundError):
                    self._fd = safe_open(self._path, os.O_RDONLY)
                    os.lseek(self._fd, self._start, os.SEEK_SET)
                self._start = 0
                yield from self._read()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _read(self) -> Iterator[bytes]:
        while self._fd >= 0 and (part := os.read(self._fd, 1 << 16)):
            *whole, rest = part.split(b"\n")
            if whole:
                yield b"".join((*self._rest, whole[0]))
                yield from whole[1:]
                self._rest = []
            self._rest.append(rest)

    def _replaced(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        if self._fd < 0 or os.fstat(self._fd).st_ino != there.st_ino:
            return True
        if there.st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
            # After a disk failure the file may have lost unsynced data.
            os.lseek(self._fd, 0, os.SEEK_END)
            self._rest = []
        return False


def lines_back(path: Path, end: float = math.inf) -> Iterator[tuple[int, bytes]]:
    """Yield the offsets and texts of the whole lines before an offset, the last line first."""
    with files.opened(path) as fd:
        start = 0 if fd is None else int(min(end, os.fstat(fd).st_size))
        behind: list[bytes] = []  # parts of one line, the last part first
        ended = False  # whether that line is complete; an unfinished line is left out
        while fd is not None and start:
            size = min(_CHUNK, start)
            start -= size
            first, *others = os.pread(fd, size, start).split(b"\n")
            place = start + size
            for part in reversed(others):
                place -= len(part)
                if ended:
                    yield place, b"".join((part, *reversed(behind)))
                behind, ended = [], True
                place -= 1
            behind.append(first)
        if ended:
            yield 0, b"".join(reversed(behind))


def end_of(path: Path) -> int:
    """Return the offset after the last whole line of a file."""
    return next((place + len(line) + 1 for place, line in lines_back(path)), 0)


def start_after(path: Path, before: Callable[[int, bytes], bool]) -> int:
    """Return the offset after the last whole line for which `before(offset, text)` is true."""
    start = end_of(path)
    for place, line in lines_back(path):
        if before(place, line):
            break
        start = place
    return start


def follow(look: Callable[[], None], *folders: Path) -> None:
    """Call `look` after each change in the folders, and once a second, until Ctrl-C."""
    wait_for(folders[0], look, timeout_seconds=math.inf, also=folders[1:])


@contextmanager
def hints(folders: Iterable[Path], tell: Callable[[Path], object]) -> Iterator[dict[Path, Watch]]:
    """Call `tell` with a folder in the event loop after each change in it; yield the watches."""
    import asyncio  # noqa: PLC0415 -- 40 ms, only for faces

    loop = asyncio.get_running_loop()

    def hear(folder: Path) -> None:
        watches[folder].changed()
        tell(folder)

    with ExitStack() as stack:
        watches = {one: stack.enter_context(closing(watch(one))) for one in folders}
        for folder, watching in watches.items():
            loop.add_reader(watching.fileno(), hear, folder)
            stack.callback(loop.remove_reader, watching.fileno())
        yield watches
