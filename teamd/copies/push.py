"""Pushes work of the team to a remote of the person's repository, with the person's rights.

The commits are first fetched into that repository, and its settings alone decide where a remote is.
Nothing is read from the settings of a working copy. A push names a commit, not a branch, so that
exactly the commits that were shown leave, and it is never forced.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote

from teamd.copies import copy_status, record
from teamd.copies.forbidden import CommitGate
from teamd.copies.move_branch import ref_of
from teamd.copies.record import check_object_id
from teamd.copies.sandboxed_git import open_sandboxed_git
from teamd.copies.source import Source, last_words, person_environment, source_of
from teamd.errors import TeamError
from teamd.files import locks
from teamd.files.paths import TeamPaths
from teamd.model_server.connection import without_login
from teamd.programs import Captured, capture, run_to_end
from teamd.sandbox.probe import trusted_path
from teamd.settings import Settings
from teamd.settings.kinds import BRANCH

MOST_COMMITS: Final = 10_000
_SECONDS: Final = 600.0
_SHORT: Final = 12
_LONGEST_SUBJECT: Final = 200  # characters; 200 of them must fit into a mail
_MOST_LINES: Final = 10  # of the server's words
# Also of submodules for which a .gitmodules of the shared folder says `ignore = all`.
_STAT: Final = (
    *("--stat=72", "--stat-count=40", "--no-ext-diff", "--no-textconv"),
    "--ignore-submodules=none",
)
# Only the branch and the commits that were shown: no tags, no submodules.
_PUSH: Final = ("push", "--porcelain", "--no-follow-tags", "--recurse-submodules=no")
_NO_LOGIN: Final = (
    "could not read Username",
    "could not read Password",
    "Authentication failed",
    "Permission denied",
    "Host key verification failed",
)
# Arguments: the branch, or HEAD. Prints the ref of the current branch, and the commit to push.
_RESOLVE: Final = """
git symbolic-ref -q HEAD || echo
if [ "$1" = HEAD ]; then own=HEAD; else own=refs/heads/$1; fi
git rev-parse --verify -q "$own^{commit}"
"""


class PushFailed(TeamError):
    """The remote has not taken the push; `str()` says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A push of one commit to one branch.

    Attributes:
        remote: its name in the person's repository.
        url: its address, without a login.
        branch: the branch on the remote.
        commits: the ids and subjects of the commits that the remote gets, as far as the person's
            repository knows, newest first.
        stat: the changed files, as `git diff --stat` shows them, below the number of commits that
            the branch gets and the remote has on other branches, if any.
        known: whether the remote has the commit already, as far as that repository knows.
    """

    remote: str
    url: str
    branch: str
    commit: str
    commits: tuple[tuple[str, str], ...]
    stat: str
    known: bool = False

    @property
    def summary(self) -> str:
        """The number of commits, the branch and the remote."""
        count = "1 commit" if len(self.commits) == 1 else f"{len(self.commits)} commits"
        return f"{count} to {self.branch} of {self.remote}"

    @property
    def listing(self) -> str:
        """The commits and the changed files, a line each."""
        commits = (f"{commit[:_SHORT]} {subject}" for commit, subject in self.commits)
        return "\n".join(filter(None, (*commits, self.stat)))

    def to_json(self) -> dict[str, Any]:
        commits = [{"commit": commit, "subject": subject} for commit, subject in self.commits]
        facts = {"remote": self.remote, "url": self.url, "branch": self.branch}
        facts |= {"commit": self.commit, "stat": self.stat}
        return {**facts, "commits": commits}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        commits = tuple((one["commit"], one["subject"]) for one in found["commits"])
        names = ("remote", "url", "branch", "commit", "stat")
        return cls(commits=commits, **{name: found[name] for name in names})


def remotes_of(source: Source) -> list[str]:
    """Return the names of a repository's remotes."""
    return source.ask("remote").split()


def find_remote(source: Source, name: str = "") -> str:
    """Return a remote of a repository: the named one, or the usual one.

    Raises:
        TeamError: it does not exist, or there are several and none is usual.
    """
    there = remotes_of(source)
    listed = ", ".join(there)
    if name:
        if name in there:
            return name
        known = f"there are: {listed}" if there else "`git remote add NAME URL` adds one"
        raise TeamError(f"{source.folder} has no remote {name!r}; {known}")
    if not there:
        raise TeamError(
            f"{source.folder} has no remote to push to; `git remote add origin URL` adds one"
        )
    usual = (source.ask("config", "remote.pushDefault"), "origin", *there[: len(there) == 1])
    found = next((one for one in usual if one in there), None)
    if found is None:
        raise TeamError(f"{source.folder} has several remotes; name one of: {listed}")
    return found


def prepare_copy(
    paths: TeamPaths,
    name: str,
    settings: Settings,
    *,
    remote: str = "",
    own: str = "HEAD",
    branch: str = "",
) -> Push:
    """Return the push of a teammate's commits, after fetching them into the person's repository.

    Args:
        paths: the team.
        name: the teammate.
        settings: those in force, which name the protected paths.
        remote: the name of the remote; empty for the usual one.
        own: the branch in the working copy, or HEAD.
        branch: the branch on the remote; empty for one of the same name.

    Raises:
        TeamError: the commit does not exist, or must not be pushed.
    """
    with locks.locked(record.lock_file(paths, name)):
        copy = record.get(paths, name)
        source = pushing(source_of(copy))
        remote = find_remote(source, remote)
        with open_sandboxed_git(paths, copy.folder, copy.origin) as git:
            done = git.run(_RESOLVE, own)
            current, _, commit = os.fsdecode(done.stdout).partition("\n")
            if done.status != 0:
                raise TeamError(f"{name}'s working copy has no branch {own!r} with a commit")
            commit = check_object_id(commit.strip())
            copy_status.fetch_commit(git, source, commit, [copy.base])
    gate = CommitGate(paths, settings, source)
    gate.check(copy.name, commit, copy.base)
    gate.check_history(copy.name, commit, copy.base)
    target = branch or (current.removeprefix("refs/heads/") if own == "HEAD" else own)
    if not target:
        raise TeamError(f"{name} has no branch checked out; name the branch to push to")
    return describe(source, commit, remote, target)


def prepare_branch(source: Source, own: str, remote: str = "", branch: str = "") -> Push:
    """Return the push of a branch of the person's repository, or of HEAD, see `prepare_copy`.

    Raises:
        TeamError: the branch does not exist.
    """
    source = pushing(source)
    commit = source.find(own if own == "HEAD" else ref_of(own))
    current = source.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    target = branch or (current if own == "HEAD" else own)
    if not commit:
        raise TeamError(f"{source.folder} has no branch {own} with a commit yet")
    if not target:
        raise TeamError(f"{source.folder} has no branch checked out; name the branch to push to")
    return describe(source, commit, find_remote(source, remote), target)


def pushing(source: Source) -> Source:
    """Return a repository as it is read for a push."""
    return replace(source, true_objects=True)


def describe(source: Source, commit: str, remote: str, branch: str) -> Push:
    """Describe the push of a commit that the person's repository has, without asking the remote.

    Args:
        source: the repository, see `pushing`.
        commit: the commit.
        remote: the name of a remote.
        branch: the branch there.

    Raises:
        TeamError: there are too many commits, or the branch has an odd name.
    """
    if not BRANCH.fits(branch):
        raise TeamError(f"{branch!r} cannot be pushed to: it must be {BRANCH.must_be}")
    prefix = f"refs/remotes/{remote}/"
    tracked = source.do("for-each-ref", "--format=%(refname) %(objectname)", prefix)
    known = dict(line.split(" ") for line in tracked.split("\n") if line)
    words = ("rev-list", f"--max-count={MOST_COMMITS + 1}", "--format=%H %s", "--encoding=UTF-8")
    said = source.do(*words, "--stdin", given=_range(commit, known.values()))
    lines = said.split("\n")[1::2]  # each is below a line with the commit alone
    if len(lines) > MOST_COMMITS:
        raise TeamError(
            f"{remote} lacks more than {MOST_COMMITS} commits of {branch}, as far as "
            f"{source.folder} knows; `git fetch {remote}` there may find them, or push the branch "
            "from which this work began first"
        )
    url = _find_url(source, remote, "--push")
    _check_place(source, remote, url)
    nearest = (known.get(f"{prefix}{branch}"), known.get(f"{prefix}HEAD"), *known.values())
    base = _find_base(source, commit, filter(None, nearest))
    stat = source.do("diff-tree", "-r", *_STAT, base, commit)
    if there := known.get(f"{prefix}{branch}"):
        count = int(source.do("rev-list", "--count", commit, f"^{there}")) - len(lines)
        more = "1 commit" if count == 1 else f"{count} commits"
        stat = f" and {more} of other branches of {remote}\n{stat}" if count else stat
    return Push(
        remote=remote,
        url=_one_line(without_login(url)),
        branch=branch,
        commit=commit,
        commits=tuple(
            (line.partition(" ")[0], _one_line(line.partition(" ")[2])[:_LONGEST_SUBJECT])
            for line in lines
        ),
        stat=stat,
        known=known.get(f"{prefix}{branch}") == commit,
    )


def _range(commit: str, known: Iterable[str]) -> bytes:
    """Return standard input for `rev-list`: the commits that the known ones do not have."""
    return "".join(f"{line}\n" for line in (commit, *(f"^{one}" for one in known))).encode()


def _find_base(source: Source, commit: str, known: Iterable[str]) -> str:
    """Return the commit to which the changed files are compared, or the empty tree."""
    found = (source.ask("merge-base", there, commit) for there in known)
    return next(filter(None, found), "") or source.do("hash-object", "-t", "tree", "--stdin")


def _one_line(text: str) -> str:
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def skips_hook(source: Source) -> bool:
    """Return whether the person has a pre-push hook, which only runs when they push themselves."""
    done = source.run("rev-parse", "--git-path", "hooks/pre-push", quiet=False)
    return os.access(source.folder / os.fsdecode(done.stdout).removesuffix("\n"), os.X_OK)


Steps = Generator[tuple[str, ...], Captured, str]  # yields commands of git


def run(source: Source, push: Push) -> str:
    """Push as the person does in a terminal, so that their hooks run; return a sentence.

    Raises:
        PushFailed: the remote has not taken it.
    """
    source = pushing(source)
    steps = _push(source, push)
    try:
        words = next(steps)
        while True:
            argv, env = source.command_line(*words, quiet=False)
            env = {**person_environment(), **env}
            words = steps.send(run_to_end(argv, timeout_seconds=_SECONDS, env=env))
    except StopIteration as end:
        return str(end.value)
    except OSError as error:  # includes TimeoutError
        raise PushFailed(f"git could not push to {push.remote}: {error}") from error


async def run_beside(source: Source, push: Push) -> str:
    """Push beside an asyncio loop, without hooks and without a question; return a sentence.

    Raises:
        PushFailed: the remote has not taken it.
    """
    source = pushing(source)
    return await _beside(source, push, _push(source, push))


async def look_beside(source: Source, push: Push) -> str:
    """Return the sentence that the remote has the commit; empty if it has not.

    Raises:
        PushFailed: the remote cannot be asked, or would not take the push.
    """
    source = pushing(source)
    return await _beside(source, push, _look(source, push))


async def _beside(source: Source, push: Push, steps: Steps) -> str:
    try:
        words = next(steps)
        while True:
            argv, env = source.command_line(*words)
            # An empty GIT_ASKPASS also stops git from asking by SSH_ASKPASS, in a window.
            env |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS_REQUIRE": "never"}
            env["PATH"] = os.pathsep.join(trusted_path(source.untrusted))  # git starts ssh
            words = steps.send(await capture(argv, timeout_seconds=_SECONDS, env=env, bound=True))
    except StopIteration as end:
        return str(end.value)
    except OSError as error:  # includes TimeoutError
        raise PushFailed(f"git could not push to {push.remote}: {error}") from error


def _look(source: Source, push: Push) -> Steps:
    """Return the sentence that the remote has the commit; empty if it has not.

    Raises:
        PushFailed: it would also get commits that were not shown, or would lose some.
    """
    pushed, fetched = _find_url(source, push.remote, "--push"), _find_url(source, push.remote)
    if (now := _one_line(without_login(pushed))) != push.url:
        raise PushFailed(f"{push.remote} is at {now} now, not at {push.url}; push again")
    place = push.remote if pushed == fetched else pushed
    listed = yield ("ls-remote", "--heads", "--", place)
    if listed.status != 0:
        raise PushFailed(_explain(push, listed))
    lines = (line.split("\t", 1) for line in os.fsdecode(listed.stdout).split("\n") if line)
    heads = {ref: check_object_id(commit) for commit, ref in lines}
    if _has(source, push, heads):
        return f"{push.branch} of {push.remote} has {push.commit[:_SHORT]} already"
    _check(source, push, heads)
    return ""


def _push(source: Source, push: Push) -> Steps:
    """Push, unless the remote has the commit already."""
    if there := (yield from _look(source, push)):
        return f"{there}; there was nothing to push"
    done = yield (*_PUSH, "--", push.remote, f"{push.commit}:{ref_of(push.branch)}")
    if done.status != 0:
        raise PushFailed(_explain(push, done))
    return "\n".join((f"pushed {push.summary}: {push.commit[:_SHORT]}", *_words_of_server(done)))


def _has(source: Source, push: Push, heads: Mapping[str, str]) -> bool:
    """Return whether a branch on the remote has the commit, as far as the repository knows."""
    there = heads.get(ref_of(push.branch), "")
    if there in ("", push.commit):
        return bool(there)
    return bool(source.find(there)) and source.holds(push.commit, within=there)


def _find_url(source: Source, remote: str, *options: str) -> str:
    """Return the address of a remote, after the person's `insteadOf`.

    Raises:
        PushFailed: there are several, and half a push would be neither done nor refused.
    """
    first, *more = source.do("remote", "get-url", *options, "--all", remote).split("\n")
    if more and options:
        raise PushFailed(f"{remote} has several push addresses; push with git in {source.folder}")
    return first


def _check_place(source: Source, remote: str, url: str) -> None:
    """Check that a remote on this machine is not in a folder where agents write.

    Its hooks run with the person's rights.

    Raises:
        TeamError: it is.
    """
    path = unquote(url.removeprefix("file://")) if url.startswith("file://") else url
    if ":" in path.partition("/")[0]:  # a server, as in `git@example.org:x.git` or `https://`
        return
    place = Path(os.path.realpath(source.folder / path))
    if any(place.is_relative_to(wall) for wall in source.untrusted):
        raise TeamError(
            f"{remote} is the folder {place}, where agents can write, and its hooks would run with "
            "your rights; move it out of there"
        )


def _check(source: Source, push: Push, heads: Mapping[str, str]) -> None:
    """Check that a push only adds commits that were shown.

    Raises:
        PushFailed: it would not.
    """
    names = "".join(f"{one}\n" for one in dict.fromkeys(heads.values())).encode()
    found = source.do("cat-file", "--batch-check=%(objectname) %(objecttype)", given=names)
    known = [line.split()[0] for line in found.split("\n") if line.endswith(" commit")]
    there = heads.get(ref_of(push.branch), "")
    if there and not (there in known and source.holds(there, within=push.commit)):
        raise PushFailed(
            f"{push.branch} of {push.remote} has commits that this work lacks, and nothing is "
            f"forced: after `git fetch {push.remote}`, `git merge {there[:_SHORT]}` adds them to it"
        )
    new = source.do("rev-list", "--stdin", given=_range(push.commit, known)).split()
    if more := {*new}.difference(commit for commit, _ in push.commits):
        raise PushFailed(
            f"{push.remote} no longer has {len(more)} commits that were not shown, and would get "
            f"them as well; nothing was pushed: `git fetch --prune {push.remote}`, and push again"
        )


def _explain(push: Push, done: Captured) -> str:
    """Return why a command of git about a remote failed."""
    said = without_login(last_words(done)).rstrip(".")
    for line in os.fsdecode(done.stdout).split("\n"):
        if line.startswith("!"):
            server = "; ".join(_words_of_server(done))
            return f"{push.remote} refused the push to {push.branch}: " + "; ".join(
                filter(None, (line.rpartition("\t")[2], server))
            )
    if any(words in said for words in _NO_LOGIN):
        return f"git could not log in to {push.remote}: {said}"
    return f"git could not push to {push.remote}: {said}"


def _words_of_server(done: Captured) -> list[str]:
    """Return the lines that the server sent, such as those of its hooks."""
    lines = done.stderr.decode(errors="replace").splitlines()
    said = (_one_line(line) for line in lines if line.startswith("remote:"))
    return [line for line in said if line != "remote:"][:_MOST_LINES]
