"""Finds out whether bubblewrap works on this machine and, if not, why."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.programs import run_to_end
from teamd.programs.seccomp import filter_to_read
from teamd.sandbox import SANDBOXED
from teamd.sandbox.bubblewrap import build_base

if TYPE_CHECKING:
    from teamd.settings.schema import ToolSettings

PROGRAM: Final = "bwrap"
_PROBE_SECONDS: Final = 10.0
_APPARMOR: Final = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_CLONE: Final = Path("/proc/sys/kernel/unprivileged_userns_clone")
_MOST: Final = Path("/proc/sys/user/max_user_namespaces")
_INSTALL: Final = "`apt install bubblewrap`, `dnf install bubblewrap` or the like"
_PROCESSES: Final = "a higher `ulimit -u`, or a higher pids limit of the container"
_CONTAINER: Final = 'run the team in a container and set [tools] sandbox = "external"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The result of a trial sandbox.

    Attributes:
        program: the path of bubblewrap; empty if it is not installed.
        trouble: the reason why no sandbox works, as half a sentence; empty if one works.
        remedy: the remedy for that.
    """

    program: str = ""
    trouble: str = ""
    remedy: str = ""

    @property
    def works(self) -> bool:
        return not self.trouble


def probe(untrusted: Iterable[Path] = ()) -> Probe:
    """Make a sandbox that runs nothing, which takes some milliseconds.

    Args:
        untrusted: folders to which agents write, so programs in them are not used.
    """
    if sys.platform != "linux":
        return Probe(trouble="bubblewrap needs Linux", remedy=_CONTAINER)
    program = find_program(PROGRAM, untrusted)
    if program is None:
        return Probe(trouble="bubblewrap is not installed", remedy=_INSTALL)
    try:
        with filter_to_read() as calls:
            said = _make_sandbox(program, calls)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        remedy = _PROCESSES if error.errno == errno.EAGAIN else "a restart"
        return Probe(program=program, trouble=reason, remedy=remedy)
    if said is None:
        return Probe(program=program)
    reason, remedy = _diagnose(said)
    return Probe(program=program, trouble=f"bubblewrap cannot start: {reason}", remedy=remedy)


def _make_sandbox(program: str, calls: int) -> str | None:
    """Make a sandbox; return an error message, or `None` if it worked."""
    argv = [*build_base(program), "--seccomp", str(calls), "true"]
    try:
        done = run_to_end(argv, timeout_seconds=_PROBE_SECONDS, env={}, pass_fds=[calls])
    except OSError as error:  # includes TimeoutError
        return str(error)
    return None if done.status == 0 else (done.stdout + done.stderr).decode(errors="replace")


def describe(tools: ToolSettings, probe: Probe) -> str:
    """Describe the sandbox of commands in one line."""
    if tools.sandbox == "off":
        return "off: commands run with your rights"
    if tools.sandbox == "external":
        return "external: commands run with your rights, in a container as the settings say"
    if not probe.works:
        return f"none: {probe.trouble}, so commands are refused; {probe.remedy} mends it"
    if tools.network:
        return f"{SANDBOXED}, with network"
    return f"{SANDBOXED}, {'hosts: ' + ', '.join(tools.hosts) if tools.hosts else 'no network'}"


def trusted_path(untrusted: Iterable[Path] = ()) -> list[str]:
    """Return the folders of the PATH, except those to which agents may write."""
    walls = [Path(os.path.realpath(folder)) for folder in untrusted]
    return [
        folder
        for folder in os.get_exec_path()
        if Path(folder).is_absolute()
        and not any(Path(os.path.realpath(folder)).is_relative_to(wall) for wall in walls)
    ]


def find_program(name: str, untrusted: Iterable[Path] = ()) -> str | None:
    """Find a program on the PATH, except in folders to which agents may write."""
    for folder in trusted_path(untrusted):
        found = os.path.join(folder, name)  # noqa: PTH118 -- a string
        if os.path.isfile(found) and os.access(found, os.X_OK):  # noqa: PTH113 -- never raises
            return found
    return None


def _diagnose(said: str) -> tuple[str, str]:
    """Return the cause and its remedy, from kernel settings and the output of bubblewrap."""
    if os.strerror(errno.EAGAIN) in said:
        return "the limit on processes is reached", _PROCESSES
    if _read(_MOST) == "0":
        return "user namespaces are switched off", "sysctl user.max_user_namespaces=10000"
    if _read(_CLONE) == "0":
        return "only root may make user namespaces", "sysctl kernel.unprivileged_userns_clone=1"
    if _read(_APPARMOR) == "1":
        remedy = "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile for bwrap"
        return "AppArmor forbids user namespaces", remedy
    return " ".join(said.split())[-200:] or "it does not say why", _CONTAINER


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
