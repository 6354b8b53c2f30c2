"""Folders that a process has for a while, by whose names is known what a killed one has left."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from teamd.process_id import Identity


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder of this process that is removed at the end; those of dead ones go first.

    Args:
        parent: where it is made; others may make theirs there, too.
        prefix: how its name begins.

    Raises:
        OSError: it cannot be made.
    """
    from tempfile import mkdtemp  # noqa: PLC0415 -- only where one is made

    remove_scratch(parent, prefix)
    me = Identity.own()
    made = Path(mkdtemp(prefix=f"{prefix}{me.pid}-{me.started:.0f}-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def remove_scratch(parent: Path, prefix: str) -> None:
    """Remove the folders that this user's killed processes have left."""
    form = re.compile(rf"{re.escape(prefix)}(\d+)-(\d+)-\w+")
    for folder in parent.glob(f"{prefix}*"):
        named = form.fullmatch(folder.name)
        if named and not Identity(pid=int(named[1]), started=float(named[2])).alive:
            with suppress(OSError):  # gone meanwhile
                if folder.lstat().st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)
