"""`teamctl ps`: the processes of a team: teamd, the teammates, and the commands below them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
import psutil

from teamctl.render import output, tables
from teamctl.render.tables import Shape
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.messages import TEAMD
from teamd.overview.members import look_at
from teamd.process_id import Identity
from teamd.team.roster import Roster

_HEADINGS: Final = ("PID", "NAME", "UP", "CPU", "MEM", "COMMAND")
_NUMBERS: Final = ("PID", "UP", "CPU", "MEM")
_SHAPE: Final = Shape(
    elastic={"COMMAND": 12, "NAME": 12}, spare=("CPU", "UP"), dispensable=("MEM", "COMMAND")
)
_LONGEST: Final = 160  # characters; a sandbox command line has thousands, and --json shows all


@click.command()
@output.json_option
@team_options
def command(choice: TeamOptions, *, as_json: bool) -> None:
    """List the processes of the team: teamd, each teammate, and the commands that run below it.

    Linux's `top` and `ps -e` show them as `teamd` and `teamd: NAME`.
    """
    paths = choice.existing()
    supervisor = pidfile.check(paths)
    found = list(_processes(psutil.Process(supervisor.pid), TEAMD, *_known(paths, supervisor.pid)))
    if as_json:
        output.print_json({"processes": found})
    else:
        tables.print_table(_HEADINGS, map(_cells, found), _NUMBERS, _SHAPE)


def _known(paths: TeamPaths, supervisor: int) -> tuple[dict[int, str], dict[int, int]]:
    """Return the names of known processes by pid, and the memory that they report."""
    names, memory = {supervisor: TEAMD}, {}
    for member in Roster(paths).read().members:
        seen = look_at(paths, member, None, None, served=True)
        if member.process is not None and seen.alive:
            names[member.process.pid] = member.name
            memory[member.process.pid] = seen.memory_bytes or 0
    return names, memory


def _processes(
    process: psutil.Process, name: str, names: Mapping[int, str], memory: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    """Yield a process and its descendants as `--json` shows them, each after its parent.

    The command of teamd and of a teammate itself is empty. Memory includes the share of shared
    pages, if this user may read it.
    """
    try:
        with process.oneshot():
            name = names.get(process.pid, name)
            own = process.pid in names
            times = process.cpu_times()
            yield {
                "pid": process.pid,
                "parent": process.ppid(),
                "name": name,
                "command": "" if own else " ".join(process.cmdline()) or process.name(),
                "started": process.create_time(),
                "cpu_seconds": times.user + times.system,
                "memory_bytes": memory.get(process.pid) or _memory_of(process),
            }
        below = process.children()
    except psutil.Error:  # just ended, or another user's
        return
    for child in below:
        yield from _processes(child, name, names, memory)


def _cells(found: dict[str, Any]) -> list[str]:
    up, cpu = output.duration(time.time() - found["started"]), f"{found['cpu_seconds']:.1f}s"
    memory, command = output.count(found["memory_bytes"]), " ".join(found["command"].split())
    if len(command) > _LONGEST:
        command = f"{command[: _LONGEST - 1]}…"
    return [str(found["pid"]), found["name"], up, cpu, memory, command or "-"]


def _memory_of(process: psutil.Process) -> int:
    identity = Identity.of(process.pid)
    proportional = None if identity is None else identity.memory()
    return proportional or int(process.memory_info().rss)
