"""What a person should see first of a team: who needs one, and the command that answers it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.mail.lines import explain_rejected
from teamd.messages import LEAD
from teamd.overview.members import REJECTED, WAITING, MemberView
from teamd.team.member import Member
from teamd.team.states import Status

if TYPE_CHECKING:
    from teamd.overview.requests import OpenRequest

_LONGEST: Final = 300  # characters of what is asked; `teamctl requests` shows the rest
_BY_SOMEBODY: Final = "paused by "
_COMMAND: Final = r"`(team(?:ctl|d) [^`…]+)`"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that needs a person.

    Attributes:
        kind: `waiting`, `failed`, `paused`, `mail`, `rejected`, or `teamd` where none runs.
        text: it, in a line.
        commands: what answers it; the first is the usual one, the others do otherwise.
        does: what the first does.
        name: whom it is about; empty where it is the team.
        id: of a request.
        time: since when, in seconds since the epoch, where that is known.
    """

    kind: str
    text: str
    commands: tuple[str, ...]
    does: str = ""
    name: str = ""
    id: str | None = None
    time: float | None = None

    @property
    def lines(self) -> list[str]:
        """It and its commands, as a person reads it."""
        if not self.does:
            answers = " or ".join(f"`{command}`" for command in self.commands)
            return [self.text, f"  {answers}"]
        if self.commands[0] in self.text:  # a reason that names it
            return [self.text]
        return [f"{self.text}; `{self.commands[0]}` {self.does}"]

    def to_json(self) -> dict[str, Any]:
        """The notice as `--json` shows it."""
        own = {key: getattr(self, key) for key in ("kind", "text", "name", "id", "time")}
        return {**own, "command": self.commands[0], "commands": list(self.commands)}


def of_request(request: OpenRequest) -> Notice:
    """Say that a request waits for the person."""
    asked, text = request.approval, request.sentence
    return Notice(
        kind=WAITING,
        text=text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… (`teamctl requests` shows it)",
        commands=(request.approve, request.reject),
        name=asked.asker,
        id=asked.id,
        time=asked.asked,
    )


def of_members(paths: TeamPaths, members: Iterable[MemberView]) -> list[Notice]:
    """Say who has failed and who is paused, the failed ones first."""
    views = [view for view in members if view.state in (Status.FAILED, Status.PAUSED)]
    return [_of_member(paths, view) for view in sorted(views, key=lambda one: one.state)]


def of_supervisor(paths: TeamPaths) -> Notice:
    """Say that no teamd runs."""
    text = f"no teamd runs for {paths.root}"
    return _notice(paths, "teamd", text, "teamd start", "starts it")


def of_mail(paths: TeamPaths, unread: int) -> Notice:
    """Say that mail waits for the person."""
    text = "1 message waits for you" if unread == 1 else f"{unread} messages wait for you"
    return _notice(
        paths, "mail", text, "teamctl inbox", "shows it" if unread == 1 else "shows them"
    )


def of_rejected(paths: TeamPaths, name: str, count: int) -> Notice:
    """Say that lines of an inbox were not messages."""
    file, why = paths.rejected(name), ""
    with suppress(StoreError):  # the count is known, and names the file
        why = f" ({explain_rejected(file)})"
    lines, them = ("1 line", "it") if count == 1 else (f"{count} lines", "them")
    text = (
        f"{lines} of mail to {name} could not be read{why}: "
        f"send {them} again in the right form, then remove {file}"
    )
    return _notice(paths, REJECTED, text, "teamctl help files", "shows the form", name=name)


def _of_member(paths: TeamPaths, view: MemberView) -> Notice:
    member, why = view.member, " ".join((view.member.reason or "").split())
    what = f"{member.name} {'has failed' if member.status is Status.FAILED else 'is paused'}"
    text = f"{what}: {why}" if why else what
    if why.startswith(_BY_SOMEBODY):
        text = f"{member.name} is {why}"
    command, facts = _way_on(member), {"name": member.name, "time": view.since}
    return _notice(paths, str(member.status), text, command, "lets it go on", **facts)


def _way_on(member: Member) -> str:
    """Return the command that lets a paused or failed member go on."""
    if member.status is Status.PAUSED:
        told = re.search(_COMMAND, member.reason or "")  # by how much a limit is to be raised, say
        return told[1] if told else f"teamctl resume {member.name}"
    if member.name.lower() == LEAD:
        return "teamctl chat"
    return f"teamctl spawn {member.name} {shlex.quote(member.role or 'teammate')} 'Go on.'"


def _notice(
    paths: TeamPaths, kind: str, text: str, command: str, does: str, **facts: Any
) -> Notice:
    whole = paths.add_team_option(f"`{command}`").strip("`")
    return Notice(kind=kind, text=text, commands=(whole,), does=does, **facts)
