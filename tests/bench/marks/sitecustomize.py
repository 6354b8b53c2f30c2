"""Record when functions begin and end, in all processes of a bench; see `tests.bench.steps`.

Python imports a module of this name at its start if its folder is on PYTHONPATH. `BENCH_MARKS`
names the output file, which gets a line for each event: the monotonic time, the process, `>` for a
begin or `<` for an end, and the place. `BENCH_PLACES` names the places as `module:Class.function`.
Each is wrapped when its module is imported; forked processes inherit the wrappers.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_COROUTINE = 0x80  # inspect.CO_COROUTINE; that module takes milliseconds to import


def _note(what: str) -> None:
    os.write(_notes, f"{time.monotonic():.6f} {os.getpid()} {what}\n".encode())


def _wrap(function: Any, place: str) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        _note(f">{place}")
        try:
            return function(*given, **named)
        finally:
            _note(f"<{place}")

    async def coroutine(*given: Any, **named: Any) -> Any:
        _note(f">{place}")
        try:
            return await function(*given, **named)
        finally:
            _note(f"<{place}")

    return coroutine if function.__code__.co_flags & _COROUTINE else call


def _wrap_places(module: ModuleType) -> None:
    for place in _places[module.__name__]:
        *path, name = place.split(":")[1].split(".")
        owner: Any = module
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, name, _wrap(getattr(owner, name), place))


class _Finder:
    """Finds the modules that contain places, and wraps these once a module is loaded."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in _places else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_wrap(module: ModuleType) -> None:
                execute(module)
                _wrap_places(module)

            spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


if "BENCH_MARKS" in os.environ:
    _notes = os.open(
        os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    )
    _places: dict[str, list[str]] = {}
    for _place in os.environ["BENCH_PLACES"].split():
        _places.setdefault(_place.split(":")[0], []).append(_place)
    sys.meta_path.insert(0, _Finder)
    _note("<python")
