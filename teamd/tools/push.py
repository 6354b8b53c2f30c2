"""The pushes of one teammate: its sandbox reaches no remote, so teamd pushes on its behalf."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from teamd.approvals.approval import Kind, Verdict
from teamd.approvals.store import Approvals
from teamd.copies import push, record
from teamd.copies.push import Push
from teamd.copies.source import Source, source_of
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.journal import Journal, LoggedEvent
from teamd.permissions.shell_syntax import parse
from teamd.settings import Settings
from teamd.settings.kinds import BRANCH
from teamd.tools import ToolError

# They change neither the commits nor the branch.
_HARMLESS: Final = frozenset(
    {"-u", "--set-upstream", "-q", "--quiet", "-v", "--verbose", "--progress", "--no-progress"}
    | {"--porcelain", "--no-verify", "--verify", "--no-follow-tags", "--no-force", "--"}
)
_MOST_SHOWN: Final = 200  # commits; a person must be able to look at them
_HEADS: Final = "refs/heads/"
_ONLY: Final = (
    "teamd pushes one branch at a time, without force, tags or deletions: "
    "`git push [REMOTE [BRANCH[:BRANCH]]]`"
)


@dataclass(frozen=True, slots=True)
class PushCommand:
    """The words of a `git push`.

    Attributes:
        remote: as it was named; empty for the usual one.
        own: the branch of the working copy, or HEAD.
        branch: the branch on the remote; empty for one of the same name.
    """

    remote: str = ""
    own: str = "HEAD"
    branch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushes:
    """The pushes of a teammate whose sandbox has no network.

    Attributes:
        shared: the shared folder, if it works there; `None` for a working copy.
        settings: those in force, which name the protected paths.
        tell: sends the person a sentence.
        ready: pushes that may be carried out, by the keys of their calls.
    """

    name: str
    paths: TeamPaths
    settings: Settings
    approvals: Approvals
    journal: Journal
    tell: Callable[[str], None]
    shared: Path | None = None
    ready: dict[str, Push] = field(default_factory=dict)

    def read(self, command: str) -> PushCommand | None:
        """Return a command that is a push to a remote of the person's repository and nothing else.

        Another push, for example to a path, runs in the sandbox like any command.

        Raises:
            ToolError: it asks for more than a plain push of one branch.
        """
        words = self._words(command)
        if words is None:
            return None
        names = [word for word in words if not word.startswith("-")]
        remote = names[0] if names else ""
        there = push.remotes_of(self._source)
        if (remote and remote not in there) or (self.shared and not there):
            return None
        if odd := [word for word in words if word.startswith("-") and word not in _HARMLESS]:
            raise ToolError(f"`git push {odd[0]}` is not possible here; {_ONLY}")
        if len(names) > 2:  # noqa: PLR2004 -- the remote and one refspec
            raise ToolError(f"{len(names) - 1} branches cannot be pushed at once; {_ONLY}")
        return _read_refspec(remote, names[1]) if names[1:] else PushCommand(remote)

    def prepare(self, command: PushCommand) -> Push:
        """Fetch and describe the commits to push.

        Raises:
            ToolError: there is nothing to push, or it must not be pushed.
        """
        facts = {"remote": command.remote, "own": command.own, "branch": command.branch}
        try:
            if self.shared is None:
                ready = push.prepare_copy(self.paths, self.name, self.settings, **facts)
            else:
                ready = push.prepare_branch(self.paths, self._source, **facts)
        except TeamError as error:
            raise ToolError(f"nothing was pushed: {error}") from error
        if ready.known:
            raise ToolError(f"{ready.remote} has all of {ready.branch} already: nothing to push")
        if (count := len(ready.commits)) > _MOST_SHOWN:
            raise ToolError(
                f"nothing was pushed: these are {count} commits, more than the person can look at "
                f"(at most {_MOST_SHOWN}); ask the person for `{self._command}`"
            )
        return ready

    def ask(self, ready: Push, request: str) -> str:
        """Return the question for the person."""
        branch = f"{ready.branch} of {ready.remote}"
        lines = [
            f"{self.name} asks to push {ready.summary} ({ready.url}):",
            *(f"    {line}" for line in ready.listing.split("\n")),
            f"`teamctl approve {request}` pushes exactly this, `teamctl reject {request}` refuses.",
            f"`teamctl approve {request} --always` also allows later pushes to {branch}.",
        ]
        if push.skips_hook(self._source):
            lines.append(f"Your pre-push hook does not run; it does with `{self._command}`.")
        return self.paths.add_team_option("\n".join(lines))

    async def carry_out(self, ready: Push) -> str:
        """Push, and tell the person; return the result for the model.

        Raises:
            ToolError: the remote did not accept it.
        """
        facts = {"remote": ready.remote, "branch": ready.branch, "commit": ready.commit}
        try:
            said = await push.run_beside(self.paths, self._source, ready)
        except TeamError as error:
            self.journal.note(LoggedEvent.PUSH, verdict="failed", why=str(error), **facts)
            again = f"`{self._command}` pushes from your terminal"
            self.tell(f"{self.name} could not push {ready.summary}: {error}; {again}")
            raise ToolError(f"nothing was pushed: {error}") from error
        self.journal.note(LoggedEvent.PUSH, verdict="pushed", **facts)
        self.tell(f"{self.name}: {said}")
        return said

    async def find_done(self, request: str) -> str:
        """Say how an approved push ended if its process was killed; empty without an approval."""
        asked = self.approvals.find(request)
        if asked is None or asked.type != Kind.PUSH or asked.status is not Verdict.APPROVED:
            return ""
        ready = Push.from_json(asked.extra)
        try:
            there = await push.look_beside(self.paths, self._source, ready)
        except TeamError as error:
            return f"teamd was stopped during the push, and its end is not known: {error}"
        if there:
            return f"teamd was stopped during the push, but it was done: {there}"
        return "teamd was stopped before the push was done: nothing was pushed; push again"

    @property
    def _source(self) -> Source:
        if self.shared is not None:
            return Source.of(self.shared, [self.paths.work])
        return source_of(record.get(self.paths, self.name))

    @property
    def _command(self) -> str:
        """The command with which the person can make the same push."""
        return "git push" if self.shared else f"teamctl push {self.name}"

    def _words(self, command: str) -> tuple[str, ...] | None:
        """Return the words after `git push`; `None` for any other command."""
        found = list(parse(command)) if "push" in command else []
        if len(found) > 1 and self._stays(found[0].words):
            del found[0]
        if len(found) != 1 or not found[0].plain or found[0].texts:
            return None
        words = [word for word in found[0].words if word is not None]
        if len(words) < len(found[0].words) or words[:2] != ["git", "push"]:
            return None
        return tuple(words[2:])

    def _stays(self, words: tuple[str | None, ...]) -> bool:
        """Return whether a command is a `cd` to the folder where commands start anyway."""
        here = os.path.realpath(self.shared or self.paths.copy(self.name))
        return len(words) == 2 and words[0] == "cd" and words[1] in (".", here)  # noqa: PLR2004


def _read_refspec(remote: str, given: str) -> PushCommand:
    """Read `BRANCH`, `HEAD`, or `BRANCH:BRANCH`.

    Raises:
        ToolError: it has another form.
    """
    if given.startswith("+"):
        raise ToolError(f"`{given}` would force the push; {_ONLY}")
    own, colon, branch = given.partition(":")
    own, branch = own.removeprefix(_HEADS), branch.removeprefix(_HEADS)
    own = "HEAD" if own in ("HEAD", "@") else own
    if colon and not branch:
        raise ToolError(f"`{given}` names no branch of the remote; {_ONLY}")
    for name in filter(None, (branch, own if own != "HEAD" else "")):
        if not BRANCH.fits(name):
            raise ToolError(f"`{name}` is not {BRANCH.must_be}; {_ONLY}")
    if not own:
        raise ToolError(f"`{given}` would delete a branch; {_ONLY}")
    return PushCommand(remote, own, branch)
