"""Modules of the standard library that are loaded when something of them is asked for.

`pathlib` imports `urllib.parse` and that `ipaddress`, of which a path needs nothing and which takes
as long as twenty modules of ours. `importlib.util.LazyLoader` is no help: before Python 3.12 an
`import` of the module was enough to load it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Late(ModuleType):
    """Stands in the module's place until an attribute of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what import itself looks for
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def load_late(name: str) -> None:
    """Have a module loaded with the first use of it, unless it is loaded already."""
    if name not in sys.modules:
        sys.modules[name] = _Late(name)
