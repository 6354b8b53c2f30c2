"""The person's own repository, in which git runs with the person's rights and settings."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teamd import secret_environment
from teamd.copies.record import Copy, check_object_id
from teamd.errors import TeamError
from teamd.programs import Captured, run_to_end
from teamd.sandbox.policy import Origin
from teamd.sandbox.probe import find_program


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A commit to clone, and how its repository stores objects.

    Attributes:
        format: the hash format of the object names.
        shallow: the file that lists where a shallow history ends.
    """

    commit: str
    origin: Origin
    format: str
    shallow: Path


def read_head(source: Source) -> Head:
    """Return the current commit of a repository.

    Raises:
        TeamError: the repository cannot be copied; the sentence says why and what to do.
    """
    return _describe(source, source.find("HEAD"))


def head_at(source: Source, commit: str) -> Head:
    """Return a given commit of a repository.

    Raises:
        TeamError: as for `read_head`, or the commit does not exist.
    """
    words = ("rev-parse", "--verify", "--quiet", f"{check_object_id(commit)}^{{commit}}")
    return _describe(source, source.do(*words))


def _describe(source: Source, commit: str) -> Head:
    kind, *files = _look(source)
    objects, alternates, shallow = (source.folder / file for file in files)
    if alternates.exists() and alternates.stat().st_size:
        raise TeamError(
            f"the repository {source.folder} borrows objects itself, as {alternates} says; "
            "`git repack -a -d` and then removing that file makes it complete"
        )
    partial = r"^(extensions\.partialclone|remote\..*\.promisor)$"
    if source.ask("config", "--get-regexp", partial):
        raise TeamError(
            f"the repository {source.folder} is a partial clone, whose missing files no working "
            "copy could fetch; make a full clone of it"
        )
    if not commit:
        raise TeamError(
            f"the repository {source.folder} has no commit yet, and a working copy needs one; "
            "`git commit` makes it"
        )
    origin = Origin(folder=source.folder, objects=Path(os.path.realpath(objects)))
    return Head(commit=check_object_id(commit), origin=origin, format=kind, shallow=shallow)


def _look(source: Source) -> list[str]:
    """Return the object format, the paths of the objects and other files, and the root folder.

    Raises:
        TeamError: the folder is not a working tree, or not the root of one.
    """
    names = ("objects", "objects/info/alternates", "shallow")
    paths = [word for name in names for word in ("--git-path", name)]
    facts = ("--is-inside-work-tree", "--is-bare-repository", "--show-object-format")
    done = source.answer("rev-parse", *facts, *paths, "--show-toplevel")
    said = os.fsdecode(done.stdout).split("\n", len(facts) + len(names))
    if done.status != 0 and b"dubious ownership" in done.stderr:
        raise TeamError(
            f"the repository {source.folder} belongs to another user, so git refuses to use it; "
            f"`git config --global --add safe.directory {source.folder}` allows it"
        )
    if done.status != 0 or said[:2] != ["true", "false"]:
        raise TeamError(
            f"{source.folder} is no working tree of a git repository, so there can be no working "
            "copy of it; `git init` and a first commit make it one"
        )
    top = said[-1].removesuffix("\n")
    if Path(os.path.realpath(top)) != source.folder:
        raise TeamError(
            f"the workspace {source.folder} is a folder in the repository {top}, and a working "
            "copy is of a whole one; work there, or set [team] workspace to it"
        )
    return said[2:-1]


_BASES: Final = "refs/teamd/base"
_SHOWN: Final = "refs/teamd/shown"
_TRIED: Final = "refs/teamd/tried"
_UNDER_WAY: Final = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
)
_LONGEST_SECONDS: Final = 3600.0  # a hook may run the tests of the project
# Variables that name another repository, for example when a git hook called us.
_OF_REPOSITORY: Final = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE", "GIT_QUARANTINE_PATH", "GIT_CONFIG",
)  # fmt: skip
# For changes that the person did not request: their hooks do not expect those.
_QUIET: Final = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
    "-c", "submodule.recurse=false",  # submodules are not reset
)  # fmt: skip
# A few bytes of a pack can expand to more than the memory of the machine.
_BOUNDED: Final = ("/bin/sh", "-c", 'ulimit -d 4194304; exec "$@"', "sh")
_LEAN: Final = ("-c", "core.bigFileThreshold=16m")  # larger files are not read into memory
_TRUE_OBJECTS: Final = {
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",  # a partial clone contacts nobody
}  # fmt: skip
_NO_SUMMARIES: Final = (
    "-c", "core.commitGraph=false",
    "-c", "advice.graftFileDeprecated=false",  # because an empty graft file is used
)  # fmt: skip
_IN_ENGLISH: Final = {"LC_ALL": "C"}  # its messages are parsed here


class GitFailed(TeamError):
    """Git refused a request; `str()` contains its error output."""


class GitKilled(TeamError):
    """Git was killed or did not start, so its failure says nothing about the request."""


@dataclass(frozen=True, slots=True)
class Source:
    """A repository of the person's.

    Attributes:
        folder: its working tree.
        git: the program.
        untrusted: folders in which agents write, of which the working tree may be one.
        true_objects: whether git ignores grafts, replacements, see git-replace(1), and commit-graph
            files, which an agent in the shared folder can write.
        store: a folder; if given, git reads the objects in it instead of the repository's own, and
            the file `shallow` in it, see `teamd.copies.verified`.
    """

    folder: Path
    git: str
    untrusted: tuple[Path, ...] = ()
    true_objects: bool = False
    store: Path | None = None

    @classmethod
    def of(cls, folder: Path, untrusted: Iterable[Path] = ()) -> Source:
        """Return the repository in a folder, without checking that it is one.

        Args:
            folder: the person's folder.
            untrusted: folders in which agents write, so programs in them are not used.

        Raises:
            TeamError: git is not installed.
        """
        walls = (folder, *untrusted)
        git = find_program("git", walls)
        if git is None:
            raise TeamError("git is not installed, and working copies need it; install git")
        real = tuple(Path(os.path.realpath(wall)) for wall in walls)
        return cls(real[0], git, real)

    def command_line(
        self, *words: str, quiet: bool = True, lean: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        """Return the arguments and the environment of a git command.

        Args:
            words: the command.
            quiet: whether to disable hooks.
            lean: whether to bound its memory, for untrusted input.

        Raises:
            TeamError: a command has put a pipe or a link in place of a file that git reads, see
                `_check_files`.
        """
        _check_files(self.folder / ".git")
        options = (*(_QUIET if quiet else ()), *(_LEAN if lean else ()))
        options += _NO_SUMMARIES if self.true_objects else ()
        bounded = _BOUNDED if lean else ()
        env = environment() | (_IN_ENGLISH if quiet else {})
        if quiet and (own := self.plain_repository) is not None:
            # Overrides a `commondir` file from a command; relative to the folder where git starts.
            env["GIT_COMMON_DIR"] = own.name
        if self.true_objects:
            env |= _TRUE_OBJECTS
        if self.store is not None:
            env["GIT_OBJECT_DIRECTORY"] = str(self.store)
            env["GIT_SHALLOW_FILE"] = str(self.store / "shallow")
        return [*bounded, self.git, "-C", str(self.folder), *options, *words], env

    def run(
        self,
        *words: str,
        quiet: bool = True,
        given: bytes = b"",
        stdin: int | None = None,
        stdout: int | None = None,
    ) -> Captured:
        """Run a git command to its end.

        Args:
            words: the command.
            quiet: whether to disable hooks.
            given: its standard input as bytes.
            stdin: alternatively, a descriptor of its standard input, with untrusted content.
            stdout: a descriptor for its output; otherwise the output is returned.

        Raises:
            TeamError: it took too long or cannot be started, or a command has put a pipe or a link
                in place of a file that git reads, see `_check_files`.
        """
        argv, env = self.command_line(*words, quiet=quiet, lean=stdin is not None)
        try:
            return run_to_end(
                argv,
                timeout_seconds=_LONGEST_SECONDS,
                env=env,
                words=given,
                stdin=stdin,
                stdout=stdout,
            )
        except OSError as error:  # includes TimeoutError
            raise TeamError(f"git {words[0]} failed in {self.folder}: {error}") from error

    def answer(self, *words: str, given: bytes = b"", stdout: int | None = None) -> Captured:
        """Run a git command whose failure is a valid answer.

        Raises:
            GitKilled: git was killed.
            TeamError: git took too long or cannot be started.
        """
        done = self.run(*words, given=given, stdout=stdout)
        if done.status < 0:
            raise GitKilled(f"git {words[0]} was killed in {self.folder}; try again")
        return done

    def ask(self, *words: str) -> str:
        """Return the output of a git command, or an empty string if it fails.

        Raises:
            GitKilled: git was killed, so the answer is unknown.
        """
        done = self.answer(*words)
        return os.fsdecode(done.stdout).rstrip("\n") if done.status == 0 else ""

    def do(self, *words: str, given: bytes = b"", stdout: int | None = None) -> str:
        """Run a git command that must succeed; return its output.

        Raises:
            GitKilled: git was killed.
            GitFailed: it failed.
            TeamError: it took too long or cannot be started.
        """
        done = self.answer(*words, given=given, stdout=stdout)
        if done.status != 0:
            raise GitFailed(f"git {words[0]} failed in {self.folder}: {last_words(done)}")
        return os.fsdecode(done.stdout).rstrip("\n")

    def count_changes(self) -> int:
        """Return the number of uncommitted files, including untracked ones."""
        return len(self.ask("--no-optional-locks", "status", "--porcelain").splitlines())

    def find(self, name: str) -> str:
        """Return the commit of a ref or another name; empty if it does not exist."""
        return self.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")

    def holds(self, commit: str, *, within: str) -> bool:
        """Return whether a commit is in the history of another one.

        Raises:
            GitKilled: git was killed.
        """
        return self.answer("merge-base", "--is-ancestor", commit, within).status == 0

    def is_merging(self) -> bool:
        """Whether a merge, rebase or similar is under way in the working tree."""
        words = (word for name in _UNDER_WAY for word in ("--git-path", name))
        files = self.do("rev-parse", *words).split("\n")
        return any((self.folder / file).exists() for file in files)

    @property
    def index_lock(self) -> Path:
        """The index lock, which exists while git changes the index and after it was killed.

        Raises:
            TeamError: git cannot name the path.
        """
        return self.folder / self.do("rev-parse", "--git-path", "index.lock")

    def list_changes(self) -> list[str]:
        """Return the files in the working tree that differ from the commit.

        A submodule counts only if the person has staged it: git does not update its checkout, so it
        lags behind after a merge that moves it.
        """
        words = ("--porcelain", "-z", "--no-renames", "--untracked-files=no")
        changed = self.do("status", *words, "--ignore-submodules=all")
        names = ("--cached", "--name-only", "--no-renames", "-z")
        staged = self.do("diff-index", *names, "--ignore-submodules=dirty", "HEAD")
        found = [one[3:] for one in changed.split("\0") if one]
        return [*dict.fromkeys([*found, *filter(None, staged.split("\0"))])]

    def differences(self, one: str, other: str, *patterns: str, only: str = "") -> list[str]:
        """Return the files in which two commits differ.

        Args:
            one: a commit or tree.
            other: another commit or tree.
            patterns: pathspecs; none for all files.
            only: the kinds of differences that count, as for `--diff-filter`.

        Raises:
            TeamError: one of them does not exist.
        """
        words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", f"--diff-filter={only}")
        return [path for path in self.do(*words, one, other, "--", *patterns).split("\0") if path]

    def move_ref(self, ref: str, new: str, old: str | None = None) -> None:
        """Point a ref at a commit.

        Args:
            ref: the ref.
            new: the commit.
            old: the required present commit; zeros if the ref must not exist.

        Raises:
            TeamError: the ref points elsewhere, or cannot be written.
        """
        self.do("update-ref", "-m", "teamd", ref, new, *(() if old is None else (old,)))

    def check_writable(self, commit: str) -> None:
        """Check that refs can be written, without changing existing ones.

        Raises:
            TeamError: they cannot; for example, the disk is full or read-only.
        """
        self.move_ref(_TRIED, commit)
        self.remove_ref(_TRIED)

    def add_pack(self, pack: int) -> None:
        """Add the objects of a pack after checking them.

        Args:
            pack: a descriptor of the output of `git pack-objects`, possibly from a sandbox.

        Raises:
            TeamError: an object is invalid.
        """
        done = self.run("index-pack", "--stdin", "--fix-thin", "--strict", stdin=pack)
        if done.status != 0:
            raise TeamError(f"objects were refused in {self.folder}: {last_words(done)}")

    def remove_ref(self, ref: str) -> bool:
        """Remove a ref if it exists; return whether git succeeded."""
        return self.run("update-ref", "-d", ref).status == 0

    def pin(self, address: str, commit: str) -> None:
        """Protect the base of a teammate's copy from garbage collection."""
        self.move_ref(self.own_ref(_BASES, address), commit)

    def pin_shown(self, address: str, commit: str) -> None:
        """Protect the commit that a teammate was told to merge, which its copy only borrows."""
        self.move_ref(self.own_ref(_SHOWN, address), commit)

    def unpin(self, address: str) -> None:
        """Remove both refs of a teammate."""
        for folder in (_BASES, _SHOWN):
            self.remove_ref(self.own_ref(folder, address))

    @property
    def common_folder(self) -> Path:
        """The git folder that all working trees of the repository share.

        Raises:
            TeamError: git cannot name it.
        """
        return self.plain_repository or self.folder / self.do("rev-parse", "--git-common-dir")

    @property
    def plain_repository(self) -> Path | None:
        """The `.git` folder if it is an ordinary repository, which saves a call of git."""
        own = self.folder / ".git"
        usual = (own / "HEAD").is_file() and (own / "objects").is_dir() and (own / "refs").is_dir()
        return own if usual else None

    def own_ref(self, folder: str, address: str) -> str:
        """Return a team's ref; each working tree of a repository may have a team of that name."""
        if self.plain_repository is not None:
            return f"{folder}/{address}"
        here, _, common = self.ask("rev-parse", "--git-dir", "--git-common-dir").partition("\n")
        linked = here != common
        tree = re.sub(r"[^A-Za-z0-9]", "-", Path(here).name)
        return f"{folder}/{address}" + (f"+{tree}" if linked else "")


def _check_files(git: Path) -> None:
    """Check the files that git reads, because a command may have replaced one by a pipe or a link.

    Git would block on a pipe, or print parts of a link's target in its messages.

    Raises:
        TeamError: a file is not a regular file.
    """
    for name in ("HEAD", "index", "packed-refs", "shallow"):
        try:
            mode = os.lstat(git / name).st_mode
        except OSError:  # missing, or this is a linked working tree
            continue
        if not (stat.S_ISREG(mode) or (stat.S_ISLNK(mode) and name != "shallow")):
            raise TeamError(
                f"{git / name} is not a regular file, and git would read it; check and remove it"
            )


def source_of(copy: Copy) -> Source:
    """Return the repository from which a working copy was cloned.

    Raises:
        TeamError: it no longer exists.
    """
    if not copy.origin.folder.is_dir():
        raise TeamError(
            f"{copy.name}'s working copy is of {copy.origin.folder}, which is not there any more; "
            "move it back"
        )
    return Source.of(copy.origin.folder, [copy.folder.parent])


def environment() -> dict[str, str]:
    """Return the person's environment without secrets and variables that name a repository."""
    return secret_environment.split(person_environment())[0]


def person_environment() -> dict[str, str]:
    """Return the person's environment without variables that name a repository."""
    return {name: value for name, value in os.environ.items() if name not in _OF_REPOSITORY}


def last_words(done: Captured) -> str:
    """Return the end of git's error output on one line."""
    said = " ".join(done.stderr.decode(errors="replace").split())
    return said[-300:] or f"exit status {done.status}"
