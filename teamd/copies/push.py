"""Pushes work of the team to a remote of the person's repository, with the person's rights.

The commits are first fetched into that repository, and its settings alone decide where a remote is.
Nothing is read from the settings of a working copy. A push names a commit, not a branch, so that
exactly the commits that were shown leave, and it is never forced. The commits that are shown and
compared to the remote are read from verified objects alone, see `teamd.copies.verified`.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote

from teamd.copies import copy_status, record
from teamd.copies.forbidden import CommitGate
from teamd.copies.move_branch import ref_of
from teamd.copies.record import check_object_id
from teamd.copies.sandboxed_git import open_sandboxed_git
from teamd.copies.source import Source, last_words, person_environment, source_of
from teamd.copies.verified import (
    add_changed_files,
    add_content,
    add_trees,
    find_commits,
    open_verified,
    range_of,
)
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


class NotShown(PushFailed):
    """The remote would get commits that were not shown."""


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
        base: the commit to which the changed files are compared; empty if there is none.
        known: whether the remote has the commit already, as far as that repository knows.
    """

    remote: str
    url: str
    branch: str
    commit: str
    commits: tuple[tuple[str, str], ...]
    stat: str
    base: str = ""
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
        facts |= {"commit": self.commit, "base": self.base, "stat": self.stat}
        return {**facts, "commits": commits}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        commits = tuple((one["commit"], one["subject"]) for one in found["commits"])
        names = ("remote", "url", "branch", "commit", "stat")
        facts = {name: found[name] for name in names}
        return cls(commits=commits, base=found.get("base", ""), **facts)


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
        source = source_of(copy)
        remote = find_remote(source, remote)
        with open_sandboxed_git(paths, copy.folder, copy.origin) as git:
            done = git.run(_RESOLVE, own)
            current, _, commit = os.fsdecode(done.stdout).partition("\n")
            if done.status != 0:
                raise TeamError(f"{name}'s working copy has no branch {own!r} with a commit")
            commit = check_object_id(commit.strip())
            copy_status.fetch_commit(git, source, commit, [copy.base])
    target = branch or (current.removeprefix("refs/heads/") if own == "HEAD" else own)
    if not target:
        raise TeamError(f"{name} has no branch checked out; name the branch to push to")
    with open_verified(paths, source, commit, [copy.base]) as store:
        new = (one.id for one in _list_new(store, commit, [copy.base]))
        add_trees(store, (commit, copy.base, *new))
        gate = CommitGate(paths, settings, store)
        gate.check(copy.name, commit, copy.base)
        gate.check_history(copy.name, commit, copy.base)
    return prepare_commit(paths, source, commit, remote, target)


def prepare_branch(
    paths: TeamPaths, source: Source, own: str, remote: str = "", branch: str = ""
) -> Push:
    """Return the push of a branch of the person's repository, or of HEAD, see `prepare_copy`.

    Raises:
        TeamError: the branch does not exist.
    """
    commit = source.find(own if own == "HEAD" else ref_of(own))
    current = source.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    target = branch or (current if own == "HEAD" else own)
    if not commit:
        raise TeamError(f"{source.folder} has no branch {own} with a commit yet")
    if not target:
        raise TeamError(f"{source.folder} has no branch checked out; name the branch to push to")
    return prepare_commit(paths, source, commit, find_remote(source, remote), target)


def prepare_commit(
    paths: TeamPaths, source: Source, commit: str, remote: str, branch: str, *, after: str = ""
) -> Push:
    """Describe the push of a commit that the person's repository has, without asking the remote.

    Args:
        paths: the team.
        source: the repository.
        commit: the commit.
        remote: the name of a remote.
        branch: the branch there.
        after: a commit which the remote must have; empty for none.

    Raises:
        TeamError: there are too many commits, objects are missing or altered, or the branch has an
            odd name.
    """
    if not BRANCH.fits(branch):
        raise TeamError(f"{branch!r} cannot be pushed to: it must be {BRANCH.must_be}")
    url = _find_url(source, remote, "--push")
    _check_place(source, remote, url)
    prefix = f"refs/remotes/{remote}/"
    tracked = source.do("for-each-ref", "--format=%(refname) %(objectname)", prefix)
    heads = dict(line.split(" ") for line in tracked.split("\n") if line)
    known = find_commits(source, filter(None, (*heads.values(), after)))
    there = heads.get(f"{prefix}{branch}", "")
    with open_verified(paths, source, commit, known) as store:
        listed = _list_new(store, commit, known)
        new = [one for one in listed if one.new]
        base = _find_base(store, commit, there, listed)
        stat = _describe_changes(store, commit, base, remote, len(new))
    return Push(
        remote=remote,
        url=_one_line(without_login(url)),
        branch=branch,
        commit=commit,
        commits=tuple((one.id, _one_line(one.subject)[:_LONGEST_SUBJECT]) for one in new),
        stat=stat,
        base=base,
        known=there == commit,
    )


@dataclass(frozen=True, slots=True)
class _Listed:
    """A commit that the remote gets, or one below those, which it has."""

    new: bool
    id: str
    when: int
    subject: str


def _list_new(store: Source, commit: str, known: Sequence[str]) -> list[_Listed]:
    """Return the commits that the known ones do not have, newest first, and their known parents.

    Raises:
        TeamError: there are more than `MOST_COMMITS`.
    """
    words = ("--boundary", f"--max-count={MOST_COMMITS + 1}", "--format=%m %H %ct %s")
    given = range_of([commit], known)
    said = store.do("rev-list", *words, "--encoding=UTF-8", "--stdin", given=given)
    lines = said.split("\n")[1::2]  # each is below a line with the commit alone
    found = (line.split(" ", 3) for line in lines)
    listed = [_Listed(mark != "-", one, int(when), text) for mark, one, when, text in found]
    if len([one for one in listed if one.new]) > MOST_COMMITS:
        raise TeamError(
            f"the remote lacks more than {MOST_COMMITS} of these commits, as far as {store.folder} "
            "knows; `git fetch` there may find them, or push the branch from which this work began "
            "first"
        )
    return listed


def _find_base(store: Source, commit: str, there: str, listed: Sequence[_Listed]) -> str:
    """Return the commit to which the changed files are compared; empty for none.

    The commit is that of the branch on the remote, or else the newest that the remote has.
    """
    if there and (found := store.ask("merge-base", there, commit)):
        return found
    if not listed:
        return commit
    return max(((one.when, one.id) for one in listed if not one.new), default=(0, ""))[1]


def _describe_changes(store: Source, commit: str, base: str, remote: str, new: int) -> str:
    """Return the changed files, see `Push.stat`."""
    old = base or store.do("hash-object", "-t", "tree", "--stdin")
    add_trees(store, (old, commit))
    add_changed_files(store, old, commit)
    stat = store.do("diff-tree", "-r", *_STAT, old, commit)
    count = int(store.do("rev-list", "--count", commit, f"^{base}")) - new if base else 0
    more = "1 commit" if count == 1 else f"{count} commits"
    return f" and {more} of other branches of {remote}\n{stat}" if count else stat


def _one_line(text: str) -> str:
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def skips_hook(source: Source) -> bool:
    """Return whether the person has a pre-push hook, which only runs when they push themselves."""
    done = source.run("rev-parse", "--git-path", "hooks/pre-push", quiet=False)
    return os.access(source.folder / os.fsdecode(done.stdout).removesuffix("\n"), os.X_OK)


# Yields commands of git, and the repository in which they run beside an agent.
Steps = Generator[tuple[Source, tuple[str, ...]], Captured, str]


def run(paths: TeamPaths, source: Source, push: Push) -> str:
    """Push as the person does in a terminal, so that their hooks run; return a sentence.

    Git reads the person's whole repository, as the hooks may.

    Raises:
        PushFailed: the remote has not taken it.
    """
    with closing(_push(paths, source, push, whole=False)) as steps:
        try:
            _, words = next(steps)
            while True:
                argv, env = source.command_line(*words, quiet=False)
                env = {**person_environment(), **env}
                done = run_to_end(argv, timeout_seconds=_SECONDS, env=env)
                _, words = steps.send(done)
        except StopIteration as end:
            return str(end.value)
        except OSError as error:  # includes TimeoutError
            raise PushFailed(f"git could not push to {push.remote}: {error}") from error


async def run_beside(paths: TeamPaths, source: Source, push: Push) -> str:
    """Push beside an asyncio loop, without hooks and without a question; return a sentence.

    Raises:
        PushFailed: the remote has not taken it.
    """
    return await _beside(push, _push(paths, source, push, whole=True))


async def look_beside(paths: TeamPaths, source: Source, push: Push) -> str:
    """Return the sentence that the remote has the commit; empty if it has not.

    Raises:
        PushFailed: the remote cannot be asked, or would not take the push.
    """
    return await _beside(push, _look(paths, source, push))


async def _beside(push: Push, steps: Steps) -> str:
    with closing(steps):
        try:
            source, words = next(steps)
            while True:
                argv, env = source.command_line(*words)
                # An empty GIT_ASKPASS also stops git from asking by SSH_ASKPASS, in a window.
                env |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": ""}
                env |= {"SSH_ASKPASS_REQUIRE": "never"}
                env["PATH"] = os.pathsep.join(trusted_path(source.untrusted))  # git starts ssh
                done = await capture(argv, timeout_seconds=_SECONDS, env=env, bound=True)
                source, words = steps.send(done)
        except StopIteration as end:
            return str(end.value)
        except OSError as error:  # includes TimeoutError
            raise PushFailed(f"git could not push to {push.remote}: {error}") from error


def _look(paths: TeamPaths, source: Source, push: Push) -> Steps:
    """Return the sentence that the remote has the commit; empty if it has not.

    Raises:
        PushFailed: it would also get commits that were not shown, or would lose some.
    """
    heads = yield from _ask_heads(source, push)
    known = find_commits(source, heads.values())
    with open_verified(paths, source, push.commit, known) as store:
        if not (there := _find_there(store, push, heads)):
            _check(store, push, heads, known)
    return there


def _push(paths: TeamPaths, source: Source, push: Push, *, whole: bool) -> Steps:
    """Push, unless the remote has the commit already.

    Args:
        paths: the team.
        source: the person's repository.
        push: the push.
        whole: whether git only gets verified objects, and so needs all of them.
    """
    heads = yield from _ask_heads(source, push)
    known = find_commits(source, heads.values())
    with open_verified(paths, source, push.commit, known) as store:
        if there := _find_there(store, push, heads):
            return f"{there}; there was nothing to push"
        listed = _check(store, push, heads, known)
        if whole:
            ends = [one.id for one in listed if not one.new]
            add_content(store, [one.id for one in listed if one.new], ends)
        done = yield (store, (*_PUSH, "--", push.remote, f"{push.commit}:{ref_of(push.branch)}"))
    if done.status != 0:
        raise PushFailed(_explain(push, done))
    return "\n".join((f"pushed {push.summary}: {push.commit[:_SHORT]}", *_words_of_server(done)))


def _ask_heads(
    source: Source, push: Push
) -> Generator[tuple[Source, tuple[str, ...]], Captured, dict[str, str]]:
    """Return the branches of the remote and their commits.

    Raises:
        PushFailed: the remote cannot be asked, or is elsewhere now.
    """
    pushed, fetched = _find_url(source, push.remote, "--push"), _find_url(source, push.remote)
    if (now := _one_line(without_login(pushed))) != push.url:
        raise PushFailed(f"{push.remote} is at {now} now, not at {push.url}; push again")
    place = push.remote if pushed == fetched else pushed
    listed = yield (source, ("ls-remote", "--heads", "--", place))
    if listed.status != 0:
        raise PushFailed(_explain(push, listed))
    lines = (line.split("\t", 1) for line in os.fsdecode(listed.stdout).split("\n") if line)
    return {ref: check_object_id(commit) for commit, ref in lines}


def _find_there(store: Source, push: Push, heads: Mapping[str, str]) -> str:
    """Return the sentence that a branch on the remote has the commit; empty if it has not."""
    there = heads.get(ref_of(push.branch), "")
    if there and (there == push.commit or store.holds(push.commit, within=there)):
        return f"{push.branch} of {push.remote} has {push.commit[:_SHORT]} already"
    return ""


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


def _check(
    store: Source, push: Push, heads: Mapping[str, str], known: Sequence[str]
) -> list[_Listed]:
    """Check that a push only adds commits that were shown; return them, see `_list_new`.

    Raises:
        PushFailed: it would not.
    """
    there = heads.get(ref_of(push.branch), "")
    if there and not store.holds(there, within=push.commit):
        raise PushFailed(
            f"{push.branch} of {push.remote} has commits that this work lacks, and nothing is "
            f"forced: after `git fetch {push.remote}`, `git merge {there[:_SHORT]}` adds them to it"
        )
    if there and push.base and not store.holds(push.base, within=there):
        raise PushFailed(
            f"{push.branch} of {push.remote} is not where the changes that were shown begin; "
            f"nothing was pushed: `git fetch {push.remote}`, and push again"
        )
    listed = _list_new(store, push.commit, known)
    shown = {commit for commit, _ in push.commits}
    if more := {one.id for one in listed if one.new} - shown:
        raise NotShown(
            f"{push.remote} no longer has {len(more)} commits that were not shown, and would get "
            f"them as well; nothing was pushed: `git fetch --prune {push.remote}`, and push again"
        )
    return listed


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
