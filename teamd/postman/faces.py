"""The displayed state of another host: reachable or not, since when, and why."""

from __future__ import annotations

import time
from typing import Any, Final

from teamd.hosts.view import HostState, Views
from teamd.postman.presence import Peer

DEAF: Final = "it does not hear this host"
DENIED: Final = (
    "the broker does not let this host speak as {name}; [hosts] name must be the one that its "
    "certificate is for, which `teamctl hosts join` writes"
)
_SILENT: Final = "it is silent"
_TRIP_SHARE: Final = 0.5  # relative change of a round trip that is displayed


def show_host(
    views: Views, name: str, peer: Peer | None, now: float, *, offline: str, deaf: str
) -> None:
    """Update the view of another host.

    Args:
        views: the views to update.
        name: the name of the host.
        peer: its beats; `None` if there were none.
        now: by the clock `elapsed`.
        offline: why there is no connection to the broker; empty if there is one.
        deaf: the reason to show if the host is heard but does not hear this host.
    """
    before = views.get(name)
    if peer is not None and peer.answers(now):
        trip = peer.round_trip
        facts: dict[str, Any] = {"state": HostState.REACHABLE, "why": ""}
        if before.state is not HostState.REACHABLE:
            facts["since"] = time.time()
        if trip is not None and _differs(before.round_trip_ms, trip * 1000):
            facts["round_trip_ms"] = round(trip * 1000, 2)
        views.change(name, **facts)
        return
    why = offline or (deaf if peer is not None and peer.reachable(now) else _SILENT)
    if before.state is HostState.REACHABLE:
        since = time.time() if peer is None else peer.moment
        gone = {"state": HostState.UNREACHABLE, "since": since, "round_trip_ms": None}
        views.change(name, why=why, **gone)
    elif before.state is HostState.UNREACHABLE:
        views.change(name, why=why)
    else:
        views.change(name, why=offline)


def _differs(shown: float | None, now: float) -> bool:
    """Return whether a round trip has changed enough to be shown; each one differs slightly."""
    return shown is None or abs(now - shown) > max(1.0, _TRIP_SHARE * shown)
