"""Makes a working copy in a temporary folder and renames it, so that a kill leaves no half copy."""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from teamd.copies import record
from teamd.copies.record import Copy
from teamd.copies.sandboxed_git import (
    SandboxedGit,
    open_sandboxed_git,
    quote_objects,
    remove_scratch,
)
from teamd.copies.source import Head, Source, last_words, read_head
from teamd.errors import TeamError, translate_os_errors
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.sandbox.policy import Origin

DISCARDED: Final = "refs/teamd/discarded"
_KEPT_DAYS: Final = 30
_TIME: Final = "%Y%m%dT%H%M%SZ"
_TIME_IN_REF: Final = re.compile(r".*/(\d{8}T\d{6}Z)")  # sorts by time


def now_in_refs() -> str:
    """Return the current UTC time in the format of our ref names."""
    return datetime.now(UTC).strftime(_TIME)


def sweep_discarded(source: Source) -> None:
    """Remove the refs to work that was discarded more than 30 days ago."""
    oldest = (datetime.now(UTC) - timedelta(days=_KEPT_DAYS)).strftime(_TIME)
    for ref in source.ask("for-each-ref", "--format=%(refname)", DISCARDED).splitlines():
        when = _TIME_IN_REF.match(ref)  # the last match, because a name may look like a time
        if when and when[1] < oldest:
            source.remove_ref(ref)


_MAKING_SECONDS: Final = 600.0
_MOST_SHALLOW_BYTES: Final = 1 << 24
# Like `git clone --shared`, but without copying refs, because their commits are not pinned in the
# source. The repository is synced to disk at the end; the kernel writes the files later, as for any
# clone. Arguments: branch, commit, format, name, address of the teammate.
_CLONE: Final = """
case $3 in sha1) git init -q --template= ;; *) git init -q --template= --object-format="$3" ;; esac
mkdir -p .git/objects/info .git/info .git/hooks
cp /tmp/alternates .git/objects/info/alternates
if [ -s /tmp/shallow ]; then cp /tmp/shallow .git/shallow; fi
git config user.name "$4"
git config user.email "$5"
git config gc.auto 0
git symbolic-ref HEAD "refs/heads/$1"
git update-ref -m clone "refs/heads/$1" "$2"
git -c checkout.workers=0 reset -q --hard
sync .git/HEAD .git/config .git/index ".git/refs/heads/$1" .git/objects/info/alternates
"""
# Lists files of git-lfs and submodules, whose content the copy does not have.
_LACKS: Final = """
git ls-files -z -- ':(attr:filter=lfs)' | tr -cd '\\0' | wc -c
[ -f .gitmodules ] || exit 0
git ls-files --stage -z | tr '\\n\\0' '?\\n' | sed -n 's/^160000 [^\t]*\t//p'
"""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """A working copy, and a sentence about its missing content.

    The sentence is empty if nothing is missing, or if the copy existed before.
    """

    copy: Copy
    lacks: str = ""


def check_source(paths: TeamPaths, folder: Path) -> Head:
    """Return the commit from which a working copy of a folder would be made.

    Raises:
        TeamError: no copy can be made; the message says why and what to do.
    """
    return read_head(Source.of(folder, [paths.work]))


def make_copy(paths: TeamPaths, name: str, team: str, folder: Path) -> CopyResult:
    """Make a teammate's working copy of a folder, or find its existing one.

    Args:
        paths: the team.
        name: the name of the teammate.
        team: the team's name, for the author of commits.
        folder: the person's project folder.

    Raises:
        TeamError: no copy can be made, and nothing is left of the attempt; the message says why.
    """
    with locks.locked(record.lock_file(paths, name), timeout_seconds=_MAKING_SECONDS):
        if (found := record.find(paths, name)) is not None:
            return CopyResult(settle(paths, found))
        if files.exists(record.record_file(paths, name)):  # removed, or killed while made
            files.remove(record.record_file(paths, name))
        if os.path.lexists(paths.copy(name)):
            raise TeamError(f"{paths.copy(name)} is where a working copy should be; move it away")
        return _make(paths, name, team, folder)


def settle(paths: TeamPaths, copy: Copy) -> Copy:
    """Let a copy borrow objects from the present place of its project; the caller holds its lock.

    Raises:
        TeamError: git fails.
    """
    if not copy.moved:
        return copy
    with open_sandboxed_git(paths, copy.folder, copy.origin, writable=True) as git:
        _name_objects(git, copy.origin)
        git.do("cp /tmp/alternates .git/objects/info/alternates")
    settled = record.new(paths, copy.name, copy.team, copy.origin, copy.base)
    settled = replace(settled, first=copy.first, squashed=copy.squashed)
    record.write(paths, settled)
    return settled


def remove_copy(paths: TeamPaths, name: str, folder: Path) -> None:
    """Remove a copy without work, or the rest of a copy whose making was killed.

    Raises:
        TeamError, OSError: it cannot be removed; the next `make_copy` tries again.
    """
    with locks.locked(record.lock_file(paths, name)):
        for tree in (_aside(paths, name), paths.copy(name)):
            remove_tree(tree)
        remove_scratch(paths)
        files.remove(record.record_file(paths, name))
        Source.of(folder, [paths.work]).unpin(record.address_of(paths, name))


def clone(paths: TeamPaths, into: Path, head: Head, copy: Copy) -> str:
    """Clone a commit into a folder, with the branch and author of a copy.

    Args:
        paths: the team.
        into: a folder in `paths.work`, whose old content is removed first.
        head: a commit of the person's repository; see `head_at` for any commit.
        copy: the copy whose branch and author are used.

    Returns:
        A sentence about missing content.

    Raises:
        TeamError: it failed, and its folder was removed.
    """
    with translate_os_errors(into):
        remove_tree(into)
        into.mkdir(mode=0o700)
    try:
        with open_sandboxed_git(paths, into, head.origin, writable=True) as git:
            hand_over(git, head)
            git.do(_CLONE, copy.branch, head.commit, head.format, copy.name, copy.email)
            return _describe_lacks(git)
    except BaseException:
        remove_tree(into)
        raise


def remove_tree(folder: Path) -> None:
    """Remove a folder and its content without following links."""
    if folder.is_symlink():
        folder.unlink()
    if folder.exists():
        shutil.rmtree(folder)


def _make(paths: TeamPaths, name: str, team: str, folder: Path) -> CopyResult:
    source = Source.of(folder, [paths.work])
    head, changes = read_head(source), source.count_changes()
    copy = record.new(paths, name, team, head.origin, head.commit)
    source.pin(copy.address, head.commit)
    aside = _aside(paths, name)
    try:
        lacks = clone(paths, aside, head, copy)
        record.write(paths, copy)
        with translate_os_errors(copy.folder):
            aside.rename(copy.folder)
            directories.sync_directory(paths.work)
    except BaseException:
        source.unpin(copy.address)
        files.remove(record.record_file(paths, name))
        raise
    sweep_discarded(source)
    files_of = "1 file" if changes == 1 else f"{changes} files"
    left = f"your uncommitted changes ({files_of}) are not in it" if changes else ""
    return CopyResult(copy, "; ".join(filter(None, (left, lacks))))


def _aside(paths: TeamPaths, name: str) -> Path:
    return paths.work / f".making-{name}"


def hand_over(git: SandboxedGit, head: Head) -> None:
    """Write the files that the clone script reads into the sandbox."""
    _name_objects(git, head.origin)
    with suppress(FileNotFoundError):
        files.replace(git.scratch / "shallow", _read_shallow(head.shallow), durable=False)


def _read_shallow(path: Path) -> bytes:
    """Read the file that lists where a shallow history ends; a command may have replaced it.

    Raises:
        TeamError: it is not a regular file.
        FileNotFoundError: it does not exist.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TeamError(f"{path} cannot be read: {error.strerror}") from error
    with open(fd, "rb") as cut:  # noqa: PTH123 -- a descriptor
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise TeamError(f"{path} is not a regular file; check and remove it")
        return cut.read(_MOST_SHALLOW_BYTES)


def _name_objects(git: SandboxedGit, origin: Origin) -> None:
    objects = os.fsencode(quote_objects(origin.objects)) + b"\n"
    files.replace(git.scratch / "alternates", objects, durable=False)


def _describe_lacks(git: SandboxedGit) -> str:
    done = git.run(_LACKS)
    if done.status != 0:
        raise TeamError(f"git failed in {git.folder}: {last_words(done)}")
    large, *modules = done.stdout.decode(errors="replace").splitlines()
    pointers = f"of what git-lfs keeps ({large}) it has the pointers alone" if int(large) else ""
    empty = f"its submodules are empty: {', '.join(modules)}" if modules else ""
    return "; ".join(filter(None, (pointers, empty)))
