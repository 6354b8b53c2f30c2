"""A teammate's life as a table: what happens to its process, and what is done about it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple


class State(Enum):
    """How a teammate's process is."""

    ABSENT = auto()
    RUNNING = auto()
    STOPPING = auto()
    KILLED = auto()


class Event(Enum):
    """What can happen to it."""

    WANTED = auto()
    UNWANTED = auto()
    OVERDUE = auto()
    ENDED = auto()


class Action(Enum):
    """What the supervisor does about it."""

    NOTHING = auto()
    FORK = auto()
    TERMINATE = auto()
    KILL = auto()
    SETTLE = auto()
    FAIL = auto()


class Step(NamedTuple):
    """The state that follows, and what is to be done."""

    state: State
    action: Action


_STAYS = Action.NOTHING

TABLE: Final[dict[tuple[State, Event], Step]] = {
    (State.ABSENT, Event.WANTED): Step(State.RUNNING, Action.FORK),
    (State.ABSENT, Event.UNWANTED): Step(State.ABSENT, Action.SETTLE),
    (State.ABSENT, Event.OVERDUE): Step(State.ABSENT, _STAYS),
    (State.ABSENT, Event.ENDED): Step(State.ABSENT, _STAYS),
    (State.RUNNING, Event.WANTED): Step(State.RUNNING, _STAYS),
    (State.RUNNING, Event.UNWANTED): Step(State.STOPPING, Action.TERMINATE),
    (State.RUNNING, Event.OVERDUE): Step(State.RUNNING, _STAYS),
    (State.RUNNING, Event.ENDED): Step(State.ABSENT, Action.FAIL),
    (State.STOPPING, Event.WANTED): Step(State.STOPPING, _STAYS),
    (State.STOPPING, Event.UNWANTED): Step(State.STOPPING, _STAYS),
    (State.STOPPING, Event.OVERDUE): Step(State.KILLED, Action.KILL),
    (State.STOPPING, Event.ENDED): Step(State.ABSENT, Action.SETTLE),
    (State.KILLED, Event.WANTED): Step(State.KILLED, _STAYS),
    (State.KILLED, Event.UNWANTED): Step(State.KILLED, _STAYS),
    (State.KILLED, Event.OVERDUE): Step(State.KILLED, Action.KILL),
    (State.KILLED, Event.ENDED): Step(State.ABSENT, Action.SETTLE),
}
