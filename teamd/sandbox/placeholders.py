"""Empty files and folders at missing protected paths, while commands run.

A sandbox can protect only a path that exists. So a missing protected path gets a placeholder while
a command of any teammate runs in the workspace. The file that lists the placeholders and their
commands is outside of the team directory, because several teams may work in one workspace. It is
also outside of the workspace, where commands could lock or change it.

A killed teammate leaves its entry. Only its supervisor removes that, after it has ended the
teammate's processes: if a placeholder were removed earlier, a process could create the path.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from teamd.errors import StoreError, translate_os_errors
from teamd.files import directories, files, locks
from teamd.files.safe_open import FOLDER
from teamd.process_id import Identity
from teamd.sandbox.protected_paths import ProtectedPath

SAME_FOLDER: Final = b".\n"  # for `.git/commondir`, in which git accepts only the name of a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCommand:
    """A command that runs in a workspace, or ran when its teammate was killed.

    Attributes:
        id: the id of the command.
        team: the team directory.
        process: the process of the teammate.
        links: the links among the protected paths, with their targets when the command started.
        may_init: whether the workspace had no repository then.
        held: the folders above protected paths, which the command cannot rename.
        fixed: the protected paths, which the command cannot change.
    """

    id: str
    team: str
    process: Identity
    links: dict[str, str] = field(default_factory=dict)
    may_init: bool = False
    held: list[str] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)

    def could_replace(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that this command may rename or replace."""
        inside = tuple(f"{path}{os.sep}" for path in self.fixed)
        kept = {*self.held, *self.fixed}
        return [path for path in paths if path not in kept and not path.startswith(inside)]

    @classmethod
    def decode(cls, found: dict[str, Any]) -> RunningCommand:
        """Parse an entry of the file."""
        return cls(**{**found, "process": Identity(**found["process"])})


@dataclass(frozen=True, slots=True)
class Placeholders:
    """The placeholders in a workspace.

    Attributes:
        workspace: the folder.
        state: the person's folder with the files about all workspaces.
    """

    workspace: Path
    state: Path

    def hold(
        self,
        look: Callable[
            [Container[str], list[RunningCommand]], tuple[RunningCommand, list[ProtectedPath]]
        ],
    ) -> RunningCommand:
        """Find the protected paths and keep the missing ones at least until `release`.

        Args:
            look: gets the existing placeholders and the other commands, and returns the entry of
                the command and the missing paths. It is called under the lock, and again after
                placeholders were made.
        """
        with self._locked() as (made, holders):
            try:
                holder, missing = look(frozenset(made), holders)
                tried = set[Path]()
                # A path below a new placeholder may be missing as well.
                while fresh := [place for place in missing if place.path not in tried]:
                    tried |= {place.path for place in fresh}
                    made |= {str(one.path): "file" if one.wants_file else "folder" for one in fresh}
                    # Recorded before they are made, so that they can be removed after a kill.
                    self._write(made, holders)
                    for place in fresh:
                        self._make(place)
                    holder, missing = look(frozenset(made), holders)
                self._write(made, [*holders, holder])
            except BaseException:
                with suppress(StoreError):  # the next command removes them
                    self._forget(made, holders)
                raise
        return holder

    def release(self, *ended: RunningCommand) -> None:
        """Forget commands that have ended; the last one takes the placeholders along."""
        if not self._file.exists():
            return
        ids = {holder.id for holder in ended}
        with self._locked() as (made, holders):
            left = [holder for holder in holders if holder.id not in ids]
            if ended and not left:
                _open_up(self.workspace)
            if ended or (made and not left):
                self._forget(made, left)

    def _forget(self, made: dict[str, str], left: list[RunningCommand]) -> None:
        """Record the commands that still run; without any, remove the placeholders."""
        if not left:
            for path in sorted(made, key=len, reverse=True):  # inner paths first
                self._remove(Path(path))
            made = {}
        self._write(made, left)

    def _make(self, place: ProtectedPath) -> None:
        with (
            translate_os_errors(place.path),
            suppress(FileExistsError),
            self._opened(place.path.parent) as folder,
        ):
            if place.wants_file:
                _make_file(folder, place.path)
            else:  # not locked: the person's editor may want to write its settings into it
                os.mkdir(place.path.name, dir_fd=folder)

    def _remove(self, path: Path) -> None:
        """Remove a placeholder, unless it has content by now."""
        with suppress(OSError), self._opened(path.parent) as folder:
            found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                os.rmdir(path.name, dir_fd=folder)
            elif stat.S_ISREG(found.st_mode) and _is_ours(folder, path):
                os.unlink(path.name, dir_fd=folder)

    @contextmanager
    def _opened(self, folder: Path) -> Iterator[int]:
        """Open a folder in the workspace through no link, because a command may insert one.

        Raises:
            OSError: it cannot be opened, or the path leads through a link.
        """
        with ExitStack() as opened:
            fd = os.open(self.workspace, FOLDER)
            opened.callback(os.close, fd)
            for name in folder.relative_to(self.workspace).parts:
                fd = os.open(name, FOLDER, dir_fd=fd)
                opened.callback(os.close, fd)
            yield fd

    def left_by_dead(self, team: Path) -> list[RunningCommand]:
        """Return the entries of a team's teammates whose processes have ended."""
        if not self._file.exists():
            return []
        with self._locked() as (_, holders):
            mine = [holder for holder in holders if holder.team == str(team)]
            return [holder for holder in mine if not holder.process.alive]

    def made(self, path: Path) -> bool:
        """Return whether a placeholder was made at a path and not removed since."""
        made, _ = self._read()
        return str(path) in made

    @property
    def _file(self) -> Path:
        name = sha256(os.fsencode(self.workspace)).hexdigest()[:32]
        return self.state / f"{name}.json"

    @contextmanager
    def _locked(self) -> Iterator[tuple[dict[str, str], list[RunningCommand]]]:
        directories.make_private_directory(self.state)
        with locks.locked(self._file.with_suffix(".lock")):
            yield self._read()

    def _read(self) -> tuple[dict[str, str], list[RunningCommand]]:
        with suppress(ValueError, KeyError, TypeError):  # incomplete after a power cut
            found = json.loads(files.read(self._file) or b"{}")
            holders = [RunningCommand.decode(one) for one in found.get("holders", [])]
            return dict(found.get("made", {})), holders
        return {}, []

    def _write(self, made: dict[str, str], holders: Iterable[RunningCommand]) -> None:
        content = {"made": made, "holders": [asdict(holder) for holder in holders]}
        files.replace(self._file, json.dumps(content).encode(), durable=False)


def _make_file(folder: int, path: Path) -> None:
    """Make a file together with its content, because git may read it at any moment.

    Raises:
        FileExistsError: the path exists.
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_WRONLY
    if not _content(path):  # made directly, because a kill would leave a temporary file visible
        os.close(os.open(path.name, flags, 0o400, dir_fd=folder))
        return
    new = f".{path.name}-{os.urandom(4).hex()}"
    fd = os.open(new, flags, 0o400, dir_fd=folder)
    try:
        os.write(fd, _content(path))
        try:
            os.link(new, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except PermissionError:  # a file system without hard links
            os.rename(new, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)


def _content(path: Path) -> bytes:
    """Return the content of a placeholder file that has no effect on git."""
    return SAME_FOLDER if path.parts[-2:] == (".git", "commondir") else b""


def _open_up(workspace: Path) -> None:
    """Make the workspace writable for its owner: a command may have changed the mode."""
    with suppress(OSError):
        workspace.chmod(stat.S_IMODE(workspace.stat().st_mode) | stat.S_IRWXU)


def _is_ours(folder: int, path: Path) -> bool:
    fd = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        return os.read(fd, len(SAME_FOLDER) + 1) == _content(path)
    finally:
        os.close(fd)
