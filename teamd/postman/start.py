"""Replace a forked child of teamd by the postman, a small program of its own.

A fork would share the supervisor's memory, which holds all that agents need. The postman runs as
long as the supervisor and needs little of it.
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
    """Become the postman of a team, without the secrets of this process.

    Args:
        paths: the team.
        chosen: the settings in force, which may differ from the file's by now.
    """
    plain, _ = secret_environment.split(os.environ)
    os.execve(sys.executable, _command(paths, chosen), plain)  # noqa: S606 -- itself


def read_command(arguments: Sequence[str]) -> tuple[Path, Settings]:
    """Return the team directory and settings from the postman's arguments.

    Raises:
        SettingsError: a file named in the settings no longer exists.
    """
    root, document = arguments
    path = Path(root) / "team.toml"  # for error messages
    return Path(root), settings.parse(document.encode(), path=path)


def _command(paths: TeamPaths, chosen: Settings) -> list[str]:
    document = {"hosts": _plain(chosen.hosts), "mail": _plain(chosen.mail)}
    given = [str(paths.root), tomli_w.dumps(document)]
    return [*command_line("postman"), *given]


def _plain(section: Any) -> Mapping[str, Any]:
    """Return a section as values for TOML."""
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
