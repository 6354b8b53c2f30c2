"""The arguments of commands: options, and names for shell completion."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias

import click

from teamd.board.files import ids_in
from teamd.command_line import terminal
from teamd.command_line.options import Seconds
from teamd.errors import TeamError
from teamd.files import find_team
from teamd.files.paths import TeamPaths
from teamd.hosts.places import HostPlaces
from teamd.masking import Mask
from teamd.messages import LEAD, TEAMD, USER
from teamd.secret_environment import secrets_in
from teamd.team.roster import Roster

_MOST_BYTES: Final = 1 << 24  # a limit, because standard input may be endless


def text_or_stdin(argument: str) -> str:
    """Return the argument, or all of standard input if it is `-`, without known secrets.

    Raises:
        TeamError: standard input is too long.
    """
    if argument != "-":
        return without_secrets(argument)
    found = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        what = f"standard input holds more than {_MOST_BYTES} bytes"
        raise TeamError(f"{what}; put the text into a file and send its path")
    return without_secrets(found.decode("utf-8", "replace"))


def not_empty(text: str) -> str:
    """Return a message's text, or raise a `TeamError` if it is blank."""
    if not text.strip():
        raise TeamError("the text is empty; a message needs one, such as `teamctl send bob Hello`")
    return text


def confirm(question: str) -> None:
    """Ask the person to confirm an action that cannot be undone; scripts are not asked.

    Raises:
        TeamError: the person declines.
    """
    if sys.stdin.isatty() and ask(f"{question} [y/N]").lower() not in ("y", "yes"):
        raise TeamError("nothing was done")


def ask(question: str) -> str:
    """Ask the person for a line; without a terminal it is empty."""
    if not sys.stdin.isatty():
        return ""
    terminal.echo(question, err=True)
    return without_secrets(sys.stdin.readline().strip())


def without_secrets(text: str) -> str:
    """Return a text without the secrets in the environment."""
    return Mask(*secrets_in(os.environ)).text(text)


_AGO: Final = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_CLOCK: Final = re.compile(r"\d\d:\d\d(:\d\d)?")
SINCE_HELP: Final = (
    "Only what happened since then: `10m` (`s`, `m`, `h`, `d`, `w`), a time, a date."
)


def parse_when(text: str, now: float | None = None) -> float:
    """Return the time that a text denotes, in seconds since the epoch.

    Args:
        text: a duration before now, a time of today, or a date in ISO 8601; local time unless it
            has a time zone.
        now: the current time by default.

    Raises:
        click.UsageError: the text does not denote a time.
    """
    now = time.time() if now is None else now
    if ago := _AGO.fullmatch(text):
        return now - int(ago[1]) * _SECONDS[ago[2]]
    if _CLOCK.fullmatch(text):
        today = datetime.fromtimestamp(now, UTC).astimezone().date()
        text = f"{today.isoformat()}T{text}"
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError) as error:
        what = f"--since {text!r} is no time"
        raise click.UsageError(
            f"{what}; give 10m, 2h, 3d, 17:05, 2026-03-24 or 2026-03-24T17:05"
        ) from error


Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


REQUEST_SECONDS: Final = 30.0  # until the supervisor answers
COPY_SECONDS: Final = 600.0  # for a request that makes a working copy first

fresh_option = click.option(
    "--fresh", is_flag=True, help="Begin a new conversation; the transcript keeps the old one."
)
copy_option = click.option(
    "--worktree/--no-worktree",
    default=None,
    help="Let it work in a copy of its own, or in the shared folder  [default: as before].",
)
timeout_option = click.option(
    "--timeout",
    type=Seconds(zero=False),
    callback=lambda _, __, seconds: math.inf if seconds is None else seconds,
    help="How many seconds to wait at most  [default: no limit].",
)
no_start_option = click.option(
    "--no-start", is_flag=True, help="Do not start teamd where none runs: fail with status 3."
)
grace_option = partial(
    click.option,
    "--timeout",
    type=Seconds(zero=True),
    default=10.0,
    show_default=True,
)


def _completing(find: Callable[[TeamPaths], Iterable[str]]) -> Complete:
    """Return a callback that completes the names that `find` returns for a team."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 -- click's
        options = context.find_root().params
        try:
            found = find(find_team.existing(options.get("team_dir"), options.get("team")))
            names = list(dict.fromkeys(found))  # a lead agent is a member, too
        except TeamError:
            return []  # pressing Tab must not print errors
        return [name for name in names if name.lower().startswith(begun.lower())]

    return complete


def members(team: TeamPaths) -> list[str]:
    return [member.name for member in Roster(team).read().members]


def _elsewhere(team: TeamPaths, *, address: bool) -> Iterator[str]:
    """Yield the members of other hosts, from their last reports.

    Args:
        team: the team.
        address: whether to yield mail addresses, which contain the team's name.
    """
    from teamd.hosts import rosters  # noqa: PLC0415 -- the same

    places = HostPlaces(team)
    for host in places.known():
        if (roster := rosters.read(places.roster(host))) is not None:
            at = f"{roster.team}@{host}" if address else host
            yield from (f"{member.name}@{at}" for member in roster.members)


def answerable(team: TeamPaths) -> list[str]:
    """Return the ids of the requests that the person may answer."""
    from teamctl.mail.router import open_approvals  # noqa: PLC0415 -- only for completion

    return [one.id for one in open_approvals(team) if one.may_be_answered_by(USER)]


teammates = _completing(members)
everywhere = _completing(lambda team: (*members(team), *_elsewhere(team, address=False)))
boxes = _completing(lambda team: (*members(team), LEAD))
receivers = _completing(lambda team: (*members(team), LEAD, *_elsewhere(team, address=True)))
logs = _completing(lambda team: (*members(team), TEAMD))
tasks = _completing(lambda team: ids_in(team.tasks))
approvals = _completing(answerable)
