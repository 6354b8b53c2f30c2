"""The bubblewrap command line for a policy, and the check that its mounts are the expected ones.

The root of a sandbox is an empty file system. It contains only the mounts that are named here: no
home, no `/run`, no socket of another program. Options are described in bwrap(1), and every version
since 0.4 has them.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from teamd.sandbox import GIT
from teamd.sandbox.policy import HOME, SYSTEM_FOLDERS, TEMPORARY, Policy, is_of_system
from teamd.sandbox.protected_paths import PathState, ProtectedPath

_READ_ONLY: Final = ("--ro-bind", "--ro-bind-try")
_BINDS: Final = ("--bind", *_READ_ONLY)
_COVER: Final = "--tmpfs"
_DEVICES: Final = "--dev"
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A line of mountinfo.

    Attributes:
        device: the number of the file system, such as `8:1`.
        root: the mounted path within the file system.
        point: the mount point.
    """

    device: str
    root: str
    point: str
    read_only: bool

    @classmethod
    def decode(cls, line: str) -> Mount:
        """Parse a line, in which spaces are written in octal."""
        _, _, device, root, point, options, *_ = line.split(" ")
        return cls(device, _plain(root), _plain(point), "ro" in options.split(","))

    def at(self, path: str) -> tuple[str, str]:
        """Return the device, and the path on it, that this mount shows at a path."""
        rest = path.removeprefix(self.point).lstrip(os.sep)
        return self.device, f"{self.root.rstrip(os.sep)}/{rest}".rstrip(os.sep) or os.sep


def _plain(path: str) -> str:
    """Return a path with its octal escapes decoded."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), path) if "\\" in path else path


def read_mounts(pid: int | str) -> list[Mount]:
    """Return the mounts that a process sees, the latest last; the kernel escapes newlines.

    Raises:
        OSError: the process has ended.
    """
    text = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return [Mount.decode(line) for line in text.split("\n") if line]


class ExpectedMounts:
    """The mounts that a sandbox must have before its command starts; see proc(5) on mountinfo.

    bubblewrap resolves each path again when it mounts it. Another command in the same workspace can
    put a link to a folder of the person there at just that moment, and remove it again. So no
    command starts before the kernel's list shows that each mount has its expected source.
    Afterwards a link can lead only to files in the sandbox.

    Args:
        argv: bubblewrap and its options.
        folders: where commands may create links; no mounted path in them leads through a link.
        places: the protected paths.
        own: the mounts of this process.
    """

    def __init__(
        self,
        argv: Sequence[str],
        folders: Iterable[Path],
        places: Iterable[ProtectedPath],
        own: Sequence[Mount],
    ) -> None:
        inside = tuple(f"{folder}{os.sep}" for folder in folders)
        self._own = {mount.point: mount for mount in own}  # the later one hides
        self._devices = {mount.device for mount in own}
        self._sources = dict[str, str]()
        self._fixed = set[str]()
        self._covers = list[str]()
        real = cache(os.path.realpath)  # many sources are equal
        for at, word in enumerate(argv):
            if word in _BINDS:
                source, target = argv[at + 1 : at + 3]
                is_inside = f"{source}{os.sep}".startswith(inside)
                self._sources[target] = source if is_inside else real(source)
            if word in _READ_ONLY:
                self._fixed.add(argv[at + 2])
            elif word == _DEVICES:  # bind mounts of single devices
                self._sources[argv[at + 1]] = argv[at + 1]
            elif word == _COVER:  # an empty folder that hides another one
                self._covers.append(argv[at + 1])
        # A missing path has just been removed again. It has no mount, so the check fails.
        self._kept = [str(one.path) for one in places if one.state is not PathState.LINK]

    def check(self, mounted: Iterable[Mount]) -> None:
        """Check that the mounts are as expected, and that every protected path is read-only.

        Raises:
            OSError: a mount is missing or has another source.
        """
        top = {mount.point: mount for mount in mounted}  # the latest mount hides earlier ones
        for mount in top.values():
            loose = mount.point in self._fixed and not mount.read_only
            if loose or (mount.device in self._devices and not self._is_meant(mount)):
                raise _replaced(mount.point)
        for point in self._covers:
            if point not in top or top[point].device in self._devices:
                raise _replaced(point)
        for point in self._kept:
            if point not in top or not top[point].read_only:
                raise _replaced(point)

    def _is_meant(self, mount: Mount) -> bool:
        """Return whether a mount, or a mount within it, shows its expected source."""
        target = mount.point
        while target not in self._sources and target != os.sep:
            target = os.path.dirname(target)  # noqa: PTH120 -- faster as text
        if target not in self._sources:
            return False
        inner = os.path.relpath(mount.point, target)
        stands = self._find(os.path.normpath(f"{self._sources[target]}/{inner}"))
        return stands is None or stands == (mount.device, mount.root)

    def _find(self, path: str) -> tuple[str, str] | None:
        """Return the device, and the path on it, of a path outside the sandbox, if known."""
        point = path
        while (mount := self._own.get(point)) is None and point != os.sep:
            point = point[: point.rfind(os.sep)] or os.sep
        return mount.at(path) if mount else None


def _replaced(point: str) -> OSError:
    return OSError(errno.ESTALE, f"{point} has just been replaced; try again")


# With any capability, root can escape from a sandbox. The command is the first process of its
# namespace, so that no process of bubblewrap itself is in it.
_BASE: Final = (
    "--unshare-user", "--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--new-session",
    "--as-pid-1",
)  # fmt: skip
_RESOLVER: Final = Path("/etc/resolv.conf")
_TEMPORARY: Final = (TEMPORARY, "/var/tmp", "/dev/shm")  # noqa: S108 -- inside the sandbox
_MOST_SOCKETS: Final = 1000
_OPEN_SOCKETS: Final = Path("/proc/net/unix")
_ROW: Final = re.compile(r"\n(?=[0-9a-f]+: )")  # a path may contain newlines
_GIT: Final = Path("/usr/bin/git")
_REAL_GIT: Final = "/run/teamd/git"  # where the guard script finds git inside the sandbox
_GUARD: Final = Path(__file__).with_name("git_guard.sh")
_KERNEL: Final = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")


def build_base(program: str, *, network: bool = False) -> list[str]:
    """Return the arguments that every command shares: namespaces and the system folders."""
    shared = ["--share-net"] if network else []
    return [program, *_BASE, *shared, *_system(), *_hide_secrets_of_root()]


@cache
def _system() -> tuple[str, ...]:
    words = list[str]()
    for folder in map(Path, SYSTEM_FOLDERS):
        if folder.is_symlink():
            words += ("--symlink", os.readlink(folder), str(folder))  # noqa: PTH115 -- as it is
        elif folder.is_dir():
            words += ("--ro-bind", str(folder), str(folder))
    # Root inside is root outside, and the kernel checks only the user id.
    kernel = _bind("--ro-bind-try", (f"/proc/{name}" for name in _KERNEL))
    return (*words, "--proc", "/proc", "--dev", "/dev", *kernel)


def build_arguments(program: str, policy: Policy, places: Iterable[ProtectedPath]) -> list[str]:
    """Return bubblewrap and its options, without the command.

    Args:
        program: the path of bubblewrap.
        policy: the rights of the command.
        places: the protected paths in their present state.
    """
    above, places = _ways_through_shared(policy), list(places)
    # Of a readable hidden folder around the workspace only the workspace is visible.
    around = [one for one in policy.around if f"{one}{os.sep}".startswith(policy.reach)]
    return [
        *build_base(program, network=policy.network),
        "--clearenv",
        *(_resolver() if policy.network else ()),
        # On disk, because in memory the size of all temporary files would be unlimited.
        *(word for one in _TEMPORARY for word in ("--bind", str(policy.temporary), one)),
        *("--remount-ro", "/dev"),
        *("--bind", str(policy.home), HOME),
        *_each("--tmpfs", above),
        *_bind("--ro-bind-try", policy.shown),
        *_each("--tmpfs", around),
        *_bind("--bind", [policy.workspace]),
        *_bind("--ro-bind", policy.borrowed),
        *_each("--remount-ro", around),
        *_protect(places),
        *_guard_git(policy, places),
        *_hide(policy),
        *_hide_sockets(policy),
        *_each("--remount-ro", above),
        *("--remount-ro", "/", "--chdir", str(policy.workspace)),
        *(word for variable in policy.variables.items() for word in ("--setenv", *variable)),
    ]


def _each(option: str, paths: Iterable[Path | str]) -> list[str]:
    return [word for path in paths for word in (option, str(path))]


def _bind(option: str, paths: Iterable[Path | str]) -> list[str]:
    """Return mounts of paths at the same paths."""
    return [word for path in paths for word in (option, str(path), str(path))]


def _ways_through_shared(policy: Policy) -> list[str]:
    """Return the first folder below a shared writable folder on the path to each mount.

    Each of these gets a mount of its own. Otherwise a command could move and remove the folder.
    That would also detach the mounts below it in the sandbox of a background job, which could then
    rename protected paths. Or the command could replace the folder by a link, and bubblewrap would
    create folders at the target of that link.
    """
    targets = [*map(str, (policy.workspace, *policy.borrowed)), *policy.shown]
    mounted = tuple(f"{folder}{os.sep}" for folder in (policy.workspace, *policy.shown))
    found = dict[str, None]()
    for target in targets:
        for shared in (HOME, *_TEMPORARY):
            first, deeper, _ = target.removeprefix(f"{shared}{os.sep}").partition(os.sep)
            if first and deeper:  # otherwise the mount is elsewhere, or is this folder
                found[f"{shared}{os.sep}{first}"] = None
    return [folder for folder in found if not f"{folder}{os.sep}".startswith(mounted)]


def _protect(places: Sequence[ProtectedPath]) -> Iterator[str]:
    """Yield read-only mounts of the protected paths.

    Every folder above them is mounted on itself: a command cannot rename a mount point.
    """
    above = {folder for place in places for folder in place.above}
    yield from _bind("--bind", sorted(above))  # a folder is before those in it
    for place in places:
        if place.state is PathState.FOLDER and is_empty(place.path):  # faster than a bind
            yield from ("--tmpfs", str(place.path), "--remount-ro", str(place.path))
        elif place.state in (PathState.FILE, PathState.FOLDER):
            yield from ("--ro-bind", str(place.path), str(place.path))


def _guard_git(policy: Policy, places: Sequence[ProtectedPath]) -> Iterator[str]:
    """Yield a script in place of git: it refuses commands that would fail halfway.

    A checkout or merge that changes protected files would stop after some of its changes.
    """
    root = policy.workspace
    hidden = (one for one in policy.hidden if one != root and one.is_relative_to(root))
    paths = dict.fromkeys((*(place.path for place in places), *hidden))
    names = [str(path.relative_to(root)) for path in paths]
    names = [name for name in names if name.partition(os.sep)[0] != GIT and "\n" not in name]
    found = _GIT.is_file() and not _GIT.is_symlink() and os.access(_GUARD, os.X_OK)
    if names and found and (root / GIT).exists():
        yield from ("--ro-bind", str(_GIT), _REAL_GIT, "--ro-bind", str(_GUARD), str(_GIT))
        yield from ("--setenv", "TEAMD_REAL_GIT", _REAL_GIT)
        yield from ("--setenv", "TEAMD_WORKSPACE", str(root))
        yield from ("--setenv", "TEAMD_PROTECTED", "\n".join(names))
        if not (policy.network or policy.hosts):
            yield from ("--setenv", "TEAMD_PUSH", "copy" if policy.owns_tree else "shared")


def is_empty(folder: Path) -> bool:
    """Return whether a path is a readable and empty folder."""
    with suppress(OSError), os.scandir(folder) as found:
        return next(found, None) is None
    return False


def _hide(policy: Policy) -> Iterator[str]:
    """Yield an empty folder over each hidden folder that would be visible."""
    reach = (f"{policy.workspace}{os.sep}", *policy.reach)
    around = tuple(f"{folder}{os.sep}" for folder in policy.around)  # not visible in any case
    for folder in policy.hidden:  # inner folders must come first
        path = f"{folder}{os.sep}"
        shown = folder.is_relative_to(policy.workspace) or not path.startswith(around)
        if shown and path.startswith(reach) and folder.is_dir():
            yield from ("--tmpfs", str(folder), "--remount-ro", str(folder))


def _hide_sockets(policy: Policy) -> Iterator[str]:
    """Yield mounts over sockets in readable folders, because any command could connect to them."""
    real = ((f"{os.path.realpath(folder)}{os.sep}", f"{folder}{os.sep}") for folder in policy.shown)
    linked = [(target, folder) for target, folder in real if target != folder]
    for socket in map(_real, _sockets()):
        places = [socket] if socket.startswith(policy.reach) else []
        for target, folder in linked:
            if socket.startswith(target):
                places.append(f"{folder}{socket.removeprefix(target)}")
        for place in places:
            if Path(place).is_socket():
                yield from ("--ro-bind", os.devnull, place)


_real: Final = lru_cache(_MOST_SOCKETS)(os.path.realpath)


def _sockets() -> list[str]:
    """Return the paths of all sockets that are open on this machine, see proc(5)."""
    try:
        text = _OPEN_SOCKETS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # another system
        return []
    rows = _ROW.split(text.removesuffix("\n"))
    return [row[row.index("/") :] for row in rows if "/" in row]


def _resolver() -> Iterator[str]:
    """Yield the file with the addresses of the name servers, which is often a link into `/run`."""
    real = Path(os.path.realpath(_RESOLVER))
    if not is_of_system(real) and real.is_file():
        yield from ("--ro-bind", str(real), str(real))


def _hide_secrets_of_root() -> Iterator[str]:
    """Yield mounts over the files in `/etc` that only root may read.

    File permissions do not protect them from root's commands.
    """
    for path in _secrets_of_root() if os.geteuid() == 0 else ():
        if path.is_dir():
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))
        elif path.exists():  # a removed file cannot be a mount point
            yield from ("--ro-bind", os.devnull, str(path))


@cache
def _secrets_of_root() -> tuple[Path, ...]:
    """Return the files and folders in `/etc` that only their owner or group may read."""
    found, folders = [], ["/etc"]
    while folders:
        for entry in _entries(folders.pop()):
            with suppress(FileNotFoundError):
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISLNK(mode):
                    continue
                if not mode & stat.S_IROTH:
                    found.append(Path(entry.path))
                elif stat.S_ISDIR(mode):
                    folders.append(entry.path)
    return tuple(found)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:  # just removed
        return list(entries)
    return []
