"""Runs git in a working copy inside a sandbox, where programs planted by an agent do no harm.

The sandbox contains only the copy and the objects that it borrows, and has no network. The copy is
read-only unless git has to change it. Git ignores settings, grafts and replacements of the copy as
far as it can. A program that git runs nevertheless is confined to the sandbox.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from teamd.copies.source import GitKilled, last_words
from teamd.errors import StoreError, TeamError, translate_os_errors
from teamd.files import directories
from teamd.files.directories import remove_scratch as remove_left
from teamd.files.directories import scratch_folder
from teamd.files.paths import TeamPaths
from teamd.programs import Captured, run_to_end
from teamd.programs.seccomp import filter_to_read
from teamd.sandbox.bubblewrap import build_arguments, is_empty
from teamd.sandbox.build import build_policy
from teamd.sandbox.policy import Origin, Policy
from teamd.sandbox.probe import PROGRAM, find_program, probe
from teamd.settings.schema import ToolSettings

LONG_SECONDS: Final = 600.0
OWN_OBJECTS: Final = "TEAMD_OWN_OBJECTS"  # a variable: the copy's own objects, quoted
_SETTINGS: Final = {
    "advice.graftFileDeprecated": "false",  # because an empty graft file is used
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.attributesFile": "/dev/null",
    "core.quotePath": "false",
    "credential.helper": "",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "status.showUntrackedFiles": "all",
}
# Exit statuses of a killed bubblewrap, and of a killed shell or git inside.
_KILLED: Final = (
    -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM,
)  # fmt: skip
_NOT_MADE: Final = b"bwrap: "  # for example, a mount's source was just removed, or memory ran out
_FULL: Final = (
    b"No space left on device",
    b"Out of diskspace",
    b"Disk quota exceeded",
    b"unable to write",
)
_LITTLE_BYTES: Final = 1 << 26
_ENDS_ONE: Final = frozenset(":\n")  # characters that end an entry in a list of object folders
_SCRATCH: Final = ".scratch-"
# Limits come first, because git reads a whole ref into memory. `git` is found on the PATH of the
# sandbox. Git would wait forever for a pipe in place of a file, and a device may be endless.
_BEGIN: Final = """ulimit -c 0; ulimit -f 16777216; ulimit -d 4194304; set -eu
if [ -e .git ]; then
  odd=$(find . \\( -path './.git/*' -o -name '.git*' \\) \\( -type p -o -type l -xtype p \\
    -o -type l -xtype c \\) -print -quit 2>/dev/null || :)
  if [ -n "$odd" ]; then echo "${odd#./} is a pipe or a device, and git reads it" >&2; exit 1; fi
fi
"""


@dataclass(frozen=True, slots=True)
class SandboxedGit:
    """Runs git in one folder.

    Attributes:
        argv: bubblewrap and its options.
        scratch: the folder that is `/tmp` inside the sandbox.
        untrusted: folders in which programs are not looked up.
    """

    folder: Path
    argv: tuple[str, ...]
    scratch: Path
    untrusted: tuple[Path, ...]

    def run(
        self,
        script: str,
        *words: str,
        given: bytes = b"",
        stdout: int | None = None,
        seconds: float = LONG_SECONDS,
    ) -> Captured:
        """Run a shell script of ours that calls git.

        Args:
            script: the script for `sh`.
            words: its arguments.
            given: its standard input.
            stdout: a descriptor for its output; otherwise the output is returned.
            seconds: the time after which the script and its processes are killed.

        Raises:
            GitKilled: git was killed, or the sandbox failed to start this time.
            StoreError: the disk is full.
            TeamError: git took too long or cannot be started, or no sandbox works on this machine.
        """
        inner = ("/bin/sh", "-c", _BEGIN + script, "sh", *words)
        try:
            with filter_to_read() as calls:
                done = run_to_end(
                    [*self.argv, "--seccomp", str(calls), "--", *inner],
                    timeout_seconds=seconds,
                    env={},
                    words=given,
                    stdout=stdout,
                    pass_fds=[calls],
                    # If bubblewrap is killed while it starts, a child would wait for it forever.
                    kill_group=True,
                )
        except OSError as error:  # includes TimeoutError
            raise TeamError(f"git failed in {self.folder}: {error}") from error
        if done.status in _KILLED:
            raise GitKilled(f"git was killed in {self.folder}; try again")
        if done.status != 0:  # checked only now, because a check costs as much as git itself
            _check_sandbox(self.untrusted)
            check_space(self.scratch, done.stderr)
            if done.stderr.startswith(_NOT_MADE):
                said = last_words(done)
                raise GitKilled(f"git did not start in {self.folder}: {said}; try again")
        return done

    def do(self, script: str, *words: str, given: bytes = b"", stdout: int | None = None) -> bytes:
        """Run a script that must succeed; return its output.

        Raises:
            TeamError: it failed; the message contains the error output of git.
        """
        done = self.run(script, *words, given=given, stdout=stdout)
        if done.status != 0:
            raise TeamError(f"git failed in the working copy {self.folder}: {last_words(done)}")
        return done.stdout


@contextmanager
def open_sandboxed_git(
    paths: TeamPaths, folder: Path, origin: Origin, *, writable: bool = False
) -> Iterator[SandboxedGit]:
    """Yield git for a working copy of a team, which is read-only unless `writable`.

    Raises:
        TeamError: no sandbox works on this machine, or the copy is not a folder.
    """
    untrusted = (origin.folder, paths.work)
    program = find_program(PROGRAM, untrusted) or _check_sandbox(untrusted)
    _check_real(folder)
    _check_real(origin.objects)
    with open_scratch(paths) as scratch:
        policy = _policy(paths, folder, origin, scratch)
        argv = build_arguments(program, policy, ())
        lock = () if writable else ("--remount-ro", str(policy.workspace))
        variables = _variables(folder, origin, writable=writable)
        yield SandboxedGit(folder, (*argv, *lock, *variables), scratch, untrusted)


def check_space(folder: Path, said: bytes) -> None:
    """After git has failed, check whether the disk is full, because then the work is not at fault.

    Args:
        folder: a folder on the disk.
        said: the error output of git, which may include texts from the work.

    Raises:
        StoreError: the disk is full.
    """
    if any(word in said for word in _FULL):
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < _LITTLE_BYTES:  # git has removed its temporary files
            raise StoreError(f"no space left for {folder}; free some and try again")


def quote_objects(folder: Path) -> str:
    """Return a folder of objects, quoted for a list of such folders."""
    path = str(folder)
    if not _ENDS_ONE.intersection(path):
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _check_sandbox(untrusted: Sequence[Path]) -> str:
    """Return the program that makes a sandbox on this machine.

    Raises:
        TeamError: no sandbox works.
    """
    found = probe(untrusted)
    if not found.works:
        raise TeamError(
            f"git runs in a working copy only in a sandbox, and {found.trouble}; "
            f"the person can fix it with {found.remedy}"
        )
    return found.program


def remove_scratch(paths: TeamPaths) -> None:
    """Remove the temporary files of git whose caller was killed."""
    remove_left(paths.work, _SCRATCH)


def _policy(paths: TeamPaths, folder: Path, origin: Origin, scratch: Path) -> Policy:
    policy = build_policy(paths, "git", ToolSettings(), workspace=folder, origin=origin)
    # Placeholders of a command hide nothing, and may be removed while they are mounted.
    hidden = tuple(one for one in policy.hidden if not is_empty(one))
    return replace(policy, home=scratch, temporary=scratch, hidden=hidden)


def _variables(folder: Path, origin: Origin, *, writable: bool) -> Iterator[str]:
    """Yield options for the environment variables that override the settings of the copy."""
    numbered = enumerate(_SETTINGS.items())
    settings = {f"GIT_CONFIG_KEY_{at}": name for at, (name, _) in numbered}
    settings |= {f"GIT_CONFIG_VALUE_{at}": value for at, value in enumerate(_SETTINGS.values())}
    variables = {
        "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
        **settings,
        "GIT_DIR": str(folder / ".git"),
        "GIT_WORK_TREE": str(folder),
        # Also correct after the project was moved or copied.
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": quote_objects(origin.objects),
        OWN_OBJECTS: quote_objects(folder / ".git/objects"),
        "GIT_GRAFT_FILE": "/dev/null",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "1" if writable else "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ATTR_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
    }
    for name, value in variables.items():
        yield from ("--setenv", name, value)


def _check_real(folder: Path) -> None:
    """Check that a path is a folder and not reached through a link.

    Raises:
        TeamError: it is not.
    """
    if Path(os.path.realpath(folder)) != folder or not folder.is_dir():
        raise TeamError(f"{folder} is no longer a folder, or a link leads there; check it")


@contextmanager
def open_scratch(paths: TeamPaths) -> Iterator[Path]:
    """Yield a folder for temporary files of git, and remove it at the end."""
    directories.make_private_directory(paths.work)
    with ExitStack() as stack:
        with translate_os_errors(paths.work):
            made = stack.enter_context(scratch_folder(paths.work, _SCRATCH))
        yield made
