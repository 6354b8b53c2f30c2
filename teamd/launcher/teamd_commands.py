"""Start `teamd` and `teamctl` with their own modules, whatever PYTHONPATH holds.

A person's PYTHONPATH often names the project's folder, and that may hold a `json.py`, a `click.py`
or a `teamd/`. Python looks there before it looks among the installed packages. This module is
installed beside the package `teamd`, because a folder `teamd/` of the project would replace that.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

_MODULES = {
    "teamd": "teamd.__main__",
    "teamctl": "teamctl.main",
    "postman": "teamd.postman.process",
}


def teamd() -> None:
    """The entry point of `teamd`."""
    _run("teamd")


def teamctl() -> None:
    """The entry point of `teamctl`."""
    _run("teamctl")


def command_line(program: str) -> list[str]:
    """Return the words that start one of the programs as another process."""
    # -P: nothing is imported from the current folder.
    return [sys.executable, "-P", "-m", "teamd_commands", program]


def _run(program: str) -> None:
    _search_pythonpath_last()
    sys.exit(import_module(_MODULES[program]).main())


def _search_pythonpath_last() -> None:
    # Its folders are not removed, because this program may be installed in one of them.
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = {_absolute(folder) for folder in named}
    sys.path.sort(key=lambda entry: _absolute(entry) in folders)


def _absolute(folder: str) -> str:
    try:
        return os.path.abspath(folder)  # noqa: PTH100 -- pathlib may be theirs
    except FileNotFoundError:  # the current folder has been removed
        return folder


if __name__ == "__main__":
    _run(sys.argv.pop(1))
