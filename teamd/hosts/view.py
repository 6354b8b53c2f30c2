"""The postman's view of the other hosts, for display: `.team/hosts/state.json`.

Whether mail is sent does not depend on it, and its loss does no harm.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from teamd.errors import StoreError
from teamd.files import files, locks
from teamd.files.paths import TeamPaths
from teamd.hosts.places import HostPlaces

_MOST_REPORTS: Final = 20  # of a host; the log has all


class HostState(StrEnum):
    """The state of another host, as seen from here."""

    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    NEVER = "never"  # never connected so far


@dataclass(frozen=True, slots=True)
class Report:
    """A problem that could not be resolved, such as mail lost with a removed folder."""

    time: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """The view of one other host.

    Attributes:
        since: when that state began, in seconds since the epoch; `None` for never.
        why: why the host is unreachable, in a sentence; empty if unknown.
        round_trip_ms: to its postman and back.
        reports: with the latest last.
        folder: the id of the host's folder, which another folder does not have; empty if unknown.
    """

    name: str
    state: HostState = HostState.NEVER
    since: float | None = None
    why: str = ""
    round_trip_ms: float | None = None
    reports: tuple[Report, ...] = ()
    folder: str = ""

    @classmethod
    def from_json(cls, name: str, found: Any) -> HostView:
        """Decode a view; missing or invalid values count as unknown."""
        match found:
            case {"state": str(state), "since": float() | int() | None as since}:
                pass
            case _:
                return cls(name=name)
        known = state in set(HostState)
        trip, why = found.get("round_trip_ms"), found.get("why")
        reports = found.get("reports")
        return cls(
            name=name,
            state=HostState(state) if known else HostState.NEVER,
            since=since,
            why=why if isinstance(why, str) else "",
            round_trip_ms=trip if isinstance(trip, float | int) else None,
            reports=tuple(_reports(reports if isinstance(reports, list) else [])),
            folder=str(found.get("folder", "")),
        )


def _reports(found: list[Any]) -> list[Report]:
    kept = []
    for one in found:
        match one:
            case {"time": float() | int() as time, "text": str(text)}:
                kept.append(Report(time, text))
    return kept


def postman_runs(paths: TeamPaths) -> bool:
    """Return whether this team has a postman now; otherwise its view is outdated."""
    path = HostPlaces(paths).postman
    return files.exists(path) and locks.is_locked(path)


def read_views(paths: TeamPaths) -> list[HostView]:
    """Return the postman's last views, by name; empty if the file cannot be read."""
    try:
        found = json.loads(files.read(HostPlaces(paths).state) or b"{}")
        hosts = found["hosts"]
        return [HostView.from_json(name, hosts[name]) for name in sorted(hosts)]
    except (StoreError, ValueError, KeyError, TypeError, RecursionError):
        return []


@dataclass(slots=True)
class Views:
    """The postman's views: kept in memory, and written by `write` after changes."""

    paths: TeamPaths
    _hosts: dict[str, HostView] = field(default_factory=dict)
    _changed: bool = True

    def __post_init__(self) -> None:
        self._hosts = {view.name: view for view in read_views(self.paths)}

    def get(self, host: str) -> HostView:
        """Return the view of a host."""
        return self._hosts.get(host) or HostView(name=host)

    def names(self) -> list[str]:
        """Return the hosts that have a view."""
        return list(self._hosts)

    def change(self, host: str, **facts: Any) -> None:
        """Record facts about a host: fields of `HostView`."""
        before = self.get(host)
        after = replace(before, **facts)
        if after != before or host not in self._hosts:
            self._hosts[host] = after
            self._changed = True

    def doubt(self, now: float) -> None:
        """Mark reachable hosts as unreachable, because an earlier postman's view may be outdated.

        Args:
            now: seconds since the epoch.
        """
        for name, view in list(self._hosts.items()):
            if view.state is HostState.REACHABLE:
                self.change(name, state=HostState.UNREACHABLE, since=now, round_trip_ms=None)

    def report(self, host: str, report: Report) -> None:
        """Record a problem that could not be resolved."""
        reports = (*self.get(host).reports, report)
        self.change(host, reports=reports[-_MOST_REPORTS:])

    def forget(self, host: str) -> None:
        """Forget a host, so that it is no longer shown."""
        if self._hosts.pop(host, None) is not None:
            self._changed = True

    def write(self) -> None:
        """Write the views if they have changed.

        Raises:
            StoreError: they could not be written; the next call tries again.
        """
        if not self._changed:
            return
        hosts = {name: _fields(view) for name, view in sorted(self._hosts.items())}
        data = json.dumps({"hosts": hosts}, ensure_ascii=False, indent=1).encode() + b"\n"
        files.replace(HostPlaces(self.paths).state, data, durable=False)
        self._changed = False


def _fields(view: HostView) -> dict[str, Any]:
    fields = asdict(view)
    del fields["name"]
    return fields
