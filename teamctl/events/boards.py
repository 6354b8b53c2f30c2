"""The events that follow from what changes in place: states, tasks, approvals, merges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from teamctl.events.event import Event
from teamd.approvals.store import Approvals
from teamd.board import files as board
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.routing import Post
from teamd.merges import queue
from teamd.team.roster import Roster

# What is known of things by their names, and the event that each of them tells.
Shown = Iterable[tuple[str, Event]]


class Boards:
    """Tells how the roster, the tasks, the approvals and the merge queue differ from before."""

    def __init__(self, paths: TeamPaths) -> None:
        self._looks = [
            _Look((paths.config,), lambda: _states(paths), dated=False),
            _Look((paths.tasks, paths.queue), lambda: _tasks(paths)),
            _Look((paths.tasks, paths.queue), lambda: _merges(paths)),
            _Look((paths.requests,), lambda: _approvals(paths)),
        ]

    def events(self) -> Iterator[Event]:
        """Yield what is other than at the last look; at the first one all that there is."""
        for look in self._looks:
            yield from look.events()


class _Look:
    """A look at what may have changed.

    Args:
        places: files and folders that change whenever it does.
        find: tells what there is now.
        dated: whether it tells when that came about; otherwise the first look tells nothing.
    """

    def __init__(
        self, places: tuple[Path, ...], find: Callable[[], Shown], *, dated: bool = True
    ) -> None:
        self._places = places
        self._find = find
        self._tells = dated
        self._state: list[Any] = []
        self._known: dict[str, Event] = {}

    def events(self) -> Iterator[Event]:
        state = [_state(place) for place in self._places]
        if state == self._state:
            return
        try:
            found = dict(self._find())
        except (TeamError, OSError):  # damaged, or being mended: the next look may find it whole
            return
        self._state = state
        before, self._known = self._known, found
        changed = (
            key for key in found if key not in before or before[key].facts != found[key].facts
        )
        if self._tells:
            yield from (found[key] for key in changed)
        self._tells = True


def _state(place: Path) -> tuple[int, ...]:
    try:
        found = place.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _states(paths: TeamPaths) -> Shown:
    changed = paths.config.stat().st_mtime
    for member in Roster(paths).read().members:
        facts = {"status": str(member.status), "role": member.role, "reason": member.reason}
        yield member.name, Event(changed, "state", member.name, facts)


def _tasks(paths: TeamPaths) -> Shown:
    for task in board.read_all(paths).by_id.values():
        facts = {"id": task.id, "subject": task.subject, "status": str(task.status)}
        more = {"blocked_by": list(task.blocked_by), "proven": task.proven}
        who = task.owner or task.created_by
        event = Event(task.updated, "task", who, {**facts, "owner": task.owner, **more})
        yield task.id, event


def _merges(paths: TeamPaths) -> Shown:
    for entry in queue.read(paths).all:
        facts = entry.to_json()
        event = Event(facts.pop("when"), "merge", facts.pop("teammate"), facts)
        yield entry.id, event


def _approvals(paths: TeamPaths) -> Shown:
    for one in Approvals(paths, Post(paths, durable=False, max_bytes=0)).all():
        facts = {"id": one.id, "type": str(one.type), "to": one.to}
        yield one.id, Event(one.asked, "approval_asked", one.asker, facts)
        if not one.is_open:
            said = {"status": str(one.status), "by": one.answered_by, "reason": one.reason}
            moment = one.answered or one.asked
            yield f"{one.id}!", Event(moment, "approval_answered", one.asker, {**facts, **said})
