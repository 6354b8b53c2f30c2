"""The words of a reply while they come, for a person to read; never taken for the reply."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from teamd.files.files import PRIVATE_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from teamd.models import Ask, Model, Reply


class LiveOutput:
    """A model whose words stand in a file while they come.

    The file's first line names the attempt: a reply that broke off is begun anew. It is gone when
    the reply is whole, or has failed.
    """

    def __init__(self, model: Model, path: Path) -> None:
        self._model = model
        self._path = path

    async def reply(self, ask: Ask) -> Reply:
        """Answer; where the file cannot be written nobody looks on, and that is all."""
        self._remove()  # an earlier process may have been killed in mid-reply
        if ask.aside:
            return await self._model.reply(ask)
        self._append(f"{os.urandom(8).hex()}\n")
        try:
            return await self._model.reply(replace(ask, heard=self._append))
        finally:
            self._remove()

    def _append(self, text: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with suppress(OSError):
            fd = os.open(self._path, flags, PRIVATE_FILE)
            try:
                os.write(fd, text.encode(errors="replace"))
            finally:
                os.close(fd)

    def _remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()
