"""The rights of one teammate's commands: what they may read, write, see and connect to.

The arguments of bubblewrap follow from a `Policy` and the protected paths.
Version managers put links or small scripts on the PATH, and the programs that these run are
elsewhere in the home: pyenv, rbenv, asdf and mise use folders beside `shims`, pipx and uv
environments at the targets of links, and rustup a folder that a variable names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from teamd.files.paths import home_folder
from teamd.sandbox.protected_paths import leads_through

if TYPE_CHECKING:
    from teamd.programs.sandboxed import Bounds


_PROGRAMS: Final = "bin"
_BESIDE_PROGRAMS: Final = ("lib", "lib64", "libexec", "pyvenv.cfg")
_SHIMS: Final = "shims"
_BESIDE_SHIMS: Final = (
    "bin", "libexec", "plugins", "pyenv.d", "version", "versions", "installs",
)  # fmt: skip
_RUSTUP: Final = "rustup"
_RUSTUP_HOME: Final = "RUSTUP_HOME"
_MOST_STEPS: Final = 4  # links between environments, down to an interpreter


def needed_by_programs(folder: Path) -> Iterator[Path]:
    """Yield a folder on the PATH and the paths that its programs need, existing or not."""
    for programs in (folder, *_environments(folder)):
        yield programs
        if programs.name == _PROGRAMS:
            yield from (programs.parent / name for name in _BESIDE_PROGRAMS)
    if folder.name == _SHIMS:
        yield from (folder.parent / name for name in _BESIDE_SHIMS)
    if _has_rustup(folder) and (rustup := _rustup_home(os.environ)) is not None:
        yield rustup


def toolchain_variables(path: Iterable[Path], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which programs on the PATH find their files."""
    home = _rustup_home(environment) if any(map(_has_rustup, path)) else None
    return {} if home is None else {_RUSTUP_HOME: str(home)}


def _has_rustup(folder: Path) -> bool:
    return os.path.exists(folder / _RUSTUP)  # noqa: PTH110 -- false for an unreadable folder


def _rustup_home(environment: Mapping[str, str]) -> Path | None:
    if named := environment.get(_RUSTUP_HOME):
        return Path(named)
    home = home_folder()
    return None if home is None else home / ".rustup"


def _environments(folder: Path) -> list[Path]:
    """Return the program folders of the environments to which links in a folder lead."""
    found: dict[Path, None] = {}
    steps = [folder]
    for _ in range(_MOST_STEPS):
        steps = [one for step in steps for one in _linked(step) if one not in found]
        found.update(dict.fromkeys(steps))
    return list(found)


def _linked(folder: Path) -> tuple[Path, ...]:
    """Return the program folders of environments to which links in a folder lead directly."""
    with suppress(OSError), os.scandir(folder) as entries:
        links = [os.readlink(entry.path) for entry in entries if entry.is_symlink()]  # noqa: PTH115 -- faster as text
        targets = (Path(os.path.normpath(folder / link)).parent for link in links)
        return tuple(one for one in dict.fromkeys(targets) if one != folder and _is_programs(one))
    return ()


def _is_programs(folder: Path) -> bool:
    """Return whether a folder is the `bin` of a Python environment or installation."""
    above = folder.parent
    return folder.name == _PROGRAMS and (
        os.path.exists(above / "pyvenv.cfg")  # noqa: PTH110
        or any(above.glob("lib/python3*/os.py"))
    )


# Inside the sandbox these paths are the same for all teammates, so that files in which a command
# stores them work in every team.
HOME: Final = "/home/teammate"
PROXY_PORT: Final = 3128
PROXY: Final = f"http://127.0.0.1:{PROXY_PORT}"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
TEMPORARY: Final = "/tmp"  # noqa: S108 -- inside the sandbox
_NO_EDITOR: Final = (
    "there is no editor here: give the text as an option, such as `git commit -m TEXT`, or set "
    "GIT_EDITOR=true to keep the text that git proposes"
)
# The settings replace the editors of the person's `.git/config`, which would wait for a terminal.
# A command that names an editor of its own in any of git's ways gets it, such as
# `EDITOR=true git commit`, `GIT_EDITOR=true git rebase -i` or `git -c core.editor=true rebase -i`.
_WITHOUT_TERMINAL: Final = {
    "EDITOR": f"echo '{_NO_EDITOR}' >&2; false",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.editor",
    "GIT_CONFIG_VALUE_0": """sh -c "$EDITOR \\"\\$@\\"" -""",
    "GIT_CONFIG_KEY_1": "sequence.editor",
    "GIT_CONFIG_VALUE_1": """sh -c "$(git var GIT_EDITOR) \\"\\$@\\"" -""",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "PAGER": "cat",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The repository of the person from which a workspace was copied.

    Attributes:
        folder: its working tree, which commands cannot see.
        objects: its objects, which the copy borrows and may only read.
    """

    folder: Path
    objects: Path


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The rights of one teammate's commands.

    Attributes:
        workspace: the folder in which they work and may write.
        home: the permanent home folder of the teammate, as a path outside the sandbox.
        temporary: its folder for temporary files outside, which lasts as long as its process.
        readable: folders of the person that they may read besides those of the system.
        hidden: folders that they cannot see, such as the team directory.
        protected: read-only paths in the workspace, besides those of `protected_paths`.
        allowed: built-in protected paths that they may change nevertheless.
        network: whether they can connect to every host.
        hosts: otherwise the names of the hosts that the proxy connects to.
        environment: the variables of the person's environment that they get.
        bounds: limits on processes, memory and file size.
        origin: the repository from which the workspace was copied, if it is a copy.
        lent: folders that they may read even if a hidden folder contains these.
        owns_tree: whether they may change every file of the working tree. True in a teammate's own
            copy, so that git works there as usual: `merge` and the queue refuse changes of
            protected paths before these reach the person's folder.
    """

    workspace: Path
    home: Path
    temporary: Path
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    protected: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    network: bool = False
    hosts: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    bounds: Bounds
    origin: Origin | None = None
    lent: tuple[Path, ...] = ()
    owns_tree: bool = False

    @property
    def own(self) -> tuple[Path, ...]:
        """The folders in which commands of this team may create links."""
        return (self.workspace, self.home, self.temporary, *self.hidden)

    @cached_property
    def around(self) -> tuple[Path, ...]:
        """The hidden folders that contain the workspace, outermost first."""
        found = {one for one in self.hidden if one in self.workspace.parents}
        return tuple(sorted(found, key=lambda one: len(one.parts)))

    @property
    def borrowed(self) -> tuple[Path, ...]:
        """The read-only folders that are visible even within hidden folders."""
        return self.lent if self.origin is None else (*self.lent, self.origin.objects)

    @cached_property
    def path(self) -> tuple[Path, ...]:
        """The absolute folders in which commands look for programs."""
        folders = map(Path, self.search_path.split(os.pathsep))
        return tuple(folder for folder in folders if folder.is_absolute())

    @cached_property
    def search_path(self) -> str:
        """The PATH without `..` and `//`, because mount points cannot contain these.

        A path through folders that commands may change stays as it is: only commands follow it.
        """
        folders = self.environment.get("PATH", "").split(os.pathsep)
        return os.pathsep.join(map(self._straighten, folders))

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The paths that they may read besides those of the system, outer folders first."""
        return tuple(map(str, _find_readable(self)))

    @cached_property
    def reach(self) -> tuple[str, ...]:
        """The real paths of `shown` and of the system folders, each with a final slash."""
        real = map(os.path.realpath, (*SYSTEM_FOLDERS, *self.shown))
        return tuple(dict.fromkeys(f"{folder}{os.sep}" for folder in real))

    @cached_property
    def _times(self) -> list[int]:
        return list(map(_changed_at, self.path))

    def refresh(self) -> Policy:
        """Return this policy, or a new one if a folder on the PATH has changed since the last call.

        The new one finds the paths in `shown` again.
        """
        return self if self._times == list(map(_changed_at, self.path)) else replace(self)

    def _straighten(self, folder: str) -> str:
        place = Path(f"/{folder.lstrip(os.sep)}")
        if not folder.startswith("/") or (place == Path(folder) and os.pardir not in place.parts):
            return folder
        return folder if leads_through(place, self.own) else os.path.realpath(place)

    @property
    def variables_outside(self) -> dict[str, str]:
        """The whole environment of a command without a sandbox."""
        own = {"HOME": str(self.home), "TMPDIR": str(self.temporary)}
        return {**_WITHOUT_TERMINAL, **self.environment, **own}

    @cached_property
    def variables(self) -> dict[str, str]:
        """The whole environment of a command in its sandbox."""
        found = {
            **_WITHOUT_TERMINAL,
            **toolchain_variables(self.path, self.environment),
            **self.environment,
        }
        if "PATH" in found:
            found["PATH"] = self.search_path
        if self.hosts and not self.network:
            found |= self._proxy_variables()
        return {**found, "HOME": HOME, "TMPDIR": TEMPORARY}

    def _proxy_variables(self) -> dict[str, str]:
        """Return the variables that name the proxy, and exempt servers inside the sandbox."""
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
        named = {host.partition(":")[0] for host in self.hosts}
        own = ",".join(name for name in _LOOPBACK if name not in named)
        return {**dict.fromkeys(names, PROXY), "no_proxy": own, "NO_PROXY": own}


def _changed_at(folder: Path) -> int:
    """Return when the entries of a folder last changed, in nanoseconds; 0 if it is missing."""
    with suppress(OSError):
        return folder.stat().st_mtime_ns
    return 0


SYSTEM_FOLDERS: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store",
    "/gnu/store",
)  # fmt: skip
_MOST_ROUNDS: Final = 10  # a link may lead below itself, one level deeper in each round
_SYSTEM: Final = tuple(f"{folder}{os.sep}" for folder in SYSTEM_FOLDERS)


def is_of_system(place: Path) -> bool:
    """Return whether a path is in a system folder."""
    return f"{place}{os.sep}".startswith(_SYSTEM)


def _find_readable(policy: Policy) -> list[Path]:
    """Return the configured folders, and those of the PATH with the paths that programs need."""
    found = dict.fromkeys(policy.readable)
    inner = _inner(policy)
    for folder in policy.path:
        # Unreadable folders are skipped, as a shell does.
        if not is_of_system(folder) and os.path.isdir(folder):  # noqa: PTH112
            needed = (
                place for place in needed_by_programs(folder) if _may_show(place, inner, policy)
            )
            found.update(dict.fromkeys(needed))
    places = [place for place in found if not _is_shown_anyway(place, policy)]
    for _ in range(_MOST_ROUNDS):  # the target of a link may contain other folders
        if (shown := _outermost(places)) == places:
            break
        places = [place for place in shown if not _is_shown_anyway(place, policy)]
    return places


def _is_shown_anyway(place: Path, policy: Policy) -> bool:
    return place.is_relative_to(policy.workspace) or is_of_system(place)


def _outermost(places: Iterable[Path]) -> list[Path]:
    """Return the paths that no other path already shows: each mount takes time.

    A path that is a link in another one is replaced by its target: a link cannot be mounted over.
    """
    found: dict[Path, str] = {}
    for place in sorted(places, key=lambda place: len(place.parts)):
        real = os.path.realpath(place)
        holders = [one for one in place.parents if one in found]
        shown = (os.path.join(found[one], place.relative_to(one)) for one in holders)  # noqa: PTH118 -- text, like `real`
        if real not in shown:
            found[Path(real) if holders else place] = real
    return list(found)


def _inner(policy: Policy) -> list[str]:
    """Return the folders that no program folder may contain, each with a final slash."""
    home = home_folder()
    person = [] if home is None else [os.path.realpath(home)]
    return [f"{one}{os.sep}" for one in (*person, "/run", policy.workspace, *policy.hidden)]


def _may_show(folder: Path, inner: Sequence[str], policy: Policy) -> bool:
    """Return whether a program folder may be visible.

    It must not contain any of the inner folders, nor lead through a folder of the team, in which a
    command could redirect it to anything.
    """
    place = os.path.realpath(folder).rstrip(os.sep) + os.sep
    return not (any(one.startswith(place) for one in inner) or leads_through(folder, policy.own))
