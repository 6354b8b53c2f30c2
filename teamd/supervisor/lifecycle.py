"""A teammate's life as a table: what happens to its process, and what is done about it."""

from __future__ import annotations

from enum import Enum, auto
from itertools import product
from typing import Final, NamedTuple


class State(Enum):
    """The state of a teammate's process."""

    ABSENT = auto()
    RUNNING = auto()
    STUCK = auto()  # it runs, and shows no sign of life
    WAITING = auto()  # it crashed, and is started again in a moment
    STOPPING = auto()
    KILLED = auto()


class Event(Enum):
    """The events of its life."""

    WANTED = auto()
    UNWANTED = auto()
    DUE = auto()  # the moment has come to start again, or to use force
    CRASHED = auto()  # it ended by itself, or could not be forked
    HOPELESS = auto()  # the same, and another try would end alike
    SILENT = auto()  # it has something to do, and has shown no sign of life for too long
    HEARD = auto()  # it shows signs of life, or has nothing to do


class Action(Enum):
    """The supervisor's answer to an event."""

    NOTHING = auto()
    FORK = auto()
    DELAY = auto()
    TERMINATE = auto()
    KILL = auto()
    SETTLE = auto()
    FAIL = auto()
    REPORT = auto()  # say that it is stuck; settings may want its end, which then is due at once
    RELIEVE = auto()  # say that it is not any more


class Step(NamedTuple):
    """The state that follows, and what is to be done."""

    state: State
    action: Action


# What changes something, or asks for something to be done; no other event does in a state.
_STEPS: Final = {
    (State.ABSENT, Event.WANTED): Step(State.RUNNING, Action.FORK),
    (State.ABSENT, Event.UNWANTED): Step(State.ABSENT, Action.SETTLE),
    (State.RUNNING, Event.UNWANTED): Step(State.STOPPING, Action.TERMINATE),
    (State.RUNNING, Event.CRASHED): Step(State.WAITING, Action.DELAY),
    (State.RUNNING, Event.HOPELESS): Step(State.ABSENT, Action.FAIL),
    (State.RUNNING, Event.SILENT): Step(State.STUCK, Action.REPORT),
    (State.STUCK, Event.UNWANTED): Step(State.STOPPING, Action.TERMINATE),
    (State.STUCK, Event.DUE): Step(State.STUCK, Action.KILL),
    (State.STUCK, Event.CRASHED): Step(State.WAITING, Action.DELAY),
    (State.STUCK, Event.HOPELESS): Step(State.ABSENT, Action.FAIL),
    (State.STUCK, Event.HEARD): Step(State.RUNNING, Action.RELIEVE),
    (State.WAITING, Event.WANTED): Step(State.RUNNING, Action.FORK),
    (State.WAITING, Event.UNWANTED): Step(State.ABSENT, Action.SETTLE),
    (State.WAITING, Event.DUE): Step(State.RUNNING, Action.FORK),
    (State.STOPPING, Event.DUE): Step(State.KILLED, Action.KILL),
    (State.STOPPING, Event.CRASHED): Step(State.ABSENT, Action.SETTLE),
    (State.STOPPING, Event.HOPELESS): Step(State.ABSENT, Action.SETTLE),
    (State.KILLED, Event.DUE): Step(State.KILLED, Action.KILL),
    (State.KILLED, Event.CRASHED): Step(State.ABSENT, Action.SETTLE),
    (State.KILLED, Event.HOPELESS): Step(State.ABSENT, Action.SETTLE),
}
TABLE: Final[dict[tuple[State, Event], Step]] = {
    (state, event): _STEPS.get((state, event), Step(state, Action.NOTHING))
    for state, event in product(State, Event)
}
