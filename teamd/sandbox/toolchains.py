"""What the programs on the PATH need of what stands around their folder.

Version managers put links or small scripts on the PATH, and what these run stands elsewhere in the
home: pyenv, rbenv, asdf and mise in folders beside `shims`; pipx and uv in environments that links
lead to; rustup in a folder that a variable names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from teamd.files.paths import home_folder

_PROGRAMS: Final = "bin"
_BESIDE_PROGRAMS: Final = ("lib", "lib64", "libexec", "pyvenv.cfg")
_SHIMS: Final = "shims"
_BESIDE_SHIMS: Final = (
    "bin", "libexec", "plugins", "pyenv.d", "version", "versions", "installs",
)  # fmt: skip
_RUSTUP: Final = "rustup"
_RUSTUP_HOME: Final = "RUSTUP_HOME"
_MOST_STEPS: Final = 4  # from a link to a link to an interpreter, each in an environment
_MOST_CACHED: Final = 1000


def needed_by(folder: Path) -> Iterator[Path]:
    """Yield a folder on the PATH, and what its programs need; some of it may not be there."""
    for programs in (folder, *_environments(folder)):
        yield programs
        if programs.name == _PROGRAMS:
            yield from (programs.parent / name for name in _BESIDE_PROGRAMS)
    if folder.name == _SHIMS:
        yield from (folder.parent / name for name in _BESIDE_SHIMS)
    if _has_rustup(folder) and (rustup := _rustup_home(os.environ)) is not None:
        yield rustup


def variables(path: Iterable[Path], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without which programs on the PATH do not find what they need."""
    home = _rustup_home(environment) if any(map(_has_rustup, path)) else None
    return {} if home is None else {_RUSTUP_HOME: str(home)}


def _has_rustup(folder: Path) -> bool:
    return os.path.exists(folder / _RUSTUP)  # noqa: PTH110 -- false in a folder that is closed


def _rustup_home(environment: Mapping[str, str]) -> Path | None:
    if named := environment.get(_RUSTUP_HOME):
        return Path(named)
    home = home_folder()
    return None if home is None else home / ".rustup"


def _environments(folder: Path) -> list[Path]:
    """Return the folders of programs of the environments that links in a folder lead to."""
    found: dict[Path, None] = {}
    steps = [folder]
    for _ in range(_MOST_STEPS):
        steps = [
            one for step in steps for one in _linked(step, changed_at(step)) if one not in found
        ]
        found.update(dict.fromkeys(steps))
    return list(found)


def changed_at(folder: Path) -> int:
    """Return when the entries of a folder have changed, in nanoseconds; 0 for none."""
    with suppress(OSError):
        return folder.stat().st_mtime_ns
    return 0


@lru_cache(_MOST_CACHED)
def _linked(folder: Path, _changed: int) -> tuple[Path, ...]:
    """Return where the links in a folder lead, as far as these are programs of environments."""
    with suppress(OSError), os.scandir(folder) as entries:
        links = [os.readlink(entry.path) for entry in entries if entry.is_symlink()]  # noqa: PTH115 -- text
        targets = (Path(os.path.normpath(folder / link)).parent for link in links)
        return tuple(one for one in dict.fromkeys(targets) if one != folder and _is_programs(one))
    return ()


def _is_programs(folder: Path) -> bool:
    """Return whether a folder holds the programs of an environment or an installation of Python."""
    above = folder.parent
    return folder.name == _PROGRAMS and (
        os.path.exists(above / "pyvenv.cfg")  # noqa: PTH110
        or any(above.glob("lib/python3*/os.py"))
    )
