"""Errors that reach a person: each is a sentence, the data behind it and an exit code."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """The exit status of a command, the same for `teamd` and `teamctl`."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    NO_TEAMD = 3
    DEADLINE = 4


class TeamError(Exception):
    """A failure that its reader can act on: `str()` is one line with the remedy."""

    exit_code = ExitCode.REFUSED

    def for_person(self) -> str:
        """Return the sentence for a person; agents have tools in place of commands."""
        return str(self)


class WrongUsage(TeamError):
    """A page action got an unusable value; nothing was done."""

    exit_code = ExitCode.USAGE


class BadName(TeamError):
    """The name is not valid for a teammate."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name!r} cannot be a teammate's name: {why}")


class BadTeamName(TeamError):
    """The name is not valid for a team."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} cannot be a team's name; "
            "use up to 64 of A-Z a-z 0-9 _ - with a letter or digit first"
        )


class UnknownTeam(TeamError):
    """No team of this project has the name."""

    def __init__(self, name: str, teams: Iterable[str]) -> None:
        names = ", ".join(teams)
        known = f"there are: {names}" if names else "there is none"
        super().__init__(f"no team named {name!r}; {known}; `teamctl create {name}` makes it")


class UnknownHost(TeamError):
    """No other known host of the team has the name."""

    def __init__(self, name: str, hosts: Iterable[str]) -> None:
        names = ", ".join(hosts)
        known = f"the others are: {names}" if names else "no other was heard of yet"
        super().__init__(f"no host named {name!r}; {known}; `teamctl hosts` shows them")


class UnknownTeammate(TeamError):
    """The roster does not contain the name."""

    def __init__(self, name: str, team: Iterable[str]) -> None:
        names = ", ".join(team)
        if "@" in name:  # mail and a few commands go to other teams and hosts
            known = "this is for teammates of this team on this host"
        else:
            known = f"the team is: {names}" if names else "the team is empty"
        super().__init__(f"no teammate named {name!r}; {known}")


class NotAMessage(TeamError):
    """The bytes or values are not a valid message; `str()` says why."""


class NoTeam(TeamError):
    """A team directory is needed and missing; `str()` says how to get one."""


class NoTeamd(TeamError):
    """The supervisor is needed and is not running."""

    exit_code = ExitCode.NO_TEAMD

    def __init__(self, team: Path) -> None:
        super().__init__(f"no teamd runs for {team}; start it with `teamd start`")


class DeadlinePassed(TeamError):
    """A request was not confirmed in time; it may still be carried out."""

    exit_code = ExitCode.DEADLINE


class SettingsError(TeamError):
    """All mistakes in a settings file."""

    def __init__(self, path: Path, mistakes: Sequence[str]) -> None:
        self.path = path
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(f"{path}: {mistake}" for mistake in mistakes))


class StoreError(TeamError):
    """A shared file could not be read or written; no half-written data is left."""


class StrangeFile(StoreError):
    """A file of the team is a link, a FIFO or another user's file."""

    def __init__(self, path: Path, what: str, remedy: str) -> None:
        super().__init__(f"{path} is {what}; {remedy}")


class Unsynced(StoreError):
    """A line was written, but the disk failed to confirm it; it may be lost."""

    def __init__(self, path: Path, why: str, *, ids: Sequence[str] = ()) -> None:
        again = f"`--id {ids[0]}`" if len(ids) == 1 else "the same id"
        super().__init__(
            f"the disk failed while {path} was written ({why}): what was sent may arrive or not; "
            f"look after the disk, then send it again with {again}, and it arrives once"
        )
        self.path = path
        self.why = why


class DamagedRoster(StoreError):
    """`config.json` exists but cannot be parsed.

    Attributes:
        why: the parse error.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged ({why}); mend it, or `teamd restart` rebuilds it")
        self.path = path
        self.why = why


class InboxFull(StoreError):
    """The inbox accepts no more mail until its owner has read some."""

    def __init__(self, owner: str, most: int) -> None:
        super().__init__(
            f"the inbox of {owner} is full: [mail] max_inbox_bytes, {most}, are reached; "
            f"send it again once {owner} has read its mail"
        )


class LockTimeout(StoreError):
    """Another process held a file's lock for longer than any of our operations takes."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(
            f"{path} has been locked by another program for {seconds:g} s; "
            f"`fuser {path}` names it: end it and try again"
        )
        self.path = path


def explain_limit(error: BaseException) -> str | None:
    """Return a sentence if the error is caused by a limit of the machine, otherwise `None`."""
    number, said = getattr(error, "errno", None), str(error)
    unforked = number == errno.EAGAIN and os.strerror(errno.EAGAIN) in said
    if unforked or "can't start new thread" in said:
        return (
            "no process or thread can be started, since the limit on processes is reached; "
            "raise `ulimit -u`, or the pids limit of the container"
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return "too many files are open; raise `ulimit -n`"
    unmapped = isinstance(error, ImportError) and "failed to map segment" in said
    if isinstance(error, MemoryError) or number == errno.ENOMEM or unmapped:
        return "memory has run out; raise `ulimit -v`, or the memory limit of the container"
    return None


class translate_os_errors:  # noqa: N801 -- read as a verb, like `suppress`
    """Turn an `OSError` about `path` into a `StoreError` with a remedy.

    This is a class because it wraps every file access, and a generator context manager takes three
    times as long.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise a `StoreError` if the block ended with an `OSError`."""
        if isinstance(error, OSError):
            raise StoreError(_sentence(error, self._path)) from error


def _sentence(error: OSError, path: Path) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return f"no space left for {path}; free some and try again"
        case errno.EACCES | errno.EPERM:
            return f"{path} may not be accessed ({error.strerror}); check its owner and mode"
        case errno.EROFS:
            return f"{path} is on a read-only file system; use a folder that can be written to"
        case errno.ENOENT | errno.ENOTDIR:
            return f"{path} has gone; is the team directory still there?"
        case errno.EMFILE | errno.ENFILE:
            return f"too many open files to open {path}; raise `ulimit -n`"
        case _:
            return f"{path}: {error.strerror or error}; `teamctl doctor` checks the machine"
