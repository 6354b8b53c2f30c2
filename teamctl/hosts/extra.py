"""The modules of this room that need the extra `teamd[hosts]`, loaded where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from teamd.errors import TeamError

_EXTRA: Final = ("cryptography", "nats")


def load(name: str) -> Any:
    """Load a module of this room.

    Raises:
        TeamError: the extra is not installed.
    """
    try:
        return import_module(f"teamctl.hosts.{name}")
    except ImportError as error:
        if not (error.name or "").startswith(_EXTRA):
            raise
        raise TeamError(
            "`teamctl hosts` needs packages that are not installed; "
            "`pip install 'teamd[hosts]'` installs them"
        ) from error
