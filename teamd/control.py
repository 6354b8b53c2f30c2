"""Requests from commands to the supervisor: a request is mail to `teamd`, its reply a file."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from teamd import clocks
from teamd.errors import (
    DeadlinePassed,
    ExitCode,
    NotAMessage,
    NoTeamd,
    TeamError,
    translate_os_errors,
)
from teamd.files import directories, files, pidfile
from teamd.files.paths import TeamPaths
from teamd.files.safe_open import check_folder
from teamd.files.watch import wait_for
from teamd.mail.mailbox import Mailbox
from teamd.messages import REQUEST_TYPE, TEAMD, USER, Message, is_moment, new_id

KEPT_SECONDS: Final = 3600.0  # for replies that were never collected
_FIRST_PAUSE_SECONDS: Final = 0.005
_LONGEST_PAUSE_SECONDS: Final = 0.1
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """A request to the supervisor. It runs at most once, and not after its deadline.

    Attributes:
        deadline: seconds since the epoch.
        boot: the boot id of the machine when the request was made, if known.
        uptime: the deadline on the clock `elapsed` of that boot, which cannot be set.
    """

    command: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    deadline: float
    boot: str | None = None
    uptime: float = 0.0
    id: str = field(default_factory=new_id)
    sender: str = USER

    @classmethod
    def within(cls, seconds: float, command: str, **values: Any) -> ControlRequest:
        """Make a request that must start within this many seconds."""
        due, uptime = time.time() + seconds, clocks.elapsed() + seconds
        return cls(command=command, deadline=due, boot=clocks.boot(), uptime=uptime, **values)

    @property
    def late(self) -> bool:
        """Whether the deadline has passed, so that the sender no longer waits.

        A request from an earlier boot counts as late. It may have been carried out already, because
        its receipt is not synced to disk.
        """
        if self.boot is None or clocks.boot() is None:
            return time.time() > self.deadline
        return self.boot != clocks.boot() or clocks.elapsed() > self.uptime

    @property
    def by_mail(self) -> bool:
        """Whether the sender is an agent, which does not wait and gets the reply as mail."""
        return self.flag("by_mail") and self.sender != USER

    def flag(self, key: str) -> bool:
        """Return whether an argument is `true`."""
        return self.arguments.get(key) is True

    def text(self, key: str) -> str:
        """Return an argument that must be a non-empty string.

        Raises:
            NotAMessage: it is missing, empty or not a string.
        """
        value = self.arguments.get(key)
        if not isinstance(value, str) or not value.strip():
            raise NotAMessage(f"a {key} is needed and must not be empty")
        return value

    @property
    def model(self) -> str | None:
        """The model in the arguments, if any.

        Raises:
            NotAMessage: it is not a string.
        """
        model = self.arguments.get("model")
        if not (model is None or isinstance(model, str)):
            raise NotAMessage("a model is named by a text")
        return model

    def encode(self) -> Message:
        """Return the request as mail to `teamd`."""
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
    def decode(cls, message: Message) -> ControlRequest:
        """Read a request from mail.

        Raises:
            NotAMessage: it has no deadline or arguments, or its id cannot be a file name.
        """
        deadline = message.extra.get("deadline")
        arguments = message.extra.get("arguments", {})
        if not is_moment(deadline) or not isinstance(arguments, dict):
            raise NotAMessage("a request needs a deadline and arguments")
        if not _FILE_NAME.fullmatch(message.id):
            raise NotAMessage("a request needs an id that can be a file's name")
        boot, uptime = message.extra.get("boot"), message.extra.get("uptime")
        if not (isinstance(boot, str) and is_moment(uptime)):
            boot, uptime = None, 0.0  # sent by another program
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
class ControlReply:
    """The reply to a request: a sentence, an exit code, and data for `--json`."""

    text: str
    exit_code: ExitCode = ExitCode.DONE
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_error(cls, error: TeamError) -> ControlReply:
        """Make the reply for an error."""
        return cls(text=str(error), exit_code=ExitCode(error.exit_code))

    def raise_unless_done(self) -> ControlReply:
        """Return the reply if its request succeeded.

        Raises:
            TeamError: the request was refused or failed.
        """
        if self.exit_code != ExitCode.DONE:
            raise TeamError(self.text)
        return self

    def encode(self) -> bytes:
        """Return the content of a reply file."""
        document = {"text": self.text, "exit_code": int(self.exit_code), "data": dict(self.data)}
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> ControlReply:
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
) -> ControlReply:
    """Send a request to the running supervisor and wait for its reply.

    Raises:
        NoTeamd: no supervisor is running.
        DeadlinePassed: no reply came in time; the request will not start later.
    """
    seconds, made = timeout_seconds, request_id or new_id()
    request = ControlRequest.within(seconds, command, arguments=arguments, id=made)
    submit(paths, request)
    found = wait_for(paths.replies, lambda: collect(paths, request.id), timeout_seconds=seconds)
    if found is None:
        raise overdue(seconds)
    return found


def submit(paths: TeamPaths, request: ControlRequest, *, durable: bool = False) -> None:
    """Put a request into the inbox of the running supervisor.

    Args:
        paths: the team.
        request: the request.
        durable: whether to sync it to disk, for a sender that neither waits nor asks again.

    Raises:
        NoTeamd: no supervisor is running.
    """
    pidfile.check(paths)
    Mailbox(paths, TEAMD, durable=durable).put(request.encode())


def collect(paths: TeamPaths, request_id: str) -> ControlReply | None:
    """Return and remove the reply to a request; `None` if it has not arrived.

    Raises:
        NoTeamd: the supervisor has died, so no reply will come.
    """
    file = _reply_file(paths, request_id)
    content = files.read(file)
    if content is None:
        try:
            pidfile.check(paths)
        except NoTeamd:
            if (content := files.read(file)) is None:  # it may have replied just before it ended
                raise
        else:
            return None
    files.remove(file)
    return ControlReply.decode(content)


def overdue(seconds: float) -> DeadlinePassed:
    """Make the error for a reply that did not come in time."""
    return DeadlinePassed(
        f"teamd did not answer within {seconds:g} s; "
        "`teamctl logs teamd` shows what it does, `teamctl team` whether it was done"
    )


class Asking:
    """The supervisor, as one teammate asks it from its event loop."""

    def __init__(self, paths: TeamPaths, sender: str) -> None:
        self._paths = paths
        self._sender = sender

    async def ask(
        self,
        command: str,
        arguments: Mapping[str, Any],
        *,
        key: str,
        timeout_seconds: float = 30.0,
        enough: Container[ExitCode] = (ExitCode.DONE,),
    ) -> ControlReply:
        """Ask the supervisor to run a command, and wait for the answer.

        Args:
            command: as the supervisor knows it.
            arguments: of the command.
            key: the tool call's. A call that is repeated after a crash gets the first answer.
            timeout_seconds: how long to wait.
            enough: an answer with this text is not an error.

        Raises:
            TeamError: it was refused, or there was no answer in time.
        """
        import asyncio  # noqa: PLC0415 -- 40 ms, which short commands of a person do not spend

        request = ControlRequest.within(
            timeout_seconds, command, arguments=arguments, id=key, sender=self._sender
        )
        found = collect(self._paths, request.id)
        if found is None:
            submit(self._paths, request)
        pause, until = _FIRST_PAUSE_SECONDS, time.monotonic() + timeout_seconds
        while found is None:
            if time.monotonic() > until:
                raise overdue(timeout_seconds)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            found = collect(self._paths, request.id)
        if found.exit_code not in enough:
            raise TeamError(found.text)
        return found

    def begin(
        self, command: str, arguments: Mapping[str, Any], *, key: str, seconds: float
    ) -> None:
        """Start a command whose end is reported in another way.

        Raises:
            NoTeamd: teamd does not run.
        """
        request = ControlRequest.within(
            seconds, command, arguments=arguments, id=key, sender=self._sender
        )
        submit(self._paths, request, durable=True)


def reply(paths: TeamPaths, request_id: str, given: ControlReply) -> None:
    """Write the reply file that the sender waits for."""
    with translate_os_errors(paths.replies):
        check_folder(paths.replies)
    files.replace(_reply_file(paths, request_id), given.encode(), durable=False)


def sweep(paths: TeamPaths) -> None:
    """Remove old replies that were never collected."""
    replies = directories.list_files(paths.replies, "*.json")
    for file in directories.older(replies, seconds=KEPT_SECONDS):
        files.remove(file)


def _reply_file(paths: TeamPaths, request_id: str) -> Path:
    return paths.replies / f"{request_id}.json"
