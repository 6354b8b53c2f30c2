"""The picture of a team at one moment: all that `top` shows besides the tabs of a teammate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from teamctl import output
from teamctl.post import open_approvals
from teamctl.roster_table import Row, measure
from teamd.approvals.approval import Approval, Kind
from teamd.files import pidfile
from teamd.messages import USER

if TYPE_CHECKING:
    from teamctl.plain_table import Cell
    from teamd.files.paths import TeamPaths
    from teamd.team.roster import Roster

_WAITING: Final = "waiting"  # the state of a member whose own request waits for an answer
_BEHIND: Final = "because of "  # what follows in a permission's text is not what is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Mate:
    """A member as its row shows it.

    Attributes:
        state: in a word.
        since: when that began, in seconds since the epoch; `None` where nobody knows.
        doing: what it does now, in a few words.
        context: the share of its window that is used, from 0 to 1.
        facts: what is counted of it, by the headings of the columns.
        reason: why it is paused or failed, in a sentence.
    """

    name: str
    role: str
    state: str
    since: float | None
    doing: str
    context: float | None
    facts: tuple[tuple[str, str], ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request that waits for the person.

    Attributes:
        kind: what it asks for, in a word.
        asked: seconds since the epoch.
        exact: what would be allowed, without the words around it.
        whole: its text, as it came.
    """

    id: str
    asker: str
    kind: str
    asked: float
    exact: str
    whole: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A team as its files have it.

    Attributes:
        name: of the team.
        asks: the requests that wait for the person, the oldest first.
        running: whether a `teamd` serves it.
        notes: what a person should know besides.
    """

    name: str
    mates: tuple[Mate, ...]
    asks: tuple[Ask, ...]
    running: bool
    notes: tuple[Cell, ...]


def look(paths: TeamPaths, roster: Roster, note: str = "") -> Picture:
    """Read the picture of a team; nothing is locked, taken or written.

    Raises:
        StoreError: the roster cannot be read.
    """
    team = roster.read()
    rows, trouble = measure(paths, team)
    running = pidfile.supervisor(paths) is not None
    asks = [one for one in open_approvals(paths) if one.may_be_answered_by(USER)]
    notes: list[Cell] = [(text, "yellow") for text in (note, trouble) if text]
    if not running:
        idle = f"no teamd runs for {paths.root}; `teamd start` starts it"
        notes.append((paths.addressed(idle), "yellow"))
    return Picture(
        name=team.name,
        mates=tuple(map(_mate, rows)),
        asks=tuple(_ask(one) for one in asks if not one.overdue),
        running=running,
        notes=tuple(notes),
    )


def _mate(row: Row) -> Mate:
    member = row.member
    return Mate(
        name=member.name,
        role=member.role,
        state=str(member.status) if row.waiting is None else _WAITING,
        since=member.since,
        doing="",
        context=None,
        facts=(
            ("COST", "?" if row.account is None else output.cost(row.account)),
            ("MAIL", "?" if row.queued is None else str(row.queued)),
            ("TURNS", output.count(member.turns)),
            ("CPU", "-" if row.cpu_seconds is None else f"{row.cpu_seconds:.1f}s"),
            ("MEM", "-" if row.memory_bytes is None else output.count(row.memory_bytes)),
        ),
        reason=member.reason or "",
    )


def _ask(approval: Approval) -> Ask:
    return Ask(
        id=approval.id,
        asker=approval.asker,
        kind=approval.type.removesuffix("_request").removesuffix("_approval"),
        asked=approval.asked,
        exact=_exact(approval),
        whole=approval.content,
    )


def _exact(approval: Approval) -> str:
    """Return what is asked for; of a permission the tool and the input, and nothing of ours."""
    lines = approval.content.splitlines()
    if approval.type != Kind.PERMISSION:
        return "\n".join(lines)
    end = next((n for n, line in enumerate(lines) if line.startswith(_BEHIND)), len(lines))
    return "\n".join(line.strip() for line in lines[1:end])
