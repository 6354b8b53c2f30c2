"""The places in which checks run: the folder that teammates share, or a clean clone of a commit."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Final

from teamd.checks.commands import Tail, run_command
from teamd.copies import record
from teamd.copies.clone import settle
from teamd.copies.record import Copy
from teamd.copies.sandboxed_git import check_space, quote_objects
from teamd.errors import StoreError, TeamError
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.sandbox import WITHOUT
from teamd.sandbox.build import build_policy, build_shell_by
from teamd.sandbox.policy import Origin
from teamd.sandbox.probe import Probe, probe
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

# Only settings, hooks, filters and templates of the new repository apply, so it runs no code of the
# teammate's. Objects in a teammate's repository may have false names. So they are packed and
# indexed again, and the base is read from objects that teammates cannot write.
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
# Removes all files that match, and restores those of the base; a link in place of a folder is
# replaced.
_PROTECT: Final = """\
GIT_INDEX_FILE=.git/base git read-tree {base}
git ls-files -z -- {patterns} | git update-index -z --force-remove --stdin
GIT_INDEX_FILE=.git/base git ls-files -s -z -- {patterns} |
  git update-index -z --index-info
rm .git/base
"""
_CHECK_OUT: Final = "git checkout-index -a -f -q\n"
# A killed run leaves its mark, and maybe locks. `git add` would mark conflicts as resolved.
_COMMIT_WORK: Final = """\
set -e
# It fails if a folder vanishes under it.
pipe=$(find . '(' -path './.git/*' -o -name '.git*' ')' -type p -print -quit 2> /dev/null) || true
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
for try in 1 2 3 4 5; do  # somebody may still write here, and git fails when a file vanishes
  if said=$(git -c advice.addEmbeddedRepo=false add -A . ':(exclude,glob)**/{aside}' 2>&1); then
    break
  elif [ $try = 5 ]; then
    echo "$said"
    exit 1
  fi
done
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
    """A place could not be prepared; the message says what to do."""


@dataclass(frozen=True, slots=True)
class OpenPlace:
    """A place that is prepared.

    Attributes:
        shell: starts commands in it.
        commit: the commit that is checked out; empty for the shared folder.
    """

    shell: Shell
    commit: str = ""


# Makes a shell in a folder, which may also read other folders.
ShellMaker = Callable[[Path, Iterable[Path]], Shell]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanClone:
    """A clone of a commit for one run, with the protected files of the base.

    Attributes:
        folder: for the clone alone; all files in it are removed.
        make_walled_shell: makes the shell for git, always in a sandbox.
        commit: the commit to check.
        repository: the folder of a repository with the commit, which may be hostile; `None` if
            `base_objects` contains it.
        base: a commit whose objects teammates cannot write.
        base_objects: the folder of the base's objects.
        shallow: the content of git's `shallow` file for the base.
        protect: patterns of paths in the form of git's `glob` pathspecs.
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
        """Clone it in the sandbox, and remove the clone at the end.

        Raises:
            NoPlace: the commit cannot be cloned.
            CheckKilled: git was killed from outside.
            StoreError: such as a full disk.
        """
        empty(self.folder)
        directories.make_private_directory(self.folder)
        try:
            files.replace(self.folder / "shallow", self.shallow, durable=False)
            # Mounted as a whole: links in it are resolved in the sandbox.
            lent = [one for one in (self.repository, self.base_objects) if one]
            git = self.make_walled_shell(self.folder, lent)
            await _run(git, self._script(), self.folder, "its commit could not be cloned")
            shell = self.make_shell(self.folder / TREE, [self.base_objects])
            yield OpenPlace(shell, self.commit)
        finally:
            empty(self.folder)

    def _script(self) -> str:
        for commit in (self.commit, self.base):
            if not _COMMIT.fullmatch(commit):
                raise NoPlace(f"{commit!r} is not a commit id; commit the work again")
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
    """Commit all changes in a teammate's own clone; return the resulting commit.

    The clone's settings and filters apply, with the rights of the teammate's commands.

    Args:
        shell: the teammate's, in its clone.
        folder: the clone.
        subject: of the commit.
        name: of its author.
        email: of its author.
        branch: the branch that must be checked out.
        base: the commit from which the clone was made; its submodules may be missing.

    Raises:
        NoPlace: git refuses the commit, or another branch is checked out.
        CheckKilled: git was killed from outside.
        StoreError: the disk is full.
    """
    identity = shlex.join(["-c", f"user.name={name}", "-c", f"user.email={email}"])
    script = _COMMIT_WORK.format(
        identity=identity,
        message=shlex.quote(subject),
        branch=shlex.quote(branch),
        base=shlex.quote(base),
        aside=directories.ASIDE,
    )
    said = await _run(shell, script, folder, "its work could not be committed")
    commit = said.splitlines()[-1] if said else ""
    if not _COMMIT.fullmatch(commit):
        raise NoPlace(f"git printed this in place of a commit id: {commit!r}; commit the work")
    return commit


def empty(folder: Path) -> None:
    """Remove a folder and its content, even without permissions on it.

    Raises:
        StoreError: a part of it is left.
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
    """Makes the shells of one check, each with an empty home.

    Attributes:
        name: of their home and control group.
        tools: the permissions of the check.
        owner_tools: the permissions of the task's owner.
        origin: the person's repository, for a check in a clone.
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
        """Return the shells of a check.

        Args:
            name: of their home and control group.
            members: the authors of the check's code, first the owner. The check has the permissions
                that all of them have, or those of `[tools]`.
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
        """Return the shell of a check in a folder."""
        return self._make(folder, self.tools, lent)

    def of_clone(self, origin: Origin) -> CheckShells:
        """Return shells that may also read the objects of a repository."""
        return replace(self, origin=origin)

    def walled(self, folder: Path, lent: Iterable[Path] = ()) -> Shell:
        """Return a shell for git in a folder, always in a sandbox."""
        return self._walled()._make(folder, _walled(self.tools), lent)

    def of_copy(self, copy: Copy) -> Shell:
        """Return a shell for git in a working copy, with its teammate's rights, in a sandbox."""
        here = self._walled().of_clone(copy.origin)
        return here._make(copy.folder, _walled(self.owner_tools), owns_tree=True)

    def _walled(self) -> CheckShells:
        """Return the same shells, with the sandbox probed even if the settings disable it."""
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


@asynccontextmanager
async def open_committed_work(
    paths: TeamPaths,
    name: str,
    subject: str,
    *,
    folder: Path,
    shells: CheckShells,
    protect: tuple[str, ...] = (),
) -> AsyncIterator[OpenPlace]:
    """Commit the work of a teammate in its copy, and yield a clean clone of it.

    Args:
        paths: the team.
        name: the name of the teammate.
        subject: the subject of the commit.
        folder: for the clone alone.
        shells: of the check.
        protect: patterns of paths that the clone takes from the base of the copy.

    Raises:
        NoPlace: the work cannot be put there.
        CheckKilled: git was killed from outside.
        StoreError: such as a full disk.
    """
    with locks.locked(record.lock_file(paths, name)):  # merging and discarding wait
        try:
            copy = settle(paths, record.get(paths, name))
        except TeamError as error:
            raise NoPlace(str(error)) from error
        commit = await commit_work(
            shells.of_copy(copy),
            copy.folder,
            subject,
            name=copy.name,
            email=copy.email,
            branch=copy.branch,
            base=copy.base,
        )
    shells = shells.of_clone(copy.origin)
    clone = CleanClone(
        folder=folder,
        make_shell=shells,
        make_walled_shell=shells.walled,
        commit=commit,
        repository=copy.folder,
        base=copy.base,
        base_objects=copy.origin.objects,
        shallow=files.read(copy.origin.objects.parent / "shallow") or b"",
        protect=protect,
    )
    async with clone.opened() as place:
        yield place
