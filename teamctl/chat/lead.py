"""The agent that leads, as the person's side reaches it: by requests, mail and its conversation."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from typing import Final

from teamctl.arguments import REQUEST_SECONDS, without_secrets
from teamctl.events import EventStream
from teamctl.mail.router import team_post
from teamctl.render import output
from teamd import control
from teamd.command_line.run import TeamOptions
from teamd.files.paths import TeamPaths
from teamd.messages import FRESH_KEY, LEAD, PROMPT_KEY, USER, Message
from teamd.overview.events import Event, EventKind
from teamd.overview.notices import NoticeKind
from teamd.overview.overview import OverviewReader
from teamd.team.states import Status

_MOST: Final = 8
_ENDED: Final = frozenset({"merged", "conflict", "failed"})


def tell(paths: TeamPaths, since: float) -> Iterator[str]:
    """Yield a line for each thing that happened since a moment; the last ones where it is a lot."""
    told = [
        (event.time, said) for event in EventStream(paths, since).look() if (said := _say(event))
    ]
    if len(told) > _MOST:
        yield paths.add_team_option(f"… {len(told) - _MOST} earlier ones: `teamctl events`")
    for moment, said in told[-_MOST:]:
        yield f"{short_moment(moment)} {output.plain(said)}"


def needs(paths: TeamPaths, told: Container[str]) -> Iterator[str]:
    """Yield a line for each that waits for the person, is paused or has failed, and what to do.

    Args:
        paths: the team.
        told: the ids of requests that are told of anyway.
    """
    for one in OverviewReader(paths, costs=False).read().notices:
        if one.kind is NoticeKind.WAITING and one.request not in told:
            yield one.text
            yield f"  {explain_answer(one.request)}"
        elif one.kind in (NoticeKind.PAUSED, NoticeKind.FAILED):
            yield from one.lines


def explain_answer(request: str | None) -> str:
    """Return what answers a request in a chat."""
    return f"/approve {request} or /reject {request} WHY answers it"


def _say(event: Event) -> str | None:
    """Return an event in a sentence, if it is worth one."""
    facts = event.facts
    match event.kind:
        case EventKind.SPAWNED:
            return f"{event.name} was spawned as {facts.get('role')}"
        case EventKind.CRASHED | EventKind.FAILED | EventKind.STUCK:
            return f"{event.name} {event.kind}: {facts.get('reason')}"
        case EventKind.TASK if facts.get("status") == "completed":
            return f"task {facts['id']} ({facts['subject']}) was completed by {event.name}"
        case EventKind.MERGE if facts.get("state") in _ENDED:
            return f"the work of {event.name}: {facts['state']}"
        case EventKind.APPROVAL_ASKED if facts.get("to"):
            return f"{event.name} asked for an answer: {facts['type']} {facts['id']}"
    return None


def short_moment(seconds: float) -> str:
    """Return a time of today as `17:05:09`, any other as `2026-03-24 17:05`."""
    if time.strftime("%Y-%m-%d", time.localtime(seconds)) == time.strftime("%Y-%m-%d"):
        return output.clock(seconds)
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


class Lead:
    """One team's leading agent.

    Args:
        fresh: whether the first thing that it is told begins a new conversation.
        model: its model from now on, where another one is wanted.
    """

    def __init__(self, choice: TeamOptions, *, fresh: bool, model: str | None) -> None:
        self._post = team_post(choice)
        self.paths = self._post.paths
        self._fresh = fresh
        self._model = model

    def call(self, *, scripted: bool) -> str | None:
        """Have it there; returns what the person should know of it.

        Args:
            scripted: whether nobody is there to know: why it is paused is told in its answer.

        Raises:
            NoTeamd: nobody could start it.
            TeamError: it is at work, and would have to begin anew or with another model.
        """
        arguments = {"fresh": self._fresh, "model": self._model}
        reply = control.ask(self.paths, LEAD, arguments, timeout_seconds=REQUEST_SECONDS)
        reply.raise_unless_done()
        warning = reply.data.get("warning")
        if scripted and reply.data["member"]["status"] == Status.PAUSED:
            return None
        return None if warning is None else str(warning)

    def tell(self, text: str, *, kind: str = "message") -> str:
        """Send it what the person says; returns the message's id."""
        extra = {PROMPT_KEY: True, FRESH_KEY: True} if self._fresh else {}
        content = without_secrets(text)
        message = Message(type=kind, sender=USER, to=LEAD, content=content, extra=extra)
        self._post.send(message)
        self._fresh = False
        return message.id

    def interrupt(self) -> None:
        """Break off its turn, if it has one; does not wait for it.

        Raises:
            NoTeamd: nobody could.
        """
        whom = {"name": LEAD}
        request = control.ControlRequest.within(REQUEST_SECONDS, "interrupt", arguments=whom)
        control.submit(self.paths, request)
