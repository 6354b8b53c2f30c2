"""`teamctl ps`: the processes of a team: teamd, the teammates, and the commands below them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import click

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

if TYPE_CHECKING:
    import psutil


_HEADINGS: Final = ("PID", "NAME", "UP", "CPU", "MEM", "COMMAND")
_NUMBERS: Final = ("PID", "UP", "CPU", "MEM")
_SHAPE: Final = Shape(
    elastic={"COMMAND": 12, "NAME": 12}, spare=("CPU", "UP"), dispensable=("MEM", "COMMAND")
)
_LONGEST: Final = 160  # characters; a sandbox command line has thousands, and --json shows all


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """A process of a team.

    Attributes:
        name: the teammate that it belongs to, or `teamd`.
        command: its command line; empty for teamd and the teammates themselves.
        memory_bytes: including its share of shared memory, if this user may read that.
    """

    pid: int
    parent: int
    name: str
    command: str
    started: float
    cpu_seconds: float
    memory_bytes: int

    def cells(self) -> list[str]:
        """Return the row of the table."""
        up, cpu = output.duration(time.time() - self.started), f"{self.cpu_seconds:.1f}s"
        memory, command = output.count(self.memory_bytes), " ".join(self.command.split())
        if len(command) > _LONGEST:
            command = f"{command[: _LONGEST - 1]}…"
        return [str(self.pid), self.name, up, cpu, memory, command or "-"]


@click.command()
@output.json_option
@team_options
def command(choice: TeamOptions, *, as_json: bool) -> None:
    """List the processes of the team: teamd, each teammate, and the commands that run below it."""
    paths = choice.existing()
    supervisor = pidfile.check(paths)
    found = list(_processes(supervisor.pid, *_known(paths, supervisor.pid)))
    if as_json:
        output.print_json({"processes": [asdict(one) for one in found]})
    else:
        tables.print_table(_HEADINGS, (one.cells() for one in found), _NUMBERS, _SHAPE)


def _known(paths: TeamPaths, supervisor: int) -> tuple[dict[int, str], dict[int, int]]:
    """Return the names of known processes by pid, and the memory that they report."""
    names, memory = {supervisor: TEAMD}, {}
    for member in Roster(paths).read().members:
        seen = look_at(paths, member, None, None)
        if member.process is not None and seen.alive:
            names[member.process.pid] = member.name
            memory[member.process.pid] = seen.memory_bytes or 0
    return names, memory


def _processes(
    root: int, names: Mapping[int, str], memory: Mapping[int, int]
) -> Iterator[_Process]:
    """Yield a process and its descendants, each after its parent."""
    import psutil  # noqa: PLC0415 -- 20 ms, only here

    def under(process: psutil.Process, name: str) -> Iterator[_Process]:
        try:
            with process.oneshot():
                name = names.get(process.pid, name)
                own = process.pid in names
                times = process.cpu_times()
                yield _Process(
                    pid=process.pid,
                    parent=process.ppid(),
                    name=name,
                    command="" if own else " ".join(process.cmdline()) or process.name(),
                    started=process.create_time(),
                    cpu_seconds=times.user + times.system,
                    memory_bytes=memory.get(process.pid) or _memory_of(process),
                )
            below = process.children()
        except psutil.Error:  # just ended, or another user's
            return
        for child in below:
            yield from under(child, name)

    yield from under(psutil.Process(root), TEAMD)


def _memory_of(process: psutil.Process) -> int:
    identity = Identity.of(process.pid)
    proportional = None if identity is None else identity.memory()
    return proportional or int(process.memory_info().rss)
