"""Waiting until the lead and everyone working for it are idle, with a view of their work."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

from teamctl.chat.spending import Spending
from teamctl.mail.receipts import RecordsSinceMessage, TurnEndWatch, explain_end
from teamctl.mail.team_rest import (
    RECHECK_SECONDS,
    Crew,
    RestWatch,
    explain_late,
    find_subagents,
)
from teamctl.render import output
from teamd.errors import DeadlinePassed
from teamd.files.paths import TeamPaths
from teamd.files.watch import wait_for
from teamd.messages import LEAD
from teamd.overview.members import WAITING, MemberView
from teamd.overview.notices import Notice, NoticeKind, describe_request, describe_stopped
from teamd.overview.overview import OverviewReader
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.transcript.records import TurnEnded

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST_ROWS: Final = 6
_NARROWEST: Final = 20
_REDRAW_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class WorkDone:
    """The end of the work on one prompt.

    Attributes:
        text: the last words of the lead.
        members: those that worked, with their states.
        trouble: why it is incomplete, with the command to continue; `None` if it is complete.
    """

    text: str
    members: tuple[MemberView, ...]
    trouble: str | None


class WorkWatch:
    """Waits for the end of the work on a message to the lead.

    Args:
        paths: the team.
        message: the id of the message.
        crew: made before the message was sent.
    """

    def __init__(self, paths: TeamPaths, message: str, crew: Crew) -> None:
        self._paths, self._message, self._crew = paths, message, crew
        self._turn = TurnEndWatch(paths, LEAD, message)
        self._first_turn: TurnEnded | None = None
        self._rest = RestWatch(paths, crew.choose)
        self._roster = Roster(paths)

    def wait(self, seconds: float, show: Callable[[Sequence[Member]], None]) -> WorkDone:
        """Wait for the end; `show` is called with the crew at each look.

        Raises:
            DeadlinePassed: it did not end within `seconds`.
            TeamError: the lead ended, or does not read its mail.
        """

        def look() -> list[Member] | None:
            show(self._crew.choose(self._roster.read()))
            return self._look()

        paths = self._paths
        rested = wait_for(
            paths.transcripts,
            look,
            timeout_seconds=seconds,
            also=[paths.root, paths.inboxes],
            recheck_seconds=RECHECK_SECONDS,
        )
        if rested is None:
            working = [one.name for one in self._working()] or [LEAD]
            hint = (
                "`teamctl wait --all` waits on, and `teamctl transcript lead` shows the last words"
            )
            stopped = _find_stopped(paths, self._views(self._crew.choose(self._roster.read())))
            raise DeadlinePassed(
                f"{explain_late(working, seconds)}; {explain_stop(stopped) or hint}"
            )
        return self._describe([one for one in rested if self._crew.has_acted(one)])

    def working(self) -> list[str]:
        """Return the names of those that are at work, besides the lead."""
        return [one.name for one in self._working() if one.name != LEAD]

    def _working(self) -> list[Member]:
        crew = self._crew.choose(self._roster.read())
        return [one for one in crew if self._rest.is_busy(one)]

    def _look(self) -> list[Member] | None:
        if self._first_turn is None:
            self._first_turn = self._turn.look()
        if self._first_turn is None:
            return None
        crew = self._crew.choose(self._roster.read())
        if [one.name for one in crew] == [LEAD] and not self._may_wake(crew[0]):
            return crew
        return self._rest.look()

    def _may_wake(self, lead: Member) -> bool:
        """Return whether a lead without a team may go on: it may not yet know of a result."""
        return self._rest.is_busy(lead) or any(find_subagents(self._paths))

    def _describe(self, members: Sequence[Member]) -> WorkDone:
        since = RecordsSinceMessage(
            self._paths.transcript(LEAD), lambda mail: mail.id == self._message
        )
        ends = [one for one in since.records() if isinstance(one, TurnEnded)]
        said = [one.text for one in ends if explain_end(LEAD, one) is None and one.text.strip()]
        views = self._views(members)
        own = explain_end(LEAD, ends[-1]) if ends else None
        stopped = _find_stopped(self._paths, views)
        if any(one.about == LEAD and one.kind is NoticeKind.WAITING for one in stopped):
            own = None  # the request says more
        elif own:
            stopped = [one for one in stopped if one.about != LEAD]
        trouble = "; ".join(filter(None, (own, explain_stop(stopped))))
        return WorkDone(said[-1] if said else "", tuple(views), trouble or None)

    def _views(self, members: Sequence[Member]) -> list[MemberView]:
        names = {one.name for one in members}
        seen = OverviewReader(self._paths, costs=False, copies=False).read()
        return [view for view in seen.members if view.name in names]


def _find_stopped(paths: TeamPaths, views: Sequence[MemberView]) -> list[Notice]:
    """Return the notices about members that go on only after an action of the person.

    A request to the lead counts, too: the lead has ended its turn without an answer.
    """
    waiting = [
        describe_request(view.request)
        for view in views
        if view.state == WAITING and view.request is not None
    ]
    return [*waiting, *describe_stopped(paths, views)]


def explain_stop(notices: Sequence[Notice]) -> str | None:
    """Return a sentence on what needs the person, with the commands; `None` for nothing."""
    if not notices:
        return None
    first, *more = notices
    said = first.lines[0]
    if first.kind is NoticeKind.WAITING:
        said = f"{first.text}; {' or '.join(f'`{command}`' for command in first.commands)}"
    also = f"; {len(more)} more: `teamctl team`" if more else ""
    return f"{said}{also}; then `teamctl wait --all` waits for the rest"


Show = Callable[[Sequence[Member]], None]


@contextmanager
def shown_progress(paths: TeamPaths) -> Iterator[Show]:
    """Show who works on what below the last line of the terminal, until the end of the block.

    Without a terminal on standard error nothing is shown.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 -- 80 ms, only on a terminal
    from rich.live import Live  # noqa: PLC0415 -- the same

    table = _ProgressTable(paths)
    console = Console(stderr=True, highlight=False)
    with Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False) as live:
        drawn = 0.0

        def show(members: Sequence[Member]) -> None:
            nonlocal drawn
            if time.monotonic() - drawn >= _REDRAW_SECONDS:
                live.update(table.draw({one.name for one in members}), refresh=True)
                drawn = time.monotonic()

        yield show


class _ProgressTable:
    """One row for each member at work, then the time and cost of all since the start."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._reader = OverviewReader(paths, costs=False, copies=False)
        self._spending = Spending(paths)

    def draw(self, names: set[str]) -> RenderableType:
        from rich.table import Table  # noqa: PLC0415 -- only on a terminal
        from rich.text import Text  # noqa: PLC0415 -- the same

        views = [view for view in self._reader.read().members if view.name in names]
        working = [view for view in views if view.state in AT_WORK]
        # Room for the `^C` of the terminal, which would move the lines.
        table = Table.grid(padding=(0, 1))
        table.width = max(_NARROWEST, get_terminal_size().columns - len("^C") - 1)
        table.add_column(no_wrap=True, style="green")
        table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
        table.add_column(no_wrap=True, justify="right", style="dim")
        for view in working[:_MOST_ROWS]:
            doing = output.plain(describe_step(view)).replace("\n", " ")
            table.add_row(Text(view.name), Text(doing), output.ago(view.since))
        left = len(working) - _MOST_ROWS
        more = f"and {left} more" if left > 0 else ""
        others = [f"{view.name} {view.state}" for view in views if view.state in _HELD]
        table.add_row(
            "",
            Text(", ".join(filter(None, (more, *others))), style="dim"),
            self._spending.describe(),
        )
        return table


AT_WORK: Final = ("working", "pausing")
_HELD: Final = ("waiting", "paused", "failed")


def describe_step(view: MemberView) -> str:
    """Return the current step of a member at work."""
    return "thinks" if view.describes in ("", "model") else view.describes
