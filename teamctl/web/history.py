"""The events of the last day, and the states of members and the token usage derived from them."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, TypeAlias

from teamctl.events import Event, EventKind, EventStream
from teamd.files.paths import TeamPaths
from teamd.messages import PERMISSION_TYPE, PLAN_TYPE, PUSH_TYPE
from teamd.team.states import Status
from teamd.transcript.records import LIMIT, PAUSED

KEPT_SECONDS: Final = 86_400.0
MOST_KEPT: Final = 20_000  # events, the newest
MOST_FOUND: Final = 300
SLOTS: Final = 300  # the states of a lane are merged in each slot
BUCKETS: Final = 48  # the use of tokens is summed in each bucket

State: TypeAlias = tuple[float, str]

WORKING: Final = str(Status.WORKING)
IDLE: Final = str(Status.IDLE)
WAITING: Final = "waiting"
CRASHED: Final = "crashed"
OFF: Final = "off"  # teamd does not run
# The more a state needs a person, the later it comes here.
_ORDER: Final = (OFF, str(Status.SHUTDOWN), IDLE, WORKING, str(Status.PAUSED), WAITING, CRASHED)
_RANK: Final = {state: rank for rank, state in enumerate((*_ORDER, str(Status.FAILED)))}
_STATES: Final = {
    EventKind.TURN_BEGAN: WORKING,
    EventKind.REPLIED: WORKING,
    EventKind.SPAWNED: IDLE,
    EventKind.RESUMED: IDLE,
    EventKind.RESTARTED: IDLE,
    EventKind.CRASHED: CRASHED,
    EventKind.STUCK: CRASHED,
    EventKind.FAILED: str(Status.FAILED),
    EventKind.SHUTTING_DOWN: str(Status.SHUTDOWN),
}
# They outlast a stop of teamd; all other members begin idle.
_LASTING: Final = frozenset({Status.SHUTDOWN, Status.FAILED, Status.PAUSED, WAITING})
_ASKING: Final = frozenset({PERMISSION_TYPE, PLAN_TYPE, PUSH_TYPE})
_MARKED: Final = frozenset({"completed", "merged", "conflict", "failed"})


class TeamHistory:
    """Follows the events of a team, starting at the first query."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._stream: EventStream | None = None
        self._events: deque[Event] = deque(maxlen=MOST_KEPT)
        self._lanes: dict[str, deque[State]] = {}
        self._while_off: dict[str, str] = {}  # the states of members while teamd does not run
        self._lock = threading.Lock()

    def lanes(self, hours: float) -> dict[str, Any]:
        """Return the states of each member, and the token usage, in the last hours."""
        now = time.time()
        since = now - min(max(hours, 0.1) * 3600, KEPT_SECONDS)
        with self._lock:
            self._look()
            recent = [event for event in self._events if event.time >= since]
            lanes = {name: _thin(lane, since, now) for name, lane in self._lanes.items()}
        return {
            "since": since,
            "until": now,
            "lanes": lanes,
            "marks": [mark for event in recent if (mark := _mark(event))],
            "use": _sum_tokens(recent, since, now),
        }

    def find(self, words: str, name: str, kinds: Iterable[str]) -> dict[str, Any]:
        """Return the newest events that contain all words, about a member and of some kinds."""
        wanted, chosen = words.lower().split(), set(kinds)
        with self._lock:
            self._look()
            events = list(self._events)
        matching = (
            one
            for event in reversed(events)
            if (not name or event.name == name) and (not chosen or event.kind in chosen)
            for one in [event.to_json()]
            if _holds(one, wanted)
        )
        return {"events": list(islice(matching, MOST_FOUND)), "kept": len(events)}

    def close(self) -> None:
        """Close the files of the team."""
        with self._lock:
            if self._stream is not None:
                self._stream.close()

    def _look(self) -> None:
        if self._stream is None:
            self._stream = EventStream(self._paths, time.time() - KEPT_SECONDS)
        for event in self._stream.look():
            self._events.append(event)
            self._note(event)

    def _note(self, event: Event) -> None:
        """Add the state that begins with an event."""
        match event.kind:
            case EventKind.TEAMD_STOPPED:
                for name in self._lanes:
                    before = self._present(name)
                    self._change(name, event.time, OFF)
                    self._while_off[name] = before
            case EventKind.TEAMD_STARTED:  # after a stop, or after a kill that left no event
                for name in self._lanes:
                    before = self._present(name)
                    self._while_off.pop(name, None)
                    self._change(name, event.time, before if before in _LASTING else IDLE)
            case _:
                if (state := self._state(event)) is not None:
                    self._change(event.name, event.time, state)

    def _state(self, event: Event) -> str | None:
        """Return the state that an event begins; a request outlasts the turn that asked."""
        asks = self._present(event.name) == WAITING
        match event.kind:
            case EventKind.APPROVAL_ASKED:
                return WAITING if event.facts["type"] in _ASKING else None
            case EventKind.APPROVAL_ANSWERED:  # the asker of a shutdown works on
                return IDLE if asks and event.facts["type"] in _ASKING else None
            case EventKind.TURN_ENDED if not asks:
                paused = event.facts["outcome"] in (PAUSED, LIMIT)
                return str(Status.PAUSED) if paused else IDLE
            case EventKind.STATE if not asks:
                return str(event.facts["status"])
        return _STATES.get(event.kind)

    def _present(self, name: str) -> str:
        """Return the last state of a member, also while teamd does not run; empty if unknown."""
        lane = self._lanes.get(name)
        return self._while_off.get(name, lane[-1][1] if lane else "")

    def _change(self, name: str, moment: float, state: str) -> None:
        if name in self._while_off:
            self._while_off[name] = state
            return
        lane = self._lanes.setdefault(name, deque(maxlen=MOST_KEPT))
        if not lane or lane[-1][1] != state:
            lane.append((max(moment, lane[-1][0]) if lane else moment, state))


def _thin(lane: Iterable[State], since: float, until: float) -> list[State]:
    """Return the states since a moment, at most two in each slot: the most urgent and the last."""
    width = (until - since) / SLOTS
    kept: list[State] = []
    left: State | None = None  # the last state of the slot, if it is not kept
    slot = -1
    for moment, state in lane:
        at = max(moment, since)
        here = int((at - since) / width)
        if here != slot and left is not None:
            kept.append(left)
            left = None
        if here != slot or not kept:
            kept.append((at, state))
        elif _RANK.get(state, 0) >= _RANK.get(kept[-1][1], 0) or moment < since:
            kept[-1], left = (kept[-1][0], state), None
        else:
            left = (at, state)
        slot = here
    return kept if left is None else [*kept, left]


def _mark(event: Event) -> dict[str, Any] | None:
    """Return a moment that is worth a mark on the lane of its member."""
    facts = event.facts
    if event.kind in (EventKind.CRASHED, EventKind.FAILED, EventKind.STUCK):
        what, text = str(event.kind), str(facts.get("reason") or "")
    elif event.kind is EventKind.TASK and facts["status"] in _MARKED:
        what, text = str(facts["status"]), f"task {facts['id']}: {facts['subject']}"
    elif event.kind is EventKind.MERGE and facts["state"] in _MARKED:
        what, text = str(facts["state"]), f"queue {facts['id']}"
    else:
        return None
    return {"time": event.time, "name": event.name, "kind": what, "text": text}


def _sum_tokens(events: Iterable[Event], since: float, until: float) -> dict[str, list[int]]:
    """Return the tokens of each member's replies in each bucket of the time."""
    width = (until - since) / BUCKETS
    sums: dict[str, list[int]] = {}
    for event in events:
        if event.kind is EventKind.REPLIED:
            own = sums.setdefault(event.name, [0] * BUCKETS)
            place = min(BUCKETS - 1, int((event.time - since) / width))
            own[place] += event.facts["input_tokens"] + event.facts["output_tokens"]
    return sums


def _holds(event: dict[str, Any], words: list[str]) -> bool:
    if not words:
        return True
    text = json.dumps(event, ensure_ascii=False, default=str).lower()
    return all(word in text for word in words)
