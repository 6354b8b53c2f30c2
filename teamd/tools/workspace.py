"""The workspace: the only module that turns a model's path into a place on disk."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from teamd.files.directories import make_private_directory
from teamd.files.safe_open import FOLDER
from teamd.sandbox import GIT
from teamd.sandbox.policy import HOME
from teamd.sandbox.protected_paths import ProtectedPath, is_protected
from teamd.tools import ToolError

# O_NONBLOCK: opening a FIFO would wait for its other end; O_NOCTTY: a terminal would become ours.
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
# How bash in the sandbox calls the home.
_IN_HOME: Final = re.compile(rf"(~|\$HOME|\$\{{HOME\}}|{re.escape(HOME)})(/|$)")


class Workspace:
    """A folder that a teammate works in, with the parts that are out of its reach.

    Args:
        root: the folder.
        hidden: folders that may be in it and stay out of reach, such as the team directory.
        protected: returns the places in it that must not be changed.
        home: the teammate's home, which is within reach as well, by the names that its commands
            use, wherever it is; it is made on the first write.
    """

    def __init__(
        self,
        root: Path,
        hidden: Sequence[Path] = (),
        protected: Callable[[Path], Iterable[ProtectedPath]] = lambda _: (),
        home: Path | None = None,
    ) -> None:
        self.root: Final = Path(os.path.realpath(root))
        self._protected = protected
        self._home = None if home is None else Path(os.path.realpath(home))
        self._hidden = tuple(Path(os.path.realpath(folder)) for folder in hidden)

    def resolve(self, path: str) -> Path:
        """Return the place that a path names, from root or home or absolute; follow links.

        Raises:
            ToolError: it is outside the workspace and the home, or hidden.
        """
        try:
            # Not strict: a file to be written need not exist. A path that cannot be looked into
            # stays as it is in the result, and cannot be opened by that name either.
            place = Path(os.path.realpath(self.root / self._expand(path)))
            hidden = self._is_hidden(place)
        except ValueError as error:  # NULs, lone surrogates
            raise ToolError(f"no file can be called {path!r}") from error
        if self._is_in_home(place):
            return place
        if not place.is_relative_to(self.root):
            why = f"{path!r} is outside the workspace {self.root}"
            also = "" if self._home is None else " and in your home ~"
            raise ToolError(f"{why}; only what is in it{also} can be used")
        if hidden:
            why = f"{path!r} is in a team directory, which is not for tools"
            raise ToolError(f"{why}; use another place in the workspace {self.root}")
        return place

    def check_writable(self, place: Path) -> None:
        """Check that a resolved path may be written to.

        Raises:
            ToolError: it is, or is inside, a place that must not be changed.
        """
        if self._is_in_home(place):
            return
        of_git = place.relative_to(self.root).parts[:1] == (GIT,)
        if of_git or is_protected(place, self._protected(self.root)):
            why = "it runs by itself, or tells agents what to do"
            raise ToolError(f"{self.shown(place)} is protected and stays as it is: {why}")

    def shown(self, place: Path) -> str:
        """Return the name of a resolved path in a sentence, and in a rule of team.toml."""
        shown = str(place.relative_to(self._base(place)))
        if self._is_in_home(place):
            return "~" if shown == "." else f"~/{shown}"
        return f"./{shown}" if _IN_HOME.match(shown) else shown  # a folder that is called ~

    def is_base(self, place: Path) -> bool:
        """Return whether a resolved path is the root or the home itself."""
        return place == self._base(place)

    def open(self, place: Path) -> int:
        """Open a resolved regular file for reading; the caller closes the descriptor.

        Raises:
            ToolError: it is not a regular file.
            OSError: it cannot be opened; `filename` is the place.
        """
        with self.folder(place) as folder:
            try:
                fd = os.open("." if self.is_base(place) else place.name, _FILE, dir_fd=folder)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(place)) from error
        kind = os.fstat(fd).st_mode
        if not stat.S_ISREG(kind):
            os.close(fd)
            raise ToolError(not_a_file(self.shown(place), kind))
        return fd

    @contextmanager
    def folder(self, place: Path, *, create: bool = False) -> Iterator[int]:
        """Open the folder of a resolved path, going down from the root or the home.

        Links are not followed: the resolved path had none, and if a command has since put one
        there that leads outside, the open fails.

        Args:
            place: the path that `resolve` returned.
            create: whether to make missing folders.

        Raises:
            OSError: a folder is missing, is not a folder, …
        """
        base = self._base(place)
        if create and base == self._home:
            make_private_directory(base.parent)
            make_private_directory(base)
        fd = os.open(base, FOLDER)
        try:
            for part in place.relative_to(base).parts[:-1]:
                inner = _enter(fd, part, place, create=create)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def _expand(self, path: str) -> str:
        """Return a path with the home itself in place of its name."""
        found = _IN_HOME.match(path)
        if self._home is None or found is None or Path(path).is_relative_to(self.root):
            return path
        return str(self._home / path[found.end() :].lstrip("/"))

    def _is_in_home(self, place: Path) -> bool:
        return self._home is not None and place.is_relative_to(self._home)

    def _base(self, place: Path) -> Path:
        return self._home if self._home and self._is_in_home(place) else self.root

    def _is_hidden(self, place: Path) -> bool:
        """Return whether it is a hidden folder or in one, even by another spelling of its name."""
        # By number as well: where case does not count, `.TEAM` is `.team`. Only from the root
        # down: it may itself be a working copy inside the team directory.
        numbers = {_number(folder) for folder in self._hidden} - {None}
        below = [folder for folder in (place, *place.parents) if folder.is_relative_to(self.root)]
        return any(folder in self._hidden or _number(folder) in numbers for folder in below)


def not_a_file(shown: str, kind: int) -> str:
    """Return the sentence for a path that cannot be read as text; `kind` is its `st_mode`."""
    if stat.S_ISDIR(kind):
        return f"{shown} is a directory; use bash ls"
    return f"{shown} is not a regular file but a FIFO, a socket or a device; use bash"


def path_in(folder: int, place: Path) -> Path:
    """Return a path to a resolved file through its open folder, if the OS supports that."""
    if sys.platform != "linux":
        return place
    return Path(f"/proc/self/fd/{folder}") / place.name


def _enter(fd: int, part: str, place: Path, *, create: bool) -> int:
    try:
        if create:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=fd)
                os.fsync(fd)  # the file in it is safe when the model reads that it is written
        return os.open(part, FOLDER, dir_fd=fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from error


def _number(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
