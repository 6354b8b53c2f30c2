"""From a forked child of teamd to the postman: a program of its own, and a small one.

A fork shares the memory of the supervisor, which holds all that agents need. The postman lives as
long as the supervisor does, and needs little of that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import tomli_w
from teamd_commands import command_line

from teamd import secret_environment, settings
from teamd.files.paths import TeamPaths
from teamd.settings import Settings


def become_postman(paths: TeamPaths, chosen: Settings) -> NoReturn:
    """Go on as the postman of a team, without the secrets of this process.

    Args:
        paths: the team.
        chosen: the settings in force, which may not be those of the file any more.
    """
    plain, _ = secret_environment.split(os.environ)
    os.execve(sys.executable, _command(paths, chosen), plain)  # noqa: S606 -- itself


def read_command(arguments: Sequence[str]) -> tuple[Path, Settings]:
    """Return team directory and settings of a postman that was started so.

    Raises:
        SettingsError: a file that they name is gone.
    """
    root, document = arguments
    path = Path(root) / "team.toml"  # for the mistakes
    return Path(root), settings.parse(document.encode(), path=path)


def _command(paths: TeamPaths, chosen: Settings) -> list[str]:
    document = {"hosts": _plain(chosen.hosts), "mail": _plain(chosen.mail)}
    given = [str(paths.root), tomli_w.dumps(document)]
    return [*command_line("postman"), *given]


def _plain(section: Any) -> Mapping[str, Any]:
    """Return a section as TOML has it."""
    values = {one.name: getattr(section, one.name) for one in fields(section)}
    return {key: _value(value) for key, value in values.items() if value is not None}


def _value(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case tuple():
            return list(value)
        case str() | int() | float():
            return value
    return {key: _value(one) for key, one in value.items()}
