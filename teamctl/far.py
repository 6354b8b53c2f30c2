"""Commands for another host of the team: `NAME@HOST` where a teammate's name stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from teamctl import output
from teamd.command_line.run import INTERRUPTED, TeamOptions
from teamd.errors import BadName, ExitCode, TeamError
from teamd.messages import check_name
from teamd.team.roster import Roster


class FarRefusal(TeamError):
    """Another host's refusal, in its words and with its exit code."""

    def __init__(self, host: str, text: str, code: ExitCode) -> None:
        super().__init__(f"{host} says: {text}")
        self.exit_code = code


def split_host(choice: TeamOptions, name: str) -> tuple[str, str | None]:
    """Return a teammate's name, and the other host it is on; `None` for one of this host.

    Raises:
        BadName: that is no name, of another team, or this host has no name among hosts.
        UnknownHost: no host has that name.
    """
    if "@" not in name:
        return name, None
    from teamctl.post import other_hosts  # noqa: PLC0415 -- only for other hosts

    hosts = other_hosts(choice)
    own, _, place = name.partition("@")
    team, at, host = place.rpartition("@")
    ours = Roster(hosts.paths).read().name
    if at and team.lower() != ours.lower():
        raise BadName(name, f"commands reach the team {ours!r} only: write {own}@{host}")
    check_name(own)
    return own, None if host.lower() == hosts.name.lower() else hosts.check(host)


def refuse_options(host: str, given: Mapping[str, bool]) -> None:
    """Refuse options whose values do not cross, before anything is asked.

    Args:
        host: the other host.
        given: whether each was given, by its name.

    Raises:
        click.UsageError: one is set.
    """
    if found := [name for name, said in given.items() if said]:
        why = f"the settings of {host} decide there"
        raise click.UsageError(f"{', '.join(found)} cannot be said of a teammate on {host}: {why}")


def ask_host(
    choice: TeamOptions, host: str, command: str, arguments: Mapping[str, Any], *, seconds: float
) -> str:
    """Have another host do something; return what it says.

    Raises:
        DeadlinePassed: it is not there, or did not answer in time.
        FarRefusal: it refuses, or failed.
        SystemExit: a person broke it off, and was told that the request stands.
    """
    from teamctl.post import other_hosts  # noqa: PLC0415 -- only for other hosts
    from teamd.hosts.asking import ask  # noqa: PLC0415 -- the same

    try:
        answer = ask(other_hosts(choice), host, command, arguments, seconds=seconds)
    except KeyboardInterrupt as stopped:
        standing = f"teamctl: the request stands: {host} may do it within {seconds:g} s"
        click.echo(choice.add_team_option(f"{standing}; `teamctl team --hosts` shows it"), err=True)
        raise SystemExit(INTERRUPTED) from stopped
    if answer.exit_code is not ExitCode.DONE:
        raise FarRefusal(host, answer.text, answer.exit_code)
    choice.done = f"{host} has done it"
    return answer.text


def print_answer(host: str, text: str, *, as_json: bool) -> None:
    """Print what another host says."""
    output.print_either(f"{host}: {text}", {"host": host, "text": text}, as_json=as_json)
