"""The place up to which a person has been shown the lead's conversation, from chat to chat."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from teamd.errors import StoreError
from teamd.files import files

if TYPE_CHECKING:
    from pathlib import Path


class Mark:
    """A place in a conversation's file, in bytes, that is kept on disk.

    It need not be safe there: what is lost of it is shown once more.
    """

    def __init__(self, path: Path, conversation: Path) -> None:
        self._path = path
        self._conversation = conversation

    def read(self) -> int:
        """Up to where the conversation has been shown; 0 where that is not known.

        Raises:
            StoreError: it cannot be read.
        """
        said = (files.read(self._path) or b"").strip()
        place = int(said) if said.isdigit() else 0
        return place if place <= files.size(self._conversation) else 0  # of a file that is gone

    def move(self, to: int) -> None:
        """Note that it has been shown up to there."""
        with suppress(StoreError):  # a full disk keeps nobody from talking
            files.replace(self._path, b"%d\n" % to, durable=False)
