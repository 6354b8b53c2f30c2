"""The checks of other hosts: the postman, and each host that is silent."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from teamctl.doctor import Finding, Level
from teamd.command_line.installation import install_command
from teamd.errors import StoreError
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts, describe_absence
from teamd.hosts.outbox import count_waiting
from teamd.hosts.places import explain_renewal
from teamd.hosts.view import HostState, HostView, postman_runs

if TYPE_CHECKING:
    from teamd.settings import Settings


def check_hosts(settings: Settings, team: TeamPaths | None) -> Iterator[Finding]:
    """Check the other hosts, if this host has a name among them."""
    if settings.hosts.name is None:
        return
    packages = ("nats", "nkeys") if settings.hosts.creds else ("nats",)
    if None in map(find_spec, packages):
        what = "[hosts] is set, and the package that mail to other hosts needs is not there"
        yield Finding(Level.FAIL, what, install_command("hosts"))
    if not settings.hosts.servers:
        what = "[hosts] has a name and no servers, so no other host can be reached"
        yield Finding(Level.FAIL, what, "`teamctl hosts init`, or `teamctl hosts join FILE`")
    if team is not None and (hosts := FarHosts.of(team, settings.hosts, durable=True)) is not None:
        yield from _look_at_all(team, hosts)


def _look_at_all(team: TeamPaths, hosts: FarHosts) -> Iterator[Finding]:
    if pidfile.supervisor(team) is not None and not postman_runs(team):
        what = "teamd runs and its postman does not, so mail to other hosts waits"
        yield Finding(Level.FAIL, what, "`teamctl logs postman` says why")
    if (renewal := explain_renewal(team)) is not None:
        what, _, remedy = renewal.partition("; ")
        yield Finding(Level.FAIL, what, remedy)
    for one in hosts.own_reports():
        yield Finding(Level.NOTE, f"{hosts.name} (this host): {one.text}")
    views = hosts.views()
    if not views:
        what = hosts.describe_solitude()
        yield Finding(Level.NOTE, what, "`teamctl hosts join FILE` on another host adds it")
    for view in views:
        yield from _look(team, view)


def _look(team: TeamPaths, view: HostView) -> Iterator[Finding]:
    try:
        count = count_waiting(team, view.name)
    except StoreError as error:
        what, _, remedy = str(error).partition("; ")
        yield Finding(Level.FAIL, f"{view.name}: {what}", remedy)
        count = 0
    for one in view.reports:
        yield Finding(Level.NOTE, f"{view.name}: {one.text}")
    lines = f"; {count} line{'' if count == 1 else 's'} for it" if count else ""
    if (absent := describe_absence(view)) is not None:
        remedy = "what waits goes there once it is back; `teamctl help hosts` has what to look at"
        yield Finding(Level.NOTE, f"{view.name}: {absent}{lines}", remedy)
    elif view.state is HostState.REACHABLE:
        trip = "" if view.round_trip_ms is None else f" ({view.round_trip_ms:.1f} ms)"
        yield Finding(Level.OK, f"{view.name} is reachable{trip}{lines}")
