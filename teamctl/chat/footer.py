"""The lines below the typed text: who works on what, at what cost, and what waits."""

from __future__ import annotations

from shutil import get_terminal_size
from typing import Final

from teamctl.chat.spending import Spending
from teamctl.chat.work import AT_WORK, describe_step
from teamctl.render import output
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.overview.notices import NoticeKind
from teamd.overview.overview import Overview, OverviewReader
from teamd.team.states import Status

_MOST_ROWS: Final = 3
_STATES: Final = ("waiting", Status.FAILED, Status.PAUSED, Status.IDLE)


class Footer:
    """The state of the team in a few lines, as wide as the terminal.

    Attributes:
        text: the lines from the last `look`.
    """

    def __init__(self, paths: TeamPaths) -> None:
        self._reader = OverviewReader(paths, costs=False, copies=False)
        self._spending = Spending(paths)
        self.text = ""

    def look(self) -> None:
        """Read the team; if that fails, the lines stay as they are."""
        try:
            seen = self._reader.read()
        except TeamError:  # reported where it stops something
            return
        # The terminal moves to the next line after its last column.
        self.text = "\n".join(self._rows(seen, get_terminal_size().columns - 1))

    def _rows(self, seen: Overview, width: int) -> list[str]:
        working = [view for view in seen.members if view.state in AT_WORK]
        rows = []
        for view in working[:_MOST_ROWS]:
            step = " ".join(output.plain(describe_step(view)).split())
            since = output.ago(view.since)
            room = max(1, width - len(since) - 1)
            rows.append(f"{_clip(f'{view.name} {step}', room)} {since}")
        if left := len(working) - _MOST_ROWS:
            rows += [f"and {left} more at work"] * (left > 0)
        return [*rows, _clip(" · ".join(self._rest(seen)), width)]

    def _rest(self, seen: Overview) -> list[str]:
        """Return the parts of the last line, the most urgent first."""
        parts = []
        if asked := len(seen.waiting):
            parts.append(f"{asked} {'request waits' if asked == 1 else 'requests wait'}: /requests")
        stopped = sum(one.kind in (NoticeKind.FAILED, NoticeKind.PAUSED) for one in seen.notices)
        if stopped:
            parts.append(f"{stopped} stopped: /team")
        if seen.unread:
            parts.append(f"{seen.unread} mail{'s' * (seen.unread > 1)}: /inbox")
        parts.append(self._spending.describe())
        for state in _STATES:
            names = [view.name for view in seen.members if view.state == state]
            if names:
                parts.append(f"{state}: {', '.join(names)}")
        return parts


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
