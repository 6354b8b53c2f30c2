"""Being the one process of a teammate: a lock for life, and the place that it was taken in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.errors import StoreError
from teamd.files import files, locks

if TYPE_CHECKING:
    from pathlib import Path


class Displaced(StoreError):
    """What stands under a path now is not what this process was started in."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is not what this process has locked: the team directory was moved or "
            "replaced; `teamd start` goes on where it stands now"
        )
        self.path = path


class Tenure:
    """One process's, from now until it ends.

    Everything of a team goes by its path. A process whose team directory was moved would go on in
    whatever directory stands there next, beside the one that has the teammate's name there.

    Args:
        path: the file that is locked; its folder is made, but not the one above.

    Raises:
        LockTimeout: another process has it, and keeps it.
        StoreError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        files.make_private_directory(path.parent, parents=False)
        self._lock = locks.hold(path)

    def check(self) -> None:
        """See that the team directory is still the one that this process was started in.

        Two looks at file attributes; for whoever is about to write there.

        Raises:
            Displaced: it is not.
        """
        if not locks.stands_under(self._lock, self._path):
            raise Displaced(self._path)
