"""What one teammate's commands may reach, as its settings say it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from teamd.sandbox import toolchains
from teamd.sandbox.links import leads_through

if TYPE_CHECKING:
    from teamd.programs.sandboxed import Bounds

# Where they stand inside, whoever's they are: what a command keeps of them works with any team.
HOME: Final = "/home/teammate"
PROXY_PORT: Final = 3128
PROXY: Final = f"http://127.0.0.1:{PROXY_PORT}"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
TEMPORARY: Final = "/tmp"  # noqa: S108 -- the sandbox's own
_MOST_PATHS: Final = 100
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
    """The repository of the person's that a workspace is a copy of.

    Attributes:
        folder: its working tree, of which nothing is shown.
        objects: its objects, which the copy borrows and only reads.
    """

    folder: Path
    objects: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rights of one teammate's commands.

    Attributes:
        workspace: where they work, and may write.
        home: the teammate's own home folder outside; it is kept.
        temporary: its folder for temporary files outside; it lasts as long as its process.
        readable: folders of the person that they may read besides those of the system.
        hidden: folders within reach that nobody sees, such as the team directory.
        protected: places in the workspace that stay as they are, besides `places.BUILT_IN`.
        allowed: those of them that may be changed all the same.
        network: whether they reach every host.
        hosts: otherwise the names that they reach, through the proxy.
        environment: what they get of the person's environment.
        bounds: of what runs at a time.
        origin: what the workspace is a copy of, if it is one.
        lent: folders that they may only read, whatever those lie in.
        owns_tree: whether they may change every file of the working tree. True in a teammate's own
            copy, so that git works there as it does elsewhere: `merge` and the queue refuse changes
            of protected places before these reach the person's folder.
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
        """The folders in which commands of this team change what they like."""
        return (self.workspace, self.home, self.temporary, *self.hidden)

    @property
    def around(self) -> tuple[Path, ...]:
        """The hidden folders that the workspace lies in, outermost first."""
        found = {one for one in self.hidden if one in self.workspace.parents}
        return tuple(sorted(found, key=lambda one: len(one.parts)))

    @property
    def borrowed(self) -> tuple[Path, ...]:
        """The folders that are shown for git to read, wherever they lie."""
        return self.lent if self.origin is None else (*self.lent, self.origin.objects)

    @property
    def path(self) -> tuple[Path, ...]:
        """The folders in which commands look for programs."""
        return _absolute(self._search_path())

    def _search_path(self) -> str:
        """Return the PATH without `..` and `//`: nothing can be mounted at such a place.

        A way through what commands may change stays as it is: whoever follows it is one of them.
        """
        path = self.environment.get("PATH", "")
        if os.pardir not in path and "//" not in path:
            return path
        folders = path.split(os.pathsep)
        return os.pathsep.join(map(self._straighten, folders))

    def _straighten(self, folder: str) -> str:
        place = Path(f"/{folder.lstrip(os.sep)}")
        if not folder.startswith("/") or (place == Path(folder) and os.pardir not in place.parts):
            return folder
        return folder if leads_through(place, self.own) else os.path.realpath(place)

    def variables(self, *, inside: bool) -> dict[str, str]:
        """Return the whole environment of a command, in a sandbox or without one."""
        home = HOME if inside else str(self.home)
        temporary = TEMPORARY if inside else str(self.temporary)
        proxied = inside and self.hosts and not self.network
        return {
            **_WITHOUT_TERMINAL,
            **(toolchains.variables(self.path, self.environment) if inside else {}),
            **self.environment,
            **({"PATH": self._search_path()} if inside and "PATH" in self.environment else {}),
            **(self._proxy_variables() if proxied else {}),
            "HOME": home,
            "TMPDIR": temporary,
        }

    def _proxy_variables(self) -> dict[str, str]:
        """Return what tells programs of the proxy; servers of the sandbox's own are reached so."""
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
        named = {host.partition(":")[0] for host in self.hosts}
        own = ",".join(name for name in _LOOPBACK if name not in named)
        return {**dict.fromkeys(names, PROXY), "no_proxy": own, "NO_PROXY": own}


@lru_cache(_MOST_PATHS)
def _absolute(path: str) -> tuple[Path, ...]:
    """Return the folders that a PATH names; those that are sought from here are left out."""
    folders = map(Path, path.split(os.pathsep))
    return tuple(folder for folder in folders if folder.is_absolute())
