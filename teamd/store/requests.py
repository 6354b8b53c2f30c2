"""Requests to the supervisor and its answers: mail in one direction, a file of its own back."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from teamd import clocks
from teamd.errors import DeadlinePassed, ExitCode, NotAMessage, TeamError
from teamd.protocol import REQUEST_TYPE, TEAMD, USER, Message, is_moment, new_id
from teamd.store import files, running, trouble
from teamd.store.mailbox import Mailbox
from teamd.store.watch import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from teamd.store.paths import TeamPaths

KEPT_SECONDS: Final = 3600.0  # an answer that nobody came for
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something that the supervisor is asked to do, at most once and not after its deadline.

    Attributes:
        deadline: seconds since the epoch.
        boot: names the boot of the machine in which it was made, where known.
        uptime: the deadline by that boot's clock `elapsed`: it holds whatever clock is set.
    """

    command: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    deadline: float
    boot: str | None = None
    uptime: float = 0.0
    id: str = field(default_factory=new_id)
    sender: str = USER

    @classmethod
    def within(cls, seconds: float, command: str, **facts: Any) -> Request:
        """A request that is to be begun within so many seconds from now."""
        return cls(
            command=command,
            deadline=time.time() + seconds,
            boot=clocks.boot(),
            uptime=clocks.elapsed() + seconds,
            **facts,
        )

    @property
    def late(self) -> bool:
        """Whether its asker has given up."""
        if self.boot is not None and self.boot == clocks.boot():
            return clocks.elapsed() > self.uptime
        return time.time() > self.deadline

    @property
    def by_mail(self) -> bool:
        """Whether its asker is an agent that goes on meanwhile and reads the answer as mail."""
        return self.arguments.get("by_mail") is True and self.sender != USER

    def message(self) -> Message:
        """The request as mail to `teamd`."""
        extra: dict[str, Any] = {"arguments": dict(self.arguments), "deadline": self.deadline}
        if self.boot is not None:
            extra |= {"boot": self.boot, "uptime": self.uptime}
        return Message(
            id=self.id,
            type=REQUEST_TYPE,
            sender=self.sender,
            to=TEAMD,
            content=self.command,
            extra=extra,
        )

    @classmethod
    def of(cls, message: Message) -> Request:
        """Read a request from mail.

        Raises:
            NotAMessage: it has no deadline, no arguments, or an id that no reply file can have.
        """
        deadline = message.extra.get("deadline")
        arguments = message.extra.get("arguments", {})
        if not is_moment(deadline) or not isinstance(arguments, dict):
            raise NotAMessage("a request needs a deadline and arguments")
        if not _FILE_NAME.fullmatch(message.id):
            raise NotAMessage("a request needs an id that can be a file's name")
        boot, uptime = message.extra.get("boot"), message.extra.get("uptime")
        if not (isinstance(boot, str) and is_moment(uptime)):
            boot, uptime = None, 0.0  # from a foreign program
        return cls(
            id=message.id,
            sender=message.sender,
            command=message.content,
            arguments=arguments,
            deadline=float(deadline),
            boot=boot,
            uptime=float(uptime),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a request: a sentence, an exit code, and data for `--json`."""

    text: str
    exit_code: ExitCode = ExitCode.DONE
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def to_error(cls, error: TeamError) -> Answer:
        """The answer that says what went wrong."""
        return cls(text=str(error), exit_code=ExitCode(error.exit_code))

    def encode(self) -> bytes:
        """The content of a reply file."""
        document = {"text": self.text, "exit_code": int(self.exit_code), "data": dict(self.data)}
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> Answer:
        """Read a reply file."""
        found = json.loads(content)
        return cls(text=found["text"], exit_code=ExitCode(found["exit_code"]), data=found["data"])


def ask(
    paths: TeamPaths,
    command: str,
    arguments: Mapping[str, Any],
    *,
    timeout_seconds: float,
    request_id: str | None = None,
) -> Answer:
    """Have the running supervisor do something and wait for its answer.

    Raises:
        NoTeamd: none runs.
        DeadlinePassed: no answer came in time; the request will not be begun any more.
    """
    request = Request.within(
        timeout_seconds, command, arguments=arguments, id=request_id or new_id()
    )
    submit(paths, request)
    found = wait_for(
        paths.replies, lambda: collect(paths, request.id), timeout_seconds=timeout_seconds
    )
    if found is None:
        raise overdue(timeout_seconds)
    return found


def submit(paths: TeamPaths, request: Request) -> None:
    """Put a request where the running supervisor finds it.

    Raises:
        NoTeamd: none runs.
    """
    running.check(paths)
    Mailbox(paths, TEAMD, durable=False).put(request.message())


def collect(paths: TeamPaths, request_id: str) -> Answer | None:
    """Take the answer to a request, `None` where there is none yet.

    Raises:
        NoTeamd: the supervisor has died, so it is of no use to wait.
    """
    reply = _reply(paths, request_id)
    content = files.read(reply)
    if content is None:
        running.check(paths)
        return None
    files.remove(reply)
    return Answer.decode(content)


def overdue(seconds: float) -> DeadlinePassed:
    """The error of an answer that did not come in time."""
    return DeadlinePassed(
        f"teamd did not answer within {seconds:g} s; "
        "`teamctl logs teamd` shows what it does, `teamctl team` whether it was done"
    )


def answer(paths: TeamPaths, request_id: str, given: Answer) -> None:
    """Put the answer where its asker waits for it."""
    files.replace(_reply(paths, request_id), given.encode(), durable=False)


def sweep(paths: TeamPaths) -> None:
    """Remove answers that nobody came for."""
    with trouble.told(paths.replies):
        replies = list(paths.replies.glob("*.json"))
    for reply in replies:
        # Its asker may come for it after all, just now.
        with trouble.told(reply), suppress(FileNotFoundError):
            if time.time() - reply.stat().st_mtime > KEPT_SECONDS:
                reply.unlink()


def _reply(paths: TeamPaths, request_id: str) -> Path:
    return paths.replies / f"{request_id}.json"
