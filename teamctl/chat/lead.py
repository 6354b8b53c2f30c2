"""The chat's side of the lead: requests and mail to it, and the news about its team."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from contextlib import suppress
from typing import Any, Final

from teamctl.arguments import REQUEST_SECONDS, without_secrets
from teamctl.events import Event, EventKind, EventStream
from teamctl.mail.router import team_post
from teamctl.render import output
from teamd import control
from teamd.command_line.run import TeamOptions
from teamd.control import ControlReply
from teamd.errors import StoreError
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.messages import FRESH_KEY, LEAD, PROMPT_KEY, USER, Message
from teamd.overview.notices import NoticeKind
from teamd.overview.overview import OverviewReader
from teamd.team.states import Status

_MOST: Final = 8
_ENDED: Final = frozenset({"merged", "conflict", "failed"})


def tell(paths: TeamPaths, since: float) -> Iterator[str]:
    """Yield a line for each of the last events since a moment."""
    told = [
        (event.time, said) for event in EventStream(paths, since).look() if (said := _say(event))
    ]
    if len(told) > _MOST:
        yield paths.add_team_option(f"… {len(told) - _MOST} earlier ones: `teamctl events`")
    for moment, said in told[-_MOST:]:
        yield f"{short_moment(moment)} {output.plain(said)}"


def needs(paths: TeamPaths, told: Container[str]) -> Iterator[str]:
    """Yield the notices about open requests and stopped teammates.

    Args:
        paths: the team.
        told: the ids of requests to leave out.
    """
    for one in OverviewReader(paths, costs=False, copies=False).read().notices:
        if one.kind is NoticeKind.WAITING and one.request not in told:
            yield one.text
            yield f"  {explain_answer(one.request)}"
        elif one.kind in (NoticeKind.PAUSED, NoticeKind.FAILED):
            yield from one.lines


def explain_answer(request: str | None) -> str:
    """Return the slash commands that answer a request."""
    return f"/approve {request} or /reject {request} WHY answers it"


def _say(event: Event) -> str | None:
    """Return the sentence for an event; `None` for minor ones."""
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
    """The lead of one team.

    Args:
        fresh: whether the first message begins a new conversation.
        model: its new model; `None` keeps the present one.
    """

    def __init__(self, choice: TeamOptions, *, fresh: bool, model: str | None) -> None:
        self._choice = choice
        self._post = team_post(choice)
        self.paths = self._post.paths
        self._fresh = fresh
        self._model = model

    def call(self, *, scripted: bool) -> str | None:
        """Start the lead if needed; return a warning for the person, if any.

        Args:
            scripted: whether the caller is a script; it gets no warning of a pause here.

        Raises:
            NoTeamd: teamd does not run.
            TeamError: the lead is working, so a new conversation or model is refused.
        """
        reply = self._ask(fresh=self._fresh, model=self._model)
        warning = reply.data.get("warning")
        if scripted and reply.data["member"]["status"] == Status.PAUSED:
            return None
        return None if warning is None else str(warning)

    @property
    def fresh(self) -> bool:
        """Whether the next message begins a new conversation."""
        return self._fresh

    @property
    def usual_model(self) -> str:
        """The model of the settings; raises the errors of these."""
        return self._choice.settings(self.paths).model.name

    def change_model(self, model: str) -> None:
        """Change the lead's model, starting with the next message.

        Raises:
            NoTeamd: teamd does not run.
            TeamError: it is working.
        """
        self._ask(fresh=False, model=model)

    def _ask(self, **arguments: Any) -> ControlReply:
        reply = control.ask(self.paths, LEAD, arguments, timeout_seconds=REQUEST_SECONDS)
        return reply.raise_unless_done()

    def tell(self, text: str, *, kind: str = "message") -> str:
        """Send the person's text; return the message's id."""
        extra = {PROMPT_KEY: True, FRESH_KEY: True} if self._fresh else {}
        content = without_secrets(text)
        message = Message(type=kind, sender=USER, to=LEAD, content=content, extra=extra)
        self._post.send(message)
        self._fresh = False
        return message.id

    def note_heard(self) -> None:
        """Record that the person has seen the conversation so far; if that fails, some repeats."""
        with suppress(StoreError):
            place = files.size(self.paths.transcript(LEAD))
            files.replace(self.paths.chat_mark, b"%d\n" % place, durable=False)
        self.paths.note_seen()

    def interrupt(self) -> None:
        """Interrupt its turn without waiting for the end.

        Raises:
            NoTeamd: teamd does not run.
        """
        whom = {"name": LEAD}
        request = control.ControlRequest.within(REQUEST_SECONDS, "interrupt", arguments=whom)
        control.submit(self.paths, request)
