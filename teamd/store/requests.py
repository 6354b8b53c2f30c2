"""Requests to the supervisor and its answers: mail in one direction, a file of its own back."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from teamd.errors import DeadlinePassed, ExitCode, NotAMessage, TeamError
from teamd.protocol import REQUEST_TYPE, TEAMD, USER, Message, is_moment, new_id
from teamd.store import files, running
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
    """

    command: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    deadline: float
    id: str = field(default_factory=new_id)
    sender: str = USER

    @property
    def late(self) -> bool:
        """Whether its asker has given up."""
        return time.time() > self.deadline

    def message(self) -> Message:
        """The request as mail to `teamd`."""
        extra = {"arguments": dict(self.arguments), "deadline": self.deadline}
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
        return cls(
            id=message.id,
            sender=message.sender,
            command=message.content,
            arguments=arguments,
            deadline=float(deadline),
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
    running.check(paths)
    deadline = time.time() + timeout_seconds
    request = Request(
        command=command, arguments=arguments, deadline=deadline, id=request_id or new_id()
    )
    Mailbox(paths, TEAMD, durable=False).put(request.message())
    reply = _reply(paths, request.id)
    content = wait_for(
        paths.replies, lambda: _answer_or_end(paths, reply), timeout_seconds=timeout_seconds
    )
    if content is None:
        raise DeadlinePassed(
            f"teamd did not answer within {timeout_seconds:g} s; "
            "`teamctl logs teamd` shows what it does, `teamctl team` whether it was done"
        )
    files.remove(reply)
    return Answer.decode(content)


def answer(paths: TeamPaths, request_id: str, given: Answer) -> None:
    """Put the answer where its asker waits for it."""
    files.replace(_reply(paths, request_id), given.encode(), durable=False)


def sweep(paths: TeamPaths) -> None:
    """Remove answers that nobody came for."""
    with files.told(paths.replies):
        replies = list(paths.replies.glob("*.json"))
    for reply in replies:
        # Its asker may come for it after all, just now.
        with files.told(reply), suppress(FileNotFoundError):
            if time.time() - reply.stat().st_mtime > KEPT_SECONDS:
                reply.unlink()


def _answer_or_end(paths: TeamPaths, reply: Path) -> bytes | None:
    content = files.read(reply)
    if content is None:
        running.check(paths)  # no use in waiting for one that has died
    return content


def _reply(paths: TeamPaths, request_id: str) -> Path:
    return paths.replies / f"{request_id}.json"
