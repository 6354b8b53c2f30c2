"""`teamctl hosts forget`: drop a host that will not come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from teamctl.mail.router import other_hosts
from teamd.errors import StoreError, TeamError
from teamd.files import files
from teamd.files.watch import wait_for
from teamd.hosts.outbox_repair import find_aside
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import HostState, Views, postman_runs, read_views, waiting

if TYPE_CHECKING:
    from teamd.command_line.run import TeamOptions
    from teamd.hosts.far import FarHosts

_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A host that was dropped.

    Attributes:
        dropped: the number of lines that waited for it; `None` if they could not be counted.
    """

    host: str
    dropped: int | None


def forget(choice: TeamOptions, name: str) -> Forgotten:
    """Remove all files about another host, including lines that wait for it.

    Raises:
        TeamError: the host is unknown, named in the settings, or reachable.
    """
    hosts = other_hosts(choice)
    host = hosts.check(name)
    if host in hosts.named:
        raise TeamError(f"[hosts] allow names {host}; remove it from team.toml first")
    runs = postman_runs(hosts.paths)
    if runs and hosts.view(host).state is HostState.REACHABLE:
        raise TeamError(
            f"{host} is reachable; `teamctl hosts remove {host}` on the broker's host shuts it out"
        )
    dropped = _count(hosts, host)
    _remove_files(HostPlaces(hosts.paths), host)
    if not runs:
        views = Views(hosts.paths)
        views.forget(host)
        views.write()
    elif not _is_let_go(hosts, host):
        raise TeamError(
            f"the postman still knows {host}; `teamd reload` restarts it; then forget the host "
            "again"
        )
    return Forgotten(host, dropped)


def _count(hosts: FarHosts, host: str) -> int | None:
    try:
        return waiting(hosts.paths, host)
    except StoreError:  # damaged, and removed all the same
        return None


def _remove_files(places: HostPlaces, host: str) -> None:
    outbox = places.outbox(host)
    for path in (places.confirmed(host), places.received(host), places.roster(host)):
        files.remove(path)
    for path in find_aside(outbox):
        files.remove(path)
    files.append(outbox, b"", durable=False)  # last, and always: the postman notices the removal
    files.remove(outbox)


def _is_let_go(hosts: FarHosts, host: str) -> bool:
    """Wait until the running postman no longer shows the host."""
    folder = HostPlaces(hosts.paths).root

    def look() -> bool | None:
        return None if any(view.name == host for view in read_views(hosts.paths)) else True

    return wait_for(folder, look, timeout_seconds=_SECONDS) is not None
