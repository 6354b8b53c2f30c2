"""One text file of the workspace: opened, read, replaced at once; errors are sentences."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Final

from teamd.errors import StoreError
from teamd.files import files
from teamd.tools import ToolError
from teamd.tools.paging import NotText
from teamd.tools.workspace import Workspace, not_a_file, path_in

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_BYTES: Final = 32 << 20  # held in memory, twice while it is edited
_NEW_FILE_MODE: Final = 0o644
_NAMES_COMPARED: Final = 2000


class TextFile:
    """The file that a model's path means; `shown` is what sentences call it.

    Every method raises `ToolError` for whatever goes wrong.
    """

    def __init__(self, workspace: Workspace, path: str) -> None:
        self._workspace = workspace
        self._place = workspace.resolve(path)
        self.shown: Final = workspace.shown(self._place)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open it for reading; what is raised meanwhile, such as `NotText`, is told too."""
        with self._translate_errors(), os.fdopen(self._workspace.open(self._place), "rb") as file:
            yield file

    def text(self) -> str:
        """Return all of it, line ends as they are."""
        with self.open() as file:
            data = file.read(LARGEST_BYTES + 1)
            if b"\0" in data:
                raise NotText
            if len(data) > LARGEST_BYTES:
                raise ToolError(
                    f"{self.shown} is larger than {LARGEST_BYTES >> 20} MiB; use bash sed"
                )
            return data.decode()

    def replace(self, text: str) -> int:
        """Give it new content at once, keeping its mode, or make it; how many bytes it has then.

        The folders it needs are made. A failure leaves the old content.
        """
        data = self._encode(text)
        if self._place == self._workspace.root:
            raise ToolError(not_a_file(self.shown, stat.S_IFDIR))
        with self._translate_errors(), self._workspace.folder(self._place, create=True) as folder:
            path = path_in(folder, self._place)
            try:
                files.replace(path, data, mode=self._mode(folder))
            except StoreError as error:
                raise ToolError(str(error).replace(str(path), self.shown)) from error
        return len(data)

    def _mode(self, folder: int) -> int:
        name = self._place.name
        try:
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            os.umask(umask := os.umask(0o077))  # there is no other way to ask for it
            return _NEW_FILE_MODE & ~umask
        if not stat.S_ISREG(kind):
            raise ToolError(not_a_file(self.shown, kind))
        if not os.access(name, os.W_OK, dir_fd=folder):
            # Renaming would not mind; who took the right to write away does.
            raise ToolError(f"{self.shown} is read-only; use bash chmod if it is to be changed")
        return kind & 0o777  # new content inherits no setuid, as with write(2)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (NotText, UnicodeDecodeError) as error:
            raise ToolError(
                f"{self.shown} is not UTF-8 text; look at it with bash: file, xxd, iconv"
            ) from error
        except FileNotFoundError as error:
            raise ToolError(f"{self.shown} does not exist{self._similar_names()}") from error
        except OSError as error:
            raise ToolError(f"{self.shown}: {error.strerror or error}") from error

    def _similar_names(self) -> str:
        """The end of the sentence about a missing file: names that may have been meant."""
        try:
            with (
                self._workspace.folder(self._place) as folder,
                os.scandir(folder) as entries,
            ):
                names = {
                    found.name.lower(): found.name for found in islice(entries, _NAMES_COMPARED)
                }
        except OSError:
            return ", nor does its folder"
        near = [names[name] for name in get_close_matches(self._place.name.lower(), names)]
        return f"; near it: {', '.join(near)}" if near else ""

    def _encode(self, text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise ToolError(
                f"character {error.start + 1} of the text is half of a surrogate pair, which no "
                "UTF-8 file can hold; leave it out or give the whole character"
            ) from error
