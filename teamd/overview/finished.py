"""The notice that the work is done, until the person has looked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from teamd.board.files import Tasks
from teamd.board.task import TaskStatus
from teamd.errors import StoreError
from teamd.files import lines
from teamd.files.file_stamp import remember
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD
from teamd.overview.members import MemberView
from teamd.overview.notices import Notice, describe_board_done, describe_lead_done
from teamd.team.states import Status
from teamd.transcript.file import decode
from teamd.transcript.records import TurnEnded

_ENDED: Final = b'{"record": "%s"' % TurnEnded.kind.encode()


class FinishReader:
    """Finds out whether the work of a team is done and the person has not looked since.

    `chat`, `transcript lead`, `inbox`, `tasks`, `wait --all` and the page's chat and board call
    `TeamPaths.note_seen`.

    Args:
        board: reads the tasks.
    """

    def __init__(self, paths: TeamPaths, board: Callable[[], Tasks]) -> None:
        self._paths = paths
        self._last_turn = remember(paths.transcript(LEAD), partial(_read_last_turn, paths))
        self._board = board

    def read(self, members: Sequence[MemberView]) -> Notice | None:
        """Return the notice; `None` while anybody works, or once the person has looked."""
        if not members or any(view.has_work for view in members):
            return None
        lead = next((view for view in members if view.name == LEAD), None)
        if lead is None or lead.state == Status.SHUTDOWN:
            return self._read_board_done()
        turn = self._last_turn()
        if turn is None or turn.outcome != "end_turn" or self._seen_since(turn.time):
            return None
        return describe_lead_done(self._paths, turn.text, turn.time) if turn.text.strip() else None

    def _read_board_done(self) -> Notice | None:
        try:
            changed = self._paths.tasks.stat().st_mtime
        except OSError:
            return None
        if self._seen_since(changed):  # most often, and the board need not be read
            return None
        time_done, count = _find_done(self._board())
        seen = self._seen_since(time_done)
        return None if seen else describe_board_done(self._paths, count, time_done)

    def _seen_since(self, moment: float) -> bool:
        try:
            return self._paths.seen_mark.stat().st_mtime >= moment
        except OSError:
            return not moment


def _find_done(board: Tasks) -> tuple[float, int]:
    """Return when the last task was completed, and how many are; zeros if one is open."""
    tasks = board.by_id.values()
    done = [task.updated for task in tasks if task.status is TaskStatus.COMPLETED]
    if not done or any(task.status.open for task in tasks):
        return 0.0, 0
    return max(done), len(done)


def _read_last_turn(paths: TeamPaths) -> TurnEnded | None:
    path = paths.transcript(LEAD)
    try:
        for start in lines.find_lines(path, _ENDED):
            record = decode(next(lines.read_lines(path, start)))
            return record if isinstance(record, TurnEnded) else None
    except StoreError:
        return None
    return None
