"""A team on several machines: keys, certificates and the broker's configuration.

The modules of this package need the extra `hosts`, so `teamctl hosts` loads them by `load`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from teamd.command_line.installation import install_command
from teamd.errors import TeamError

_EXTRA: Final = ("cryptography", "nats", "nkeys")


def load(name: str) -> Any:
    """Load a module of this package.

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
            f"`{install_command('hosts')}` installs them"
        ) from error
