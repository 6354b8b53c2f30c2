"""`teamctl hosts add` and `remove`: change the hosts of a broker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from teamctl.hosts.broker_folder import BrokerFolder
from teamctl.hosts.founding import broker_of, with_new_host, write_token
from teamctl.hosts.own import Keys
from teamctl.hosts.record import BrokerRecord
from teamd.errors import TeamError
from teamd.files import files
from teamd.team.teams import name_of

if TYPE_CHECKING:
    from teamd.command_line.run import TeamOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipChange:
    """A host that was added or removed.

    Attributes:
        broker: the broker's folder.
        record: the broker's new record.
        host: the host's name.
        token: the file to take to the host; `None` for a removed host.
    """

    broker: BrokerFolder
    record: BrokerRecord
    host: str
    token: Path | None = None


class NoSuchHost(TeamError):
    """No host of the team has the name.

    Attributes:
        broker: the broker's folder, with a rewritten configuration.
        record: the broker's record.
    """

    def __init__(self, host: str, team: str, broker: BrokerFolder, record: BrokerRecord) -> None:
        known = ", ".join(record.teams.get(team, {})) or "none"
        super().__init__(f"no host named {host!r}; the team's hosts are: {known}")
        self.broker, self.record = broker, record


def add(choice: TeamOptions, host: str) -> MembershipChange:
    """Add a host.

    Raises:
        TeamError: this host has no broker, or the name is taken.
    """
    paths = choice.existing()
    broker, _ = broker_of(paths)
    team = name_of(paths, choice.settings(paths).team.name)
    with broker.changing():
        _, record = broker_of(paths)
        host = host.lower()
        if record.find(team, host) is not None:
            raise TeamError(
                f"there is a host {host} already; "
                f"`teamctl hosts remove {host}` and `hosts add {host}` make another token for it"
            )
        record = with_new_host(record, team, host)
        broker.write(record)
        token = write_token(paths, broker, record, team, host)
    return MembershipChange(broker=broker, record=record, host=host, token=token)


def remove(choice: TeamOptions, host: str) -> MembershipChange:
    """Remove a host.

    Raises:
        TeamError: this host has no broker, the host is unknown, or it is this one.
    """
    paths = choice.existing()
    broker, _ = broker_of(paths)
    settings = choice.settings(paths)
    team = name_of(paths, settings.team.name)
    with broker.changing():
        _, record = broker_of(paths)
        found = record.find(team, host)
        if found is None:
            broker.write(record)  # completes an interrupted removal
            raise NoSuchHost(host, team, broker, record)
        if found == settings.hosts.name:
            raise TeamError(f"{found} is this host, which has the broker; it cannot be removed")
        record = record.without_host(team, found)
        broker.write(record)
        files.remove(Keys(paths).token(found))
    return MembershipChange(broker=broker, record=record, host=found)
