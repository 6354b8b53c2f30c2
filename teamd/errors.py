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
    """A failure that its reader can act on: `str()` is one line that says what to do."""

    exit_code = ExitCode.REFUSED

    def for_person(self) -> str:
        """Return the sentence for a person, who has commands where an agent has tools."""
        return str(self)


class WrongUsage(TeamError):
    """A value that an action of the page cannot use; nothing was done."""

    exit_code = ExitCode.USAGE


class BadName(TeamError):
    """A name that no teammate can have."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name!r} cannot be a teammate's name: {why}")


class BadTeamName(TeamError):
    """A name that no team can have."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} cannot be a team's name; "
            "take up to 64 of A-Z a-z 0-9 _ - with a letter or digit first"
        )


class UnknownTeam(TeamError):
    """A name that no team here has."""

    def __init__(self, name: str, teams: Iterable[str]) -> None:
        names = ", ".join(teams)
        known = f"there are: {names}" if names else "there is none"
        super().__init__(f"no team named {name!r}; {known}; `teamctl create {name}` makes it")


class UnknownHost(TeamError):
    """A name that no other host of the team has, as far as is known here."""

    def __init__(self, name: str, hosts: Iterable[str]) -> None:
        names = ", ".join(hosts)
        known = f"the others are: {names}" if names else "no other was heard of yet"
        super().__init__(f"no host named {name!r}; {known}; `teamctl hosts` shows them")


class UnknownTeammate(TeamError):
    """A name that is in no roster."""

    def __init__(self, name: str, team: Iterable[str]) -> None:
        names = ", ".join(team)
        if "@" in name:  # mail and a few commands go to other teams and hosts
            known = "this is for teammates of this team on this host"
        else:
            known = f"the team is: {names}" if names else "the team is empty"
        super().__init__(f"no teammate named {name!r}; {known}")


class NotAMessage(TeamError):
    """Bytes or values that are no message; `str()` says why."""


class NoTeam(TeamError):
    """No team directory where one is needed; `str()` says how to get one."""


class NoTeamd(TeamError):
    """The supervisor is needed and does not run."""

    exit_code = ExitCode.NO_TEAMD

    def __init__(self, team: Path) -> None:
        super().__init__(f"no teamd runs for {team}; start it with `teamd start`")


class DeadlinePassed(TeamError):
    """A request was not done in time; whether it still happens is not known."""

    exit_code = ExitCode.DEADLINE


class SettingsError(TeamError):
    """The mistakes in a settings file, in one go."""

    def __init__(self, path: Path, mistakes: Sequence[str]) -> None:
        self.path = path
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(f"{path}: {mistake}" for mistake in mistakes))


class StoreError(TeamError):
    """A shared file that could not be read or written; nothing half-written is left."""


class StrangeFile(StoreError):
    """Something else stands in a file's place: a link, a FIFO, another user's file."""

    def __init__(self, path: Path, what: str, remedy: str) -> None:
        super().__init__(f"{path} is {what}; {remedy}")


class Unsynced(StoreError):
    """A line was written, and the disk failed to confirm it: whether it lasts is not known."""

    def __init__(self, path: Path, why: str, *, ids: Sequence[str] = ()) -> None:
        again = f"`--id {ids[0]}`" if len(ids) == 1 else "the same id"
        super().__init__(
            f"the disk failed while {path} was written ({why}): what was sent may arrive or not; "
            f"look after the disk, then send it again with {again}, and it arrives once"
        )
        self.path = path
        self.why = why


class DamagedRoster(StoreError):
    """`config.json` is there and cannot be understood.

    Attributes:
        why: what is wrong with it.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged ({why}); mend it, or `teamd restart` rebuilds it")
        self.path = path
        self.why = why


class InboxFull(StoreError):
    """An inbox that takes no more mail until its owner has read some."""

    def __init__(self, owner: str, most: int) -> None:
        super().__init__(
            f"the inbox of {owner} is full: [mail] max_inbox_bytes, {most}, are reached; "
            f"send it again once {owner} has read its mail"
        )


class LockTimeout(StoreError):
    """Another process holds a file's lock for longer than anything here does."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(
            f"{path} has been locked by another program for {seconds:g} s; "
            f"`fuser {path}` names it: end it and try again"
        )
        self.path = path


def explain_limit(error: BaseException) -> str | None:
    """Return the sentence for an error that a limit of the machine has caused; else `None`."""
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
    """Turns an `OSError` about `path` into a `StoreError` whose sentence says what to do.

    It stands around every look at a file, so it is no generator: that takes three times as long.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Translate what ended the block, if that is an `OSError`."""
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
