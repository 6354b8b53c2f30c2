"""Notices to the person, with the commands that answer them.

`team`, `status`, `top`, `web`, `chat`, `requests`, `doctor` and mail render these.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from teamd import __version__
from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.mail.lines import explain_rejected
from teamd.messages import LEAD
from teamd.overview.members import OUTAGE_SECONDS, MemberView, OpenRequest, find_failing
from teamd.team.member import Member
from teamd.team.states import Status

_WORDS: Final = 100  # characters of the lead's last words
_LONGEST: Final = 300  # characters of a request; `teamctl requests` shows the rest


class NoticeKind(StrEnum):
    """The kinds of notices, in the order of their urgency."""

    WAITING = "waiting"  # a request waits for the person's answer
    FAILED = "failed"
    PAUSED = "paused"
    OUTAGE = "outage"  # the server of the model has failed for a minute; the tries go on
    TEAMD = "teamd"  # no teamd runs
    VERSION = "version"  # the running teamd is of another version than this command
    STALLED = "stalled"  # tasks are in progress, but nobody works
    UNMERGED = "unmerged"  # the queue could not merge work, and nobody works
    REJECTED = "rejected"  # lines of an inbox are not messages
    MAIL = "mail"
    FINISHED = "finished"  # the work is done, and the person has not looked since


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that needs a person.

    Attributes:
        about: the teammate that it is about; empty for the team.
        text: one line.
        commands: the answers to it, the usual one first.
        effect: a verb phrase for the first command; empty if the text says that, or for a request.
        request: the id of the request.
        time: since when, in seconds since the epoch, if known.
    """

    kind: NoticeKind
    text: str
    commands: tuple[str, ...]
    effect: str = ""
    about: str = ""
    request: str | None = None
    time: float | None = None

    @property
    def command(self) -> str:
        """The usual answer."""
        return self.commands[0]

    @property
    def lines(self) -> list[str]:
        """The notice as a person reads it, with its commands."""
        if self.kind is NoticeKind.WAITING:
            return [self.text, "  " + " or ".join(f"`{command}`" for command in self.commands)]
        return [f"{self.text}; `{self.command}` {self.effect}" if self.effect else self.text]

    def to_json(self) -> dict[str, Any]:
        """The notice as `--json` shows it."""
        return {
            "kind": self.kind,
            "text": self.text,
            "name": self.about,
            "id": self.request,
            "time": self.time,
            "command": self.command,
            "commands": list(self.commands),
        }


def describe_request(request: OpenRequest) -> Notice:
    """Return the notice that a request waits for the person."""
    asked, text = request.approval, request.sentence
    return Notice(
        NoticeKind.WAITING,
        text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… (`teamctl requests` shows it)",
        (request.approve, request.reject),
        about=asked.asker,
        request=asked.id,
        time=asked.asked,
    )


def describe_stopped(paths: TeamPaths, members: Iterable[MemberView]) -> list[Notice]:
    """Return a notice for each failed or paused member, the failed ones first."""
    views = [view for view in members if view.state in (Status.FAILED, Status.PAUSED)]
    views.sort(key=lambda view: view.state)
    return [describe_member(paths, view.member, view.since) for view in views]


def describe_outages(paths: TeamPaths, members: Iterable[MemberView]) -> Iterator[Notice]:
    """Yield a notice for each cause for which calls of the model have failed for a minute."""
    for calls in find_failing(members):
        if calls.is_outage:
            minutes = int((time.time() - calls.since) / OUTAGE_SECONDS)
            who = ", ".join(calls.names)
            text = f"calls of the model have failed for {minutes} min ({who}): {calls.cause}"
            yield Notice(
                NoticeKind.OUTAGE,
                text,
                (paths.team_command("teamctl doctor"),),
                effect="checks the server",
                time=calls.since,
            )


def describe_no_teamd(paths: TeamPaths) -> Notice:
    """Return the notice that no teamd runs."""
    command = paths.team_command("teamd start")
    return Notice(
        NoticeKind.TEAMD, f"no teamd runs for {paths.root}", (command,), effect="starts it"
    )


def describe_version(paths: TeamPaths, version: str) -> Notice:
    """Return the notice that another version of teamd runs; it is older if `version` is empty."""
    runs = f"teamd {version} runs" if version else "an older teamd runs"
    command = paths.team_command("teamd restart")
    text = f"{runs} for {paths.root}, and {__version__} is installed"
    return Notice(NoticeKind.VERSION, text, (command,), effect="replaces it")


def describe_idle_owners(paths: TeamPaths, owners: Sequence[tuple[str, str]]) -> Notice:
    """Return the notice about the ids of tasks in progress and their idle owners."""
    (task_id, owner), *more = owners
    text = f"task {task_id} is in progress, but its owner {owner} is idle"
    if more:
        names = ", ".join(dict.fromkeys(name for _, name in owners))
        text = f"{len(owners)} tasks are in progress, but their owners are idle ({names})"
    command = paths.team_command("teamctl tasks")
    return Notice(NoticeKind.STALLED, text, (command,), effect="shows the next step")


def describe_unmerged(paths: TeamPaths, states: Sequence[tuple[str, str]]) -> Notice:
    """Return the notice about teammates and the states of their entries that were not merged."""
    merges = "1 merge" if len(states) == 1 else f"{len(states)} merges"
    named = ", ".join(f"{name}: {state}" for name, state in states)
    text = f"{merges} did not go through ({named})"
    command = paths.team_command("teamctl queue")
    return Notice(NoticeKind.UNMERGED, text, (command,), effect="shows the next step")


def describe_mail(paths: TeamPaths, unread: int) -> Notice:
    """Return the notice that mail waits for the person."""
    text, them = ("1 message waits", "it") if unread == 1 else (f"{unread} messages wait", "them")
    command = paths.team_command("teamctl inbox")
    return Notice(NoticeKind.MAIL, f"{text} for you", (command,), effect=f"shows {them}")


def describe_lead_done(paths: TeamPaths, said: str, moment: float) -> Notice:
    """Return the notice that the lead has finished, with the beginning of its last words."""
    words = " ".join(said.split())
    words = words.rstrip(".") if len(words) <= _WORDS else f"{words[:_WORDS].rstrip()}…"
    text = f"{LEAD} finished {_ago(moment)}: {words}"
    command = paths.team_command("teamctl chat")
    effect = "shows it all"
    kind = NoticeKind.FINISHED
    return Notice(kind, text, (command,), effect=effect, about=LEAD, time=moment)


def describe_board_done(paths: TeamPaths, count: int, moment: float) -> Notice:
    """Return the notice that all tasks of the board are completed."""
    done = "the only task was" if count == 1 else f"all {count} tasks were"
    text = f"{done} completed {_ago(moment)}"
    command = paths.team_command("teamctl tasks")
    return Notice(NoticeKind.FINISHED, text, (command,), effect="shows the board", time=moment)


def describe_rejected(paths: TeamPaths, name: str, count: int) -> Notice:
    """Return the notice that lines of an inbox were not messages."""
    file, why = paths.rejected(name), ""
    with suppress(StoreError):  # the file cannot be read, but its lines were counted
        why = f" ({explain_rejected(file)})"
    lines, them = ("1 line", "it") if count == 1 else (f"{count} lines", "them")
    text = (
        f"{lines} of mail to {name} could not be read{why}: "
        f"send {them} again in the right form, then remove {file}"
    )
    command = paths.team_command("teamctl help files")
    return Notice(NoticeKind.REJECTED, text, (command,), effect="shows the form", about=name)


def describe_member(paths: TeamPaths, member: Member, since: float | None = None) -> Notice:
    """Return the notice that a member has failed or is paused."""
    reason = " ".join((member.reason or "").split())
    text = f"{member.name} {'has failed' if member.status is Status.FAILED else 'is paused'}"
    by_somebody = member.pause is not None and reason == paths.add_team_option(member.pause)
    if by_somebody:
        text = f"{member.name} is {reason}"
    elif reason:
        text += f": {reason}"
    named = by_somebody or member.remedy is not None  # the reason names the command
    return Notice(
        NoticeKind(member.status),
        text,
        (paths.team_command(member.remedy or _usual_remedy(member)),),
        effect="" if named else "resumes it",
        about=member.name,
        time=since,
    )


def _usual_remedy(member: Member) -> str:
    if member.status is Status.PAUSED:
        return f"teamctl resume {member.name}"
    if member.name.lower() == LEAD:
        return "teamctl chat"
    return f"teamctl spawn {member.name} {shlex.quote(member.role or 'teammate')} 'Go on.'"


def _ago(moment: float) -> str:
    """Return how long ago a moment was, such as `2 min ago`."""
    minutes = int(max(0.0, time.time() - moment)) // 60
    if not minutes:
        return "just now"
    if minutes < 60:  # noqa: PLR2004 -- minutes of an hour
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days ago"
