"""The tabs of the team beside its members: the tables of `tasks`, `queue`, `usage` and `trace`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from teamctl.mail.team_mail import TeamMail
from teamctl.render.message_table import NO_MESSAGES, MessageRow, message_table
from teamctl.render.queue_table import EMPTY_QUEUE, NOT_MERGING, queue_notes, queue_table
from teamctl.render.tables import Cell, FittedTable
from teamctl.render.task_table import NO_TASKS, task_facts, task_notes, task_state, task_table
from teamctl.render.usage_table import usage_notes, usage_table
from teamctl.top.drawing import USAGE
from teamd.board.files import Tasks, read_all
from teamd.board.task import Task, TaskStatus
from teamd.budget.ledger import Ledger
from teamd.command_line.run import TeamOptions
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.mail.trace import DeliveryStage
from teamd.overview.branch import read_ahead
from teamd.overview.usage import read_uses
from teamd.team.roster import Roster

_NO_USE: Final = "no model was asked yet; `teamctl spawn NAME ROLE PROMPT` starts a teammate"
_WAITS: Final = (DeliveryStage.QUEUED, DeliveryStage.TAKEN)


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of a tab.

    Attributes:
        table: its rows.
        details: a title and the whole text of each row, by the row's key, in the order of the rows.
        notes: lines below the table.
    """

    table: FittedTable
    details: dict[str, str]
    notes: Sequence[Cell] = ()

    @classmethod
    def of_tasks(
        cls, shown: Sequence[Task], tasks: Tasks, check: str = "", notes: Sequence[Cell] = ()
    ) -> Self:
        """Return some tasks of the board; `check` is the team's."""
        details = {}
        for task in shown:
            facts = f"status: {task_state(task, tasks)}", *task_facts(task, check)
            details[task.id] = "\n".join((f"task {task.id}: {task.subject}", "", *facts))
        return cls(task_table(shown, tasks, check), details, notes)


Reader: TypeAlias = Callable[[], Listing]


def board_reader(choice: TeamOptions, paths: TeamPaths) -> Reader:
    """Return a function that reads the board."""

    def read() -> Listing:
        tasks = read_all(paths)
        check = "" if choice.without_settings(paths) else choice.settings(paths).tasks.check
        shown = [one for one in tasks.by_id.values() if one.status is not TaskStatus.DELETED]
        told = [(line, "red") for line in tasks.damaged.values()]
        told += [(line, "yellow") for _, line in task_notes(Roster(paths).read(), tasks)]
        return Listing.of_tasks(shown, tasks, check, told)

    return read


def queue_reader(_: TeamOptions, paths: TeamPaths) -> Reader:
    """Return a function that reads the merge queue."""

    def read() -> Listing:
        from teamd.merges import queue  # noqa: PLC0415 -- 20 ms, only for this tab

        entries = queue.read(paths)
        table = queue_table(entries.all)
        told = [(line, "yellow") for line in queue_notes(entries.all)]
        if entries.open and pidfile.supervisor(paths) is None:
            told.append((NOT_MERGING, "yellow"))
        if ahead := read_ahead(paths, Roster(paths).read()):
            told.append((ahead.line, "cyan"))
        return Listing(table, _describe(table, (entry.id for entry in entries.all)), told)

    return read


def usage_reader(_: TeamOptions, paths: TeamPaths) -> Reader:
    """Return a function that reads tokens and cost; the keys are names."""

    def read() -> Listing:
        members, total = read_uses(paths, Ledger(paths.ledger).read())
        uses = [*members, total] if members else []
        table = usage_table(uses)
        told = [(line, "yellow") for line in usage_notes([*members, total])]
        return Listing(table, _describe(table, (use.name for use in uses)), told)

    return read


def mail_reader(_: TeamOptions, paths: TeamPaths) -> Reader:
    """Return a function that reads the team's latest messages, the newest first."""
    mail = TeamMail(paths)

    def read() -> Listing:
        mail.look()
        rows, details = list[MessageRow](), dict[str, str]()
        for one in mail.find("")["messages"]:
            state = "waits" if one["stage"] in _WAITS else one["stage"]
            rows.append((one["id"], one["from"], one["to"], one["sent"], state, one["content"]))
            cut = f"\n… and {one['more']} more characters" if one["more"] else ""
            head = f"{one['from']} to {one['to']}, {state}: {one['id']}"
            key = f"{one['to']} {one['from']} {one['id'] or one['position']} {one['content']}"
            details[key] = "\n".join((head, one["summary"], one["content"] + cut))
        return Listing(message_table(rows, ids=False), details)

    return read


def _describe(table: FittedTable, keys: Iterable[str]) -> dict[str, str]:
    """Return the uncut cells of each row with their headings, by the row's key."""
    return {
        key: "\n".join(
            f"{heading.lower()}: {text}"
            for heading, (text, _) in zip(table.headings, row, strict=True)
        )
        for key, row in zip(keys, table.rows, strict=True)
    }


# How to read each tab, and the sentence in an empty one, which names a command that fills it.
READERS: Final[dict[str, tuple[Callable[[TeamOptions, TeamPaths], Reader], str]]] = {
    "Board": (board_reader, NO_TASKS),
    "Queue": (queue_reader, EMPTY_QUEUE),
    USAGE: (usage_reader, _NO_USE),
    "Mail": (mail_reader, NO_MESSAGES),
}
