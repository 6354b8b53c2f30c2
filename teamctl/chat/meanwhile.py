"""What happened while no person was in the chat: what is worth a line, with its time."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from typing import Final

from teamctl import output
from teamctl.events.event import Event
from teamctl.events.stream import Stream
from teamd.files.paths import TeamPaths
from teamd.overview.members import WAITING
from teamd.overview.overview import OverviewReader
from teamd.states import Status

_MOST: Final = 8
_ENDED: Final = frozenset({"merged", "conflict", "failed"})


def tell(paths: TeamPaths, since: float) -> Iterator[str]:
    """Yield a line for each thing that happened since a moment; the last ones where it is a lot."""
    told = [(event.time, said) for event in Stream(paths, since).look() if (said := _say(event))]
    if len(told) > _MOST:
        yield paths.addressed(f"… {len(told) - _MOST} earlier ones: `teamctl events`")
    for moment, said in told[-_MOST:]:
        yield f"{short_moment(moment)} {output.plain(said)}"


def needs(paths: TeamPaths, told: Container[str]) -> Iterator[str]:
    """Yield a line for each that waits for the person, is paused or has failed, and what to do.

    Args:
        paths: the team.
        told: the ids of requests that are told of anyway.
    """
    for one in OverviewReader(paths, costs=False).read().notices:
        if one.kind == WAITING and one.id not in told:
            yield one.text
            yield f"  {explain_answer(one.id)}"
        elif one.kind in (Status.PAUSED, Status.FAILED):
            yield from one.lines


def explain_answer(request: str | None) -> str:
    """Return what answers a request in a chat."""
    return f"/approve {request} or /reject {request} WHY answers it"


def _say(event: Event) -> str | None:
    """Return an event in a sentence, if it is worth one."""
    facts = event.facts
    match event.kind:
        case "spawned":
            return f"{event.name} was spawned as {facts.get('role')}"
        case "crashed" | "failed" | "stuck":
            return f"{event.name} {event.kind}: {facts.get('reason')}"
        case "task" if facts.get("status") == "completed":
            return f"task {facts['id']} ({facts['subject']}) was completed by {event.name}"
        case "merge" if facts.get("state") in _ENDED:
            return f"the work of {event.name}: {facts['state']}"
        case "approval_asked" if facts.get("to"):
            return f"{event.name} asked for an answer: {facts['type']} {facts['id']}"
    return None


def short_moment(seconds: float) -> str:
    """Return a time of today as `17:05:09`, any other as `2026-03-24 17:05`."""
    if time.strftime("%Y-%m-%d", time.localtime(seconds)) == time.strftime("%Y-%m-%d"):
        return output.clock(seconds)
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
