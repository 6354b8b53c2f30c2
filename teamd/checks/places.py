"""The places in which checks run: the folder that teammates share, or a clean clone of a commit."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Final, Protocol

from teamd.checks.commands import Tail, run_command
from teamd.copies import record
from teamd.copies.clone import settle
from teamd.copies.record import Copy
from teamd.copies.sandboxed_git import check_space, quote_objects
from teamd.errors import StoreError, TeamError
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.sandbox.build import build_policy, build_shell_by
from teamd.sandbox.policy import Origin
from teamd.sandbox.probe import WITHOUT, Probe, probe
from teamd.sandbox.shells import Shell, make_home
from teamd.settings import Settings
from teamd.settings.schema import ToolSettings, common_tool_settings
from teamd.team.member import Member
from teamd.team.roster import Roster

_SECONDS: Final = 600.0  # to make a clone, or a commit
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256_DIGITS: Final = 64
_MOST_SAID: Final = 500
TREE: Final = "tree"

# No settings, hooks, filters or templates but those of a repository that is made here, so nothing
# of the teammate's runs. What a teammate's repository calls by a name need not be that: objects are
# packed and named anew, and the base is read from objects that no teammate can write.
_CLONE: Final = """\
set -euo pipefail
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
git init -q --template= --object-format={kind} {tree}
cd {tree}
mkdir .git/info
if [ -s ../shallow ]; then cp ../shallow .git/shallow; fi
printf '%s\\n' {base_objects} > .git/objects/info/alternates
echo '* -text -ident -filter -working-tree-encoding' > .git/info/attributes
"""
_FETCH: Final = """\
git init -q --template= --object-format={kind} --bare ../from
printf '%s\\n' {objects} > ../from/objects/info/alternates
if [ -s ../shallow ]; then cp ../shallow ../from/shallow; fi
printf '%s\\n' {commit} ^{base} |
  git --git-dir=../from pack-objects -q --revs --thin --stdout > ../pack
git index-pack --stdin --fix-thin --strict < ../pack > /dev/null
rm -r ../from ../pack
"""
_READ: Final = """\
rm ../shallow
git update-ref --no-deref HEAD {commit}
git read-tree {commit}
"""
# All that matches is taken out, also what the base does not have, and comes back as it is there; a
# link that stands in the place of a folder gives way.
_PROTECT: Final = """\
GIT_INDEX_FILE=.git/base git read-tree {base}
git ls-files -z -- {patterns} | git update-index -z --force-remove --stdin
GIT_INDEX_FILE=.git/base git ls-files -s -z -- {patterns} |
  git update-index -z --index-info
rm .git/base
"""
_CHECK_OUT: Final = "git checkout-index -a -f -q\n"
# One that was killed leaves its mark, and maybe locks, which nobody else waits for. A conflict that
# is not resolved would be, by `git add`.
_COMMIT_WORK: Final = """\
set -e
pipe=$(find . '(' -path './.git/*' -o -name '.git*' ')' -type p -print -quit)
if [ -n "$pipe" ]; then
  echo "${{pipe#./}} is a pipe, and git reads it"
  exit 1
fi
mark=.git/teamd.commit
if [ -e $mark ]; then rm -f .git/index.lock .git/HEAD.lock .git/refs/heads/{branch}.lock; fi
: > $mark
trap 'rm -f $mark' EXIT
for _ in {{1..50}}; do if [ -e .git/index.lock ]; then sleep 0.1; fi; done
on=$(git symbolic-ref -q --short HEAD) || on='no branch'
if [ "$on" != {branch} ]; then
  echo "its copy is on $on, and its work is what is on" {branch}
  exit 1
fi
if [ -n "$(git ls-files -u)" ]; then
  echo "it has conflicts that are not resolved"
  exit 1
fi
git -c advice.addEmbeddedRepo=false add -A
inner=$(git diff-index --cached --raw --no-renames {base} |
  sed -n '/^:160000/d; s/^:[0-9]* 160000 [^\t]*\t//p' |
  grep -vxF -f <(git config -f .gitmodules --get-regexp '[.]path$' | cut -d' ' -f2-) || true)
if [ -n "$inner" ]; then
  GIT_LITERAL_PATHSPECS=1 git rm -q -f --cached --pathspec-from-file=- <<< "$inner"
  echo "no commit holds the files of a repository of its own; move its .git away:" "$inner"
  exit 1
fi
git diff --cached --quiet || git {identity} commit -q --no-verify -m {message} >&2
git rev-parse --verify 'HEAD^{{commit}}'
"""


class NoPlace(TeamError):
    """A place could not be made; `str()` says what to do."""


@dataclass(frozen=True, slots=True)
class OpenPlace:
    """A place that is there.

    Attributes:
        shell: starts commands in it.
        commit: that stands there; empty for a folder that may hold anything.
    """

    shell: Shell
    commit: str = ""


class CheckPlace(Protocol):
    """Where a check runs."""

    def opened(self) -> AbstractAsyncContextManager[OpenPlace]:
        """Make the place; it is left behind clean.

        Raises:
            NoPlace: what is to be checked cannot be put there.
            CheckKilled: somebody else has ended what makes it.
            StoreError: the disk is full, …
        """
        ...


class ShellMaker(Protocol):
    """Makes what starts the commands of a check."""

    def __call__(self, folder: Path, lent: Iterable[Path] = ()) -> Shell:
        """Return what starts commands that work in a folder, and may only read some others."""
        ...


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """The workspace, where all teammates work in one."""

    folder: Path
    make_shell: ShellMaker

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenPlace]:
        """Return what starts commands there, see `CheckPlace`."""
        with closing(self.make_shell(self.folder)) as shell:
            yield OpenPlace(shell)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanClone:
    """A clone of a commit, made for one run; what is protected in it is as in the base.

    Attributes:
        folder: for this alone; all in it is removed.
        make_walled_shell: the same for git, in a sandbox however commands are run.
        commit: what is checked.
        repository: the folder of a repository that has it, which may be hostile; `None` where
            the objects of the base have it as well.
        base: a commit whose objects no teammate can write.
        base_objects: the folder of those.
        shallow: where the history of the base is cut off, as git notes it.
        protect: patterns of paths, as git's `glob` pathspecs are.
    """

    folder: Path
    make_shell: ShellMaker
    make_walled_shell: ShellMaker
    commit: str
    base: str
    base_objects: Path
    repository: Path | None = None
    shallow: bytes = b""
    protect: tuple[str, ...] = ()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenPlace]:
        """Clone it in the sandbox, see `CheckPlace`."""
        empty(self.folder)
        directories.make_private_directory(self.folder)
        try:
            files.replace(self.folder / "shallow", self.shallow, durable=False)
            # Shown as a whole: a link in it leads nowhere but in the sandbox.
            lent = filter(None, (self.repository, self.base_objects))
            with closing(self.make_walled_shell(self.folder, lent)) as git:
                await _run(git, self._script(), self.folder, "its commit could not be cloned")
            with closing(self.make_shell(self.folder / TREE, [self.base_objects])) as shell:
                yield OpenPlace(shell, self.commit)
        finally:
            empty(self.folder)

    def _script(self) -> str:
        for commit in (self.commit, self.base):
            if not _COMMIT.fullmatch(commit):
                raise NoPlace(f"{commit!r} is no commit; commit the work again")
        words = [shlex.quote(f":(top,glob){pattern}") for pattern in self.protect]
        protect = _PROTECT.format(base=self.base, patterns=" ".join(words)) if words else ""
        own = [self.repository / ".git/objects"] if self.repository else []
        objects = (*own, self.base_objects)
        clone = _CLONE + (_FETCH if own else "") + _READ
        script = clone.format(
            kind="sha256" if len(self.commit) == _SHA256_DIGITS else "sha1",
            objects=" ".join(shlex.quote(quote_objects(one)) for one in objects),
            base_objects=shlex.quote(quote_objects(self.base_objects)),
            commit=self.commit,
            base=self.base,
            tree=TREE,
        )
        return script + protect + _CHECK_OUT


async def commit_work(
    shell: Shell, folder: Path, subject: str, *, name: str, email: str, branch: str, base: str
) -> str:
    """Commit all that is not committed in a teammate's own clone; return the commit then.

    Its own settings and filters count: it is done with the rights of its commands, and no others.

    Args:
        shell: the teammate's, in its clone.
        folder: that clone.
        subject: of the commit.
        name: of its author.
        email: of its author.
        branch: that must be checked out.
        base: what it began with: of that are the repositories inside that need no file.

    Raises:
        NoPlace: git refuses it, or that would not be its work.
        CheckKilled: somebody else has ended git.
        StoreError: the disk is full.
    """
    identity = shlex.join(["-c", f"user.name={name}", "-c", f"user.email={email}"])
    script = _COMMIT_WORK.format(
        identity=identity,
        message=shlex.quote(subject),
        branch=shlex.quote(branch),
        base=shlex.quote(base),
    )
    said = await _run(shell, script, folder, "its work could not be committed")
    commit = said.splitlines()[-1] if said else ""
    if not _COMMIT.fullmatch(commit):
        raise NoPlace(f"git names no commit but {commit!r}; commit the work")
    return commit


def empty(folder: Path) -> None:
    """Remove a folder with all in it, whatever a command made of it.

    Raises:
        StoreError: something of it is left.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    for above, folders, _ in os.walk(folder):  # the sandbox may take rights from a folder
        for one in [Path(above), *(Path(above, name) for name in folders)]:
            with suppress(OSError):
                if not one.is_symlink():
                    one.chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        raise StoreError(f"{folder} cannot be emptied; remove it by hand")


async def _run(shell: Shell, script: str, folder: Path, trouble: str) -> str:
    output = Tail()
    status, why = await run_command(shell, script, seconds=_SECONDS, output=output)
    if status or why:
        check_space(folder, output.text().encode())
        said = " ".join(output.text().split())[-_MOST_SAID:]
        raise NoPlace(f"{trouble}: {why or said or f'git ended with exit status {status}'}")
    return output.text()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckShells:
    """Makes the shells of the check of one task; each has a new home, in which nothing is.

    Attributes:
        name: that their home and group of processes go by.
        tools: what the check may reach.
        owner_tools: what the owner of the task may.
        origin: the repository of the person's that is checked in a clone.
    """

    paths: TeamPaths
    name: str
    tools: ToolSettings
    owner_tools: ToolSettings
    probe: Probe
    origin: Origin | None = None

    @classmethod
    def of(
        cls, name: str, members: Sequence[str], settings: Settings, paths: TeamPaths, probe: Probe
    ) -> CheckShells:
        """Return those of a check.

        Args:
            name: that their home and group of processes go by.
            members: who wrote what it runs, its owner first: it reaches what the commands of all
                do. Without any it reaches what `[tools]` says.
            settings: those in force.
            paths: the team.
            probe: whether this machine can make a sandbox.
        """
        team = Roster(paths).read()
        found = [member for one in members if one and (member := team.find(one)) is not None]
        reach = [settings.tools_of(one.name, one.role) for one in found]
        owner = team.find(members[0]) if members and members[0] else None
        nobody = settings.tools_of("", "")
        return cls(
            paths=paths,
            name=name,
            tools=reduce(common_tool_settings, reach or [nobody]),
            owner_tools=_in_copy(settings, paths, owner) if owner else nobody,
            probe=probe,
        )

    def __call__(self, folder: Path, lent: Iterable[Path] = ()) -> Shell:
        """Return what starts a check in a folder."""
        return self._make(folder, self.tools, lent)

    def of_clone(self, origin: Origin) -> CheckShells:
        """Return those for clones of a repository, whose objects they may read."""
        return replace(self, origin=origin)

    def walled(self, folder: Path, lent: Iterable[Path] = ()) -> Shell:
        """Return what runs git in a folder, in a sandbox however commands are run."""
        return self._walled()._make(folder, _walled(self.tools), lent)

    def of_copy(self, copy: Copy) -> Shell:
        """Return what runs git in a working copy with the rights of its teammate, in a sandbox."""
        here = self._walled().of_clone(copy.origin)
        return here._make(copy.folder, _walled(self.owner_tools), owns_tree=True)

    def _walled(self) -> CheckShells:
        """Return the same where it is known whether there can be a sandbox, whatever is wanted."""
        tried = self.probe.program or self.probe.trouble
        return self if tried else replace(self, probe=probe([self.paths.home, self.paths.work]))

    def _make(
        self,
        folder: Path,
        tools: ToolSettings,
        lent: Iterable[Path] = (),
        *,
        owns_tree: bool = False,
    ) -> Shell:
        empty(self.paths.homes / self.name)
        policy = build_policy(
            self.paths,
            self.name,
            tools,
            workspace=folder,
            origin=self.origin,
            lent=lent,
            owns_tree=owns_tree,
        )
        make_home(policy, self.name)
        return build_shell_by(policy, self.paths, self.name, tools, self.probe)


def _in_copy(settings: Settings, paths: TeamPaths, owner: Member) -> ToolSettings:
    return settings.in_copy(paths.copy(owner.name)).tools_of(owner.name, owner.role)


def _walled(tools: ToolSettings) -> ToolSettings:
    return replace(tools, sandbox="auto") if tools.sandbox in WITHOUT else tools


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedWork:
    """A clean clone of what a teammate has committed by then.

    Attributes:
        name: the teammate's.
        subject: of the commit that it gets if it has uncommitted work.
        folder: for the clone alone.
        shells: make what starts commands.
        protect: patterns of paths that the clone has from the base of the copy.
    """

    paths: TeamPaths
    name: str
    subject: str
    folder: Path
    shells: CheckShells
    protect: tuple[str, ...] = ()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenPlace]:
        """Commit what there is, and clone it, see `CheckPlace`."""
        with locks.locked(record.lock_file(self.paths, self.name)):  # merging and discarding wait
            copy = self._find_copy()
            commit = await self._commit(copy)
        shells = self.shells.of_clone(copy.origin)
        clone = CleanClone(
            folder=self.folder,
            make_shell=shells,
            make_walled_shell=shells.walled,
            commit=commit,
            repository=copy.folder,
            base=copy.base,
            base_objects=copy.origin.objects,
            shallow=files.read(copy.origin.objects.parent / "shallow") or b"",
            protect=self.protect,
        )
        async with clone.opened() as place:
            yield place

    def _find_copy(self) -> Copy:
        try:
            return settle(self.paths, record.get(self.paths, self.name))
        except TeamError as error:
            raise NoPlace(str(error)) from error

    async def _commit(self, copy: Copy) -> str:
        with closing(self.shells.of_copy(copy)) as shell:
            return await commit_work(
                shell,
                copy.folder,
                self.subject,
                name=copy.name,
                email=copy.email,
                branch=copy.branch,
                base=copy.base,
            )
