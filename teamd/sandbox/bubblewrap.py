"""The command line of bubblewrap for a policy: what is mounted where, in the order that counts.

The root of a sandbox is an empty file system, and only what is named here is in it: no home, no
`/run`, no socket of another program. Options as in bwrap(1); any version from 0.4 on has them.
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

from teamd.sandbox.policy import HOME, SYSTEM_FOLDERS, TEMPORARY, Policy, Readable, is_of_system
from teamd.sandbox.protected_paths import GIT, PathState, ProtectedPath

_READ_ONLY: Final = ("--ro-bind", "--ro-bind-try")
_BINDS: Final = ("--bind", *_READ_ONLY)
_COVER: Final = "--tmpfs"
_DEVICES: Final = "--dev"
_REMOVED: Final = " (deleted)"  # as the kernel ends such a path; a name may end so, too
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A line of mountinfo.

    Attributes:
        device: of the file system, as `8:1`.
        root: what of the file system is shown.
        point: where it is shown.
    """

    device: str
    root: str
    point: str
    read_only: bool

    @classmethod
    def decode(cls, line: str) -> Mount:
        """Read a line; blanks and the like are in it in octal."""
        _, _, device, root, point, options, *_ = line.split(" ")
        return cls(device, _plain(root), _plain(point), "ro" in options.split(","))

    def at(self, path: str) -> tuple[str, str]:
        """Return what of which file system stands at a path of this mount."""
        rest = path.removeprefix(self.point).lstrip(os.sep)
        return self.device, f"{self.root.rstrip(os.sep)}/{rest}".rstrip(os.sep) or os.sep


def _plain(path: str) -> str:
    """Return a path without its octal; few have any."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), path) if "\\" in path else path


def read_mounts(pid: int | str) -> tuple[Mount, ...]:
    """Return what is mounted for a process, the latest last.

    Raises:
        OSError: it has ended.
    """
    text = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return decode_mounts(text)


@lru_cache(2)  # a process's own stays the same
def decode_mounts(text: str) -> tuple[Mount, ...]:
    """Read the kernel's list; it ends a line in a newline alone, whatever a path may hold."""
    return tuple(Mount.decode(line) for line in text.split("\n") if line)


class ExpectedMounts:
    """What is to be mounted in a sandbox.

    Args:
        argv: bubblewrap and its options.
        folders: where links may come and go; no path that is mounted in them leads through one.
        places: what stays as it is.
        own: what is mounted for this process.
    """

    def __init__(
        self,
        argv: Sequence[str],
        folders: Iterable[Path],
        places: Iterable[ProtectedPath],
        own: Sequence[Mount],
    ) -> None:
        inside = tuple(f"{folder}{os.sep}" for folder in folders)
        self._own = {mount.point: mount for mount in own}  # of two at one point the later
        self._devices = {mount.device for mount in own}
        real = cache(_resolve_by_kernel)  # many are the same
        self._sources = {
            target: source if f"{source}{os.sep}".startswith(inside) else real(source)
            for target, source in _mount_sources(argv).items()
        }
        # While bubblewrap still mounts: whoever checks is waited for.
        self._stands = {target: self._find(path) for target, path in self._sources.items()}
        self._fixed = {argv[at + 2] for at, word in enumerate(argv) if word in _READ_ONLY}
        self._covers = _mount_covers(argv)
        # One that is missing has just been taken away again: it is not held, and that is seen.
        self._kept = [str(one.path) for one in places if one.state is not PathState.LINK]

    def check(self, mounted: Iterable[Mount]) -> None:
        """See that mounts are what they are meant to be, and that what is protected is held.

        Raises:
            OSError: something else is mounted, or not everything.
        """
        top = {mount.point: mount for mount in mounted}  # the latest hides those before it
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
        """Return whether a mount shows what stands at its source; so do those within a folder."""
        target = mount.point
        while target not in self._sources and target != os.sep:
            target = os.path.dirname(target)  # noqa: PTH120 -- text, many times
        if target not in self._sources:
            return False
        stands = self._stands[target]
        if target != mount.point:
            inner = os.path.relpath(mount.point, target)
            stands = self._find(os.path.normpath(f"{self._sources[target]}/{inner}"))
        return stands is None or stands == (mount.device, mount.root)

    def _find(self, path: str) -> tuple[str, str] | None:
        """Return what of which file system stands at a path, if that is known."""
        point = path
        while (mount := self._own.get(point)) is None and point != os.sep:
            point = point[: point.rfind(os.sep)] or os.sep
        return mount.at(path) if mount else None


def _resolve_by_kernel(path: str) -> str:
    """Return where a path leads, as the kernel says it: to walk it takes ten times as long.

    It is walked where the kernel does not tell: nothing stands there, or what did is just removed.
    """
    with suppress(OSError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            found = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 -- as it is
        finally:
            os.close(fd)
        if not found.endswith(_REMOVED):
            return found
    return os.path.realpath(path)


def _replaced(point: str) -> OSError:
    return OSError(errno.ESTALE, f"{point} has just been replaced; try again")


def _mount_sources(argv: Sequence[str]) -> dict[str, str]:
    """Return what is to be mounted, by its place; what bubblewrap makes itself is not among it."""
    found = {}
    for at, word in enumerate(argv):
        if word in _BINDS:
            found[argv[at + 2]] = argv[at + 1]
        elif word == _DEVICES:  # single devices of the machine's own
            found[argv[at + 1]] = argv[at + 1]
    return found


def _mount_covers(argv: Sequence[str]) -> list[str]:
    """Return where an empty folder is to hide what stands there."""
    return [argv[at + 1] for at, word in enumerate(argv) if word == _COVER]


# As root a sandbox with any capability can be left. The command is the first process of its
# namespace, so that nothing of bubblewrap's own is in there.
_BASE: Final = (
    "--unshare-user", "--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--new-session",
    "--as-pid-1",
)  # fmt: skip
_RESOLVER: Final = Path("/etc/resolv.conf")
_TEMPORARY: Final = (TEMPORARY, "/var/tmp", "/dev/shm")  # noqa: S108 -- the sandbox's own
_MOST_SOCKETS: Final = 1000
_OPEN_SOCKETS: Final = Path("/proc/net/unix")
_ROW: Final = re.compile(r"\n(?=[0-9a-f]+: )")  # a path may hold ends of lines
_GIT: Final = Path("/usr/bin/git")
_REAL_GIT: Final = "/run/teamd/git"  # where the guard finds it, inside
_GUARD: Final = Path(__file__).with_name("git_guard.sh")
_KERNEL: Final = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")


def build_base(program: str, *, network: bool = False) -> list[str]:
    """Return bubblewrap with what is the same for every command: namespaces, the system's folders.

    What is slow to find of it is found once, by whoever asks for it before the first fork.
    """
    return [*build_trial(program, network=network), *_hide_secrets_of_root()]


def build_trial(program: str, *, network: bool = False) -> list[str]:
    """Return of that what is quick to find, and tells whether bubblewrap works on this machine."""
    shared = ["--share-net"] if network else []
    return [program, *_BASE, *shared, *_system()]


@cache
def _system() -> tuple[str, ...]:
    return tuple(_find_system())


def _find_system() -> Iterator[str]:
    for folder in map(Path, SYSTEM_FOLDERS):
        if folder.is_symlink():
            yield from ("--symlink", os.readlink(folder), str(folder))  # noqa: PTH115 -- as it is
        elif folder.is_dir():
            yield from ("--ro-bind", str(folder), str(folder))
    yield from ("--proc", "/proc", "--dev", "/dev")
    for name in _KERNEL:  # root inside is root outside, and the kernel asks for no more than that
        yield from ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")


def build_arguments(
    program: str, policy: Policy, places: Iterable[ProtectedPath], readable: Readable
) -> list[str]:
    """Return bubblewrap and its options, up to the command.

    Args:
        program: bubblewrap.
        policy: what the command may reach.
        places: what stays as it is, each as it stands now.
        readable: what it may read.
    """
    above, places = _ways_through_shared(policy, readable), list(places)
    return [
        *build_base(program, network=policy.network),
        "--clearenv",
        *(_resolver() if policy.network else ()),
        *_temporary(policy),
        *("--bind", str(policy.home), HOME),
        *_each("--tmpfs", above),
        *_mount_readable(readable),
        *_mount_workspace(policy, readable),
        *_protect(places),
        *_guard_git(policy, places),
        *_hide(policy, readable),
        *_hide_sockets(readable),
        *_each("--remount-ro", above),
        *("--remount-ro", "/", "--chdir", str(policy.workspace)),
        *_environment(policy),
    ]


def _temporary(policy: Policy) -> Iterator[str]:
    """Yield one folder on the disk for all that is temporary: memory would have no bound there."""
    for folder in _TEMPORARY:
        yield from ("--bind", str(policy.temporary), folder)
    yield from ("--remount-ro", "/dev")


def _ways_through_shared(policy: Policy, readable: Readable) -> list[str]:
    """Return where the way to what is mounted leaves a folder that all commands can write to.

    If nothing were mounted there, a command could move that folder and remove it. With it would go
    what is mounted below for a background job, which could then rename what its mounts keep. Or it
    could put a link there, and bubblewrap would make folders where that leads.
    """
    targets = [*map(str, (policy.workspace, *policy.borrowed)), *readable.folders]
    mounted = tuple(f"{folder}{os.sep}" for folder in (policy.workspace, *readable.folders))
    found = dict[str, None]()
    for target in targets:
        for shared in (HOME, *_TEMPORARY):
            first, deeper, _ = target.removeprefix(f"{shared}{os.sep}").partition(os.sep)
            if first and deeper:  # otherwise it lies elsewhere, or is mounted there itself
                found[f"{shared}{os.sep}{first}"] = None
    return [folder for folder in found if not f"{folder}{os.sep}".startswith(mounted)]


def _each(option: str, folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        yield from (option, folder)


def _mount_readable(readable: Readable) -> Iterator[str]:
    for place in readable.folders:
        yield from ("--ro-bind-try", place, place)


def _mount_workspace(policy: Policy, readable: Readable) -> Iterator[str]:
    """Yield the workspace; a hidden folder around it that is within reach shows nothing else."""
    hidden = [str(one) for one in policy.around if f"{one}{os.sep}".startswith(readable.reach)]
    yield from _each("--tmpfs", hidden)
    yield from ("--bind", str(policy.workspace), str(policy.workspace))
    for objects in policy.borrowed:
        yield from ("--ro-bind", str(objects), str(objects))
    yield from _each("--remount-ro", hidden)


def _protect(places: Iterable[ProtectedPath]) -> Iterator[str]:
    """Yield mounts for what stays as it is; its folders are mounted, so that none is renamed."""
    places = list(places)
    above = {folder: None for place in places for folder in place.above}
    for folder in sorted(above, key=lambda folder: len(folder.parts)):
        yield from ("--bind", str(folder), str(folder))
    for place in places:
        if place.state is PathState.FOLDER and is_empty(place.path):  # takes half the time
            yield from ("--tmpfs", str(place.path), "--remount-ro", str(place.path))
        elif place.state in (PathState.FILE, PathState.FOLDER):
            yield from ("--ro-bind", str(place.path), str(place.path))


def _guard_git(policy: Policy, places: Iterable[ProtectedPath]) -> Iterator[str]:
    """Yield a script in the place of git that refuses to half change protected files."""
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


def is_empty(folder: Path) -> bool:
    """Return whether it is a folder that can be read, and nothing is in it."""
    with suppress(OSError), os.scandir(folder) as found:
        return next(found, None) is None
    return False


def _hide(policy: Policy, readable: Readable) -> Iterator[str]:
    """Yield an empty folder in the place of each hidden one that is within reach."""
    reach = (f"{policy.workspace}{os.sep}", *readable.reach)
    around = tuple(f"{folder}{os.sep}" for folder in policy.around)  # nothing of it is shown
    for folder in policy.hidden:  # in this order: a team's own comes before that of all teams
        path = f"{folder}{os.sep}"
        shown = folder.is_relative_to(policy.workspace) or not path.startswith(around)
        if shown and path.startswith(reach) and folder.is_dir():
            yield from ("--tmpfs", str(folder), "--remount-ro", str(folder))


def _hide_sockets(readable: Readable) -> Iterator[str]:
    """Yield mounts over sockets in folders that can be read: who may see one may connect to it."""
    linked = [(f"{os.path.realpath(folder)}{os.sep}", folder) for folder in readable.linked]
    for socket in map(_real, _sockets()):
        places = [socket] if socket.startswith(readable.reach) else []
        for real, folder in linked:  # as it leads now
            if socket.startswith(real):
                places.append(f"{folder}{os.sep}{socket.removeprefix(real)}")
        for place in places:
            if Path(place).is_socket():
                yield from ("--ro-bind", os.devnull, place)


@lru_cache(_MOST_SOCKETS)
def _real(path: str) -> str:
    return os.path.realpath(path)


def _sockets() -> list[str]:
    """Return the paths of all sockets that are open on this machine, see proc(5)."""
    try:
        text = _OPEN_SOCKETS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # another system
        return []
    rows = _ROW.split(text.removesuffix("\n"))
    return [row[row.index("/") :] for row in rows if "/" in row]


def _environment(policy: Policy) -> Iterator[str]:
    for name, value in policy.variables(inside=True).items():
        yield from ("--setenv", name, value)


def _resolver() -> Iterator[str]:
    """Yield the file that names the name servers, which is often a link into `/run`."""
    real = Path(os.path.realpath(_RESOLVER))
    if not is_of_system(real) and real.is_file():
        yield from ("--ro-bind", str(real), str(real))


def _hide_secrets_of_root() -> Iterator[str]:
    """Yield mounts that hide what in `/etc` only root may read: to root nothing else does."""
    for path in _secrets_of_root() if os.geteuid() == 0 else ():
        if path.is_dir():
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))
        elif path.exists():  # one that is gone by now could not be mounted over
            yield from ("--ro-bind", os.devnull, str(path))


@cache
def _secrets_of_root() -> tuple[Path, ...]:
    """Return the files and folders in `/etc` that others than their owner may not read.

    Each command looks through a thousand files here, so nothing is made of those that are not
    among them.
    """
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
    with suppress(OSError), os.scandir(folder) as entries:  # removed meanwhile
        return list(entries)
    return []
