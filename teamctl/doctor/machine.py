"""The checks of the machine: programs, locks, space, services that may end teamd, synced drives."""

from __future__ import annotations

import re
import resource
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from teamctl.doctor import Finding, Level
from teamd.errors import StoreError, translate_os_errors
from teamd.files import find_team, locks
from teamd.files.paths import TeamPaths, user_name
from teamd.files.watch import BLIND_SECONDS, watch
from teamd.messages import LEAD, USER
from teamd.process_id import Identity

_FEW_FILES: Final = 256
_LITTLE_SPACE_BYTES: Final = 100 * 1024 * 1024
_LINGER: Final = Path("/var/lib/systemd/linger")
_SYSTEMD: Final = Path("/run/systemd/system")  # sd_booted(3)
_SLEEP_STATES: Final = Path("/sys/power/state")
_BATTERIES: Final = Path("/sys/class/power_supply")


# Dropbox, Nextcloud, Google Drive and iCloud add words in parentheses or after a space. No name in
# a team directory contains either.
_MARKS: Final = re.compile(
    r"\.sync-conflict-\d{8}-\d{6}|_conflict-\d{8}-\d{6}|\.conflict\b|[ (]", re.IGNORECASE
)
_OTHER_HOST: Final = re.compile(r"([^.]+?)-[^.]+\.jsonl?")  # OneDrive: config-LAPTOP.json
_REMEDY: Final = (
    "compare it with the file that it is a copy of, then remove it; move the team off the synced "
    "drive, or exclude the team directory there"
)


def check_machine(paths: TeamPaths | None) -> Iterator[Finding]:
    """Check the machine, and the folder of the team if there is one."""
    yield _bash()
    yield _own_teamd()
    yield from _processes()
    yield _open_files()
    yield _space(paths.root if paths is not None else find_team.here())
    if paths is not None:
        yield _locks(paths)
        yield _watching(paths)
    yield from _lingering()
    yield from _suspend()


def _bash() -> Finding:
    if shutil.which("bash"):
        return Finding(Level.OK, "bash is there")
    return Finding(Level.FAIL, "there is no bash, which teammates work with", "install bash")


def _own_teamd() -> Finding:
    """Debian's libteam-utils contains another program named `teamd`."""
    own = Path(sys.argv[0]).resolve().parent / "teamd"
    first = shutil.which("teamd")
    if first is None:
        return Finding(Level.NOTE, "teamd is not on the PATH", f"call it as {own}")
    if Path(first).resolve() == own:
        return Finding(Level.OK, "the first teamd on the PATH is this one")
    remedy = f"call this one as {own}, or put {own.parent} first in PATH"
    return Finding(Level.NOTE, f"the first teamd on the PATH is another one: {first}", remedy)


def _processes() -> Iterator[Finding]:
    try:
        Identity.own()
    except StoreError as error:
        yield Finding.of(Level.FAIL, error)


def _open_files() -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= _FEW_FILES:
        return Finding(Level.OK, "enough files may be open at a time")
    return Finding(Level.FAIL, f"only {limit} files may be open at a time", "ulimit -n 1024")


def _space(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    if free >= _LITTLE_SPACE_BYTES:
        return Finding(Level.OK, "there is space on the disk")
    return Finding(Level.FAIL, f"only {free >> 20} MiB are free for {place}", "free some space")


def _locks(paths: TeamPaths) -> Finding:
    try:
        locks.check(paths.root)
    except StoreError as error:
        what, _, remedy = str(error).partition("; ")
        return Finding(Level.FAIL, what, remedy or "see that the team directory can be written")
    return Finding(Level.OK, "locks work in the team directory")


def _watching(paths: TeamPaths) -> Finding:
    if not paths.inboxes.is_dir():
        return Finding(Level.OK, "no team has run here yet")
    watching = watch(paths.inboxes)
    watching.close()
    if watching.recheck_seconds > BLIND_SECONDS:
        return Finding(Level.OK, "mail is seen at once")
    what = "the system's watches are used up: mail is seen after half a second"
    return Finding(Level.NOTE, what, "raise fs.inotify.max_user_instances with sysctl")


def _lingering() -> Iterator[Finding]:
    if not _SYSTEMD.is_dir():
        return
    user = user_name()
    if (_LINGER / user).exists():
        yield Finding(Level.OK, "lingering is on: services of yours run while you are logged out")
    else:
        what = "lingering is off: a teamd that is a service of yours ends when you log out"
        yield Finding(Level.NOTE, what, f"loginctl enable-linger {user}")


def _suspend() -> Iterator[Finding]:
    laptop = _BATTERIES.is_dir() and any(_BATTERIES.glob("BAT*"))
    if laptop and _SLEEP_STATES.is_file() and _SLEEP_STATES.read_text().strip():
        what = "this machine may suspend: teammates stop meanwhile, and continue afterwards"
        remedy = "systemd-inhibit --what=sleep:handle-lid-switch sleep infinity  keeps it awake"
        yield Finding(Level.NOTE, what, remedy)


def check_synced(paths: TeamPaths, members: Collection[str]) -> Iterator[Finding]:
    """Report the conflict copies in a team directory.

    Args:
        paths: the team.
        members: the names of its members, because one name may look like a copy of another.
    """
    for path in find_conflict_copies(paths, members):
        what = f"{path} is a conflict copy of a synced drive: two machines have written that file"
        yield Finding(Level.FAIL, what, _REMEDY)


def find_conflict_copies(paths: TeamPaths, members: Collection[str]) -> list[Path]:
    """Return the conflict copies in a team directory, recognized by their names."""
    folders = (paths.root, *paths.folders, paths.subagents, paths.all_seen)
    with translate_os_errors(paths.root):
        left = {lock.stem for lock in paths.lives.glob("*.lock")}  # `rm` keeps their files
        names = {LEAD, USER, *members, *left}
        files = [one for folder in folders for one in sorted(folder.glob("*")) if one.is_file()]
        return [one for one in files if _is_conflict_copy(one, names)]


def _is_conflict_copy(path: Path, names: Collection[str]) -> bool:
    if _MARKS.search(path.name):
        return True
    found = _OTHER_HOST.fullmatch(path.name)
    if found is None or path.stem in names:
        return False
    original = path.with_name(f"{found[1]}{path.suffix}")
    return original.is_file()
