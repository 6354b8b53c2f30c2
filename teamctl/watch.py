"""`teamctl team --watch`: the overview of a team as it changes, on a screen or line by line."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from teamctl import output, roster_table
from teamd.files.paths import TeamPaths
from teamd.files.watch import Watch, watch
from teamd.overview.members import MemberView
from teamd.overview.overview import Overview, OverviewReader

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.segment import Segment

    from teamd.command_line.run import TeamOptions

Lines = list[list["Segment"]]

# Between two looks where nothing changes: where seconds are shown they go on, and who has died
# leaves no trace in any file.
_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 5.0
_MINUTE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.25  # between two looks where everything changes
_LEAST_ROWS: Final = 3  # of the table; notices leave room for them
_SMALL: Final = 16  # lines: there is none for a hint
_HINT: Final = "q ends, arrows and page keys scroll"
# Who needs a person comes first.
_ORDER: Final = ("waiting", "failed", "paused", "retrying", "working", "idle", "shutdown")
_ENDS: Final = frozenset({b"q", b"Q", b"\x04"})
_FAR: Final = 1 << 20
_STEPS: Final = {
    b"j": 1, b"\x1b[B": 1, b"\x1bOB": 1, b"k": -1, b"\x1b[A": -1, b"\x1bOA": -1,
    b"g": -_FAR, b"\x1b[H": -_FAR, b"G": _FAR, b"\x1b[F": _FAR,
}  # fmt: skip
_PAGES: Final = {b" ": 1, b"\x1b[6~": 1, b"b": -1, b"\x1b[5~": -1}


def watch_team(choice: TeamOptions, paths: TeamPaths) -> None:
    """Show the team until somebody presses q or Ctrl-C."""
    if not sys.stdout.isatty():
        raise click.UsageError("--watch needs a terminal; `teamctl team --json` is for programs")
    reader = OverviewReader(paths)

    def read() -> Overview:
        return reader.read(choice.waiting(paths))

    if os.environ.get("TERM", "dumb") == "dumb":
        _show_lines(paths, read)
    else:
        _show_screen(paths, read)


def problems_first(views: tuple[MemberView, ...]) -> list[MemberView]:
    """Return the members, those first that need a person."""
    return sorted(views, key=lambda view: _ORDER.index("retrying" if view.retry else view.state))


def total(seen: Overview) -> str:
    """Return how many members there are, how they are, and what all of them have used."""
    states = [view.state for view in problems_first(seen.members)]
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    mail = sum(view.queued or 0 for view in seen.members)
    usd = sum(view.account.known_usd or 0 for view in seen.members if view.account)
    members = "1 member" if len(states) == 1 else f"{len(states)} members"
    return f"{members}: {', '.join(counts)}; {mail} in inboxes, ${usd:.2f}"


@dataclass(slots=True)
class Screen:
    """The screen: as much of the team as there is room for.

    Attributes:
        first: how many rows are scrolled away.
        seconds: how long what was drawn last is true where nothing happens.
    """

    console: Console
    first: int = 0
    seconds: float = _SECONDS
    _room: int = 1

    def press(self, key: bytes) -> bool:
        """Take a key; return whether it ends the watch."""
        self.first += _STEPS.get(key, 0) + _PAGES.get(key, 0) * self._room
        return key in _ENDS

    def draw(self, seen: Overview) -> RenderableType:
        """Return what is shown now."""
        from rich.segment import SegmentLines  # noqa: PLC0415 -- only where something is drawn

        self.seconds = pace(seen)
        return SegmentLines(self._lay_out(seen), new_lines=True)

    def _lay_out(self, seen: Overview) -> Lines:
        height = self.console.height - 1  # below the last line stands the cursor
        heading, *rows = self._rows(seen)
        above = self._render(*roster_table.notices(seen))
        below = self._render((total(seen), "bold"), (_HINT, "bright_black"), fold=False)
        below = below[: 1 if height < _SMALL else 2]
        most = max(1, height - min(len(rows), _LEAST_ROWS) - len(below) - 2)
        if len(above) > most:
            more = (f"+{len(above) - most + 1} more lines: `teamctl team`", "")
            above = [*above[: most - 1], *self._render(more, fold=False)]
        self._room = max(1, height - len(above) - 1 - len(below))
        shown = [*above, heading, *self._window(rows)]
        notes = self._render(*roster_table.notes(seen))
        return [*shown, *notes[: max(0, height - len(shown) - len(below))], *below][:height]

    def _window(self, rows: Lines) -> Lines:
        """Return the rows that there is room for, and how many are left out where some are."""
        if len(rows) <= self._room:
            self.first = 0
            return rows
        self._room = max(1, self._room - 1)
        self.first = min(max(0, self.first), len(rows) - self._room)
        shown = rows[self.first : self.first + self._room]
        behind = len(rows) - self.first - len(shown)
        counts = [f"+{behind} more"] * bool(behind) + [f"{self.first} above"] * bool(self.first)
        return [*shown, *self._render((", ".join(counts), "bright_black"))]

    def _rows(self, seen: Overview) -> Lines:
        rows = [list(roster_table.cells(view)) for view in problems_first(seen.members)]
        return self.console.render_lines(roster_table.table(rows), pad=False)

    def _render(self, *lines: tuple[str, str], fold: bool = True) -> Lines:
        found: Lines = []
        for text, style in lines:
            cell = output.cell(text, style)
            if not fold:
                cell.truncate(self.console.width, overflow="ellipsis")
            found += self.console.render_lines(cell, pad=False)
        return found


def _show_screen(paths: TeamPaths, read: Callable[[], Overview]) -> None:
    from rich.live import Live  # noqa: PLC0415 -- only where something is drawn

    console = output.console()
    screen = Screen(console)
    with (
        Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live,
        _keys() as keys,
    ):
        for pressed in _looks(paths, keys, lambda: screen.seconds):
            if any(map(screen.press, pressed)):
                return
            live.update(screen.draw(read()), refresh=True)


def _show_lines(paths: TeamPaths, read: Callable[[], Overview]) -> None:
    """Print the team, and then a line for whatever changes."""
    seen = read()
    roster_table.show(seen)
    for _ in _looks(paths, [], lambda: _QUIET_SECONDS):
        before, seen = seen, read()
        for line in changes(before, seen):
            click.echo(output.plain(line))


def changes(before: Overview, now: Overview) -> Iterator[str]:
    """Yield a line for each member that does something else, and for each new notice."""
    clock = output.clock(time.time())
    for view in now.members:
        was = before.find(view.name)
        if was is None or _gist(was) != _gist(view):
            yield " ".join(filter(None, (clock, view.name, view.state, view.describes)))
    for view in before.members:
        if now.find(view.name) is None:
            yield f"{clock} {view.name} left the team"
    known = [notice.lines for notice in before.notices]
    for notice in now.notices:
        if notice.lines not in known:
            yield from notice.lines


def _gist(view: MemberView) -> tuple[object, ...]:
    """Return what of a member is news where it changes; a retry counts down all the time."""
    if view.retry is not None:
        return view.state, view.retry.attempt, view.retry.cause
    return view.state, view.describes


@contextmanager
def _keys() -> Iterator[list[int]]:
    """Have keys come one by one, and unseen; see `_looks`."""
    fd = sys.stdin.fileno()
    if not os.isatty(fd):
        yield []
        return
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield [fd]
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def pace(seen: Overview) -> float:
    """Return the seconds to the next look, where nothing happens meanwhile."""
    moments = [moment for view in seen.members for moment in (view.since, view.member.since)]
    young = any(moment and time.time() - moment < _MINUTE_SECONDS for moment in moments)
    counting = young or any(view.retry for view in seen.members)
    return _SECONDS if counting else _QUIET_SECONDS


def _looks(
    paths: TeamPaths, keys: list[int], seconds: Callable[[], float]
) -> Iterator[list[bytes]]:
    """Yield the keys that were pressed, whenever it is time for a look.

    Args:
        paths: of the team.
        keys: the descriptor that they come from, if anybody can press any.
        seconds: returns how long to wait where nothing happens.
    """
    folders = (paths.root, paths.inboxes, paths.requests, paths.activities)
    with ExitStack() as stack:
        watches = [stack.enter_context(closing(watch(folder))) for folder in folders]
        pressed: list[bytes] = []
        while True:
            yield pressed
            pressed = []
            waited: list[Watch | int] = [*watches, *keys]
            if select.select(waited, [], [], seconds())[0]:
                select.select(keys, [], [], _PAUSE_SECONDS)  # what comes meanwhile is one look
            for watching in watches:
                watching.changed()
            if select.select(keys, [], [], 0)[0]:
                if not (typed := os.read(keys[0], 64)):  # the terminal has gone
                    return
                pressed = _split(typed)


def _split(typed: bytes) -> list[bytes]:
    """Return the keys in what was typed."""
    known = sorted((*_STEPS, *_PAGES, *_ENDS), key=len, reverse=True)
    found = []
    while typed:
        key = next((one for one in known if typed.startswith(one)), typed[:1])
        found.append(key)
        typed = typed[len(key) :]
    return found
