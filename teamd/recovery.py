"""Repairs damaged files of the program at a start: they are put aside, and their content is saved.

A power cut damages only unsynced files, such as the supervisor's own mail; disks and people
may damage any file. Mail is delivered again; usage and the roster are restored from the
conversations. Damaged tasks stay where they are, so that tasks blocked by them stay blocked until a
person has looked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from teamd.approvals.approval import Approval
from teamd.budget.account import NOTHING, Account
from teamd.budget.days import day_of
from teamd.budget.ledger import Ledger
from teamd.control import ControlReply
from teamd.errors import BadName, DamagedRoster, StoreError, translate_os_errors
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail import lines
from teamd.mail.spool import Spool
from teamd.messages import TEAMD, Message, check_name
from teamd.model_server import Usage
from teamd.team.roster import Roster, Team
from teamd.team.states import Status

if TYPE_CHECKING:
    from teamd.transcript.records import Opened

# Returns the cost in USD of a reply of that model with that usage; `None` if it is not known.
Cost = Callable[[str, Usage], "Decimal | None"]

_TAKEN: Final = ".taken.jsonl"
_HEADER: Final = re.compile(rb'{"batch": "([\w.-]+)"')  # its beginning: the rest may be lost
_LONGEST_RECORD: Final = 1 << 16
_RESTORED: Final = "it was restored from the conversations"
_UNKNOWN: Final = (
    "Teammates that were shut down are idle again, and those with a model of their own have the "
    "team's: `teamctl team` shows all"
)
# Facts in the system prompts of earlier versions, whose records lack them.
_PLAN: Final = "\nPlan: you work by plan."
_ELSEWHERE: Final = re.compile(r"You were put into this team by '([^'\s]+@[^'\s]+)', who leads")
_IDENTITY: Final = re.compile(r"You are '[^']+', role: (.*)\.$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged or missing file.

    Attributes:
        path: of the file.
        repaired: a clause about the repair of its content.
    """

    path: Path
    repaired: str

    def __str__(self) -> str:
        return f"{self.path} is damaged"


def find_damage(paths: TeamPaths) -> Iterator[Damage]:
    """Yield the damaged files of a team, except its roster, see `repair_roster`.

    Raises:
        StoreError: the team directory cannot be read.
    """
    for path in directories.list_files(paths.inboxes, f"*{_TAKEN}"):
        if directories.is_directory(path) or _is_damaged(Spool(paths, _owner(path)).position):
            of_control = "no one is waiting for the requests in it any longer"
            of_mail = "the mail in it is delivered again"
            yield Damage(path, of_control if _owner(path) == TEAMD else of_mail)
    for path, content in _contents(paths.requests):
        if Approval.decode(content) is None:
            yield Damage(path, "its teammate has to ask again")
    for path, content in _contents(paths.replies):
        if _is_damaged(partial(ControlReply.decode, content)):
            yield Damage(path, "no one is waiting for this reply any longer")
    if _is_damaged_ledger(paths):
        yield Damage(paths.ledger, "usage was counted again from the conversations")


def repair(paths: TeamPaths, cost: Cost) -> Iterator[tuple[Damage, Path | None]]:
    """Put the damaged files of a team aside and save their content; yield their new paths.

    An interrupted repair is repeated. The caller must be the team's supervisor, before it starts
    any teammate.

    Raises:
        StoreError: a file cannot be read or written.
    """
    for damage in list(find_damage(paths)):
        if damage.path == paths.ledger:
            kept = _set_aside_ledger(paths)
            Ledger(paths.ledger).restore(*_used(paths, cost))
        else:
            if _owner(damage.path) != TEAMD and damage.path.name.endswith(_TAKEN):
                _deliver_again(paths, damage.path)
            kept = files.put_aside(damage.path)
        yield damage, kept


def repair_roster(paths: TeamPaths, journal: Journal) -> str | None:
    """Restore a damaged or lost roster; return a line about it for the lead.

    Raises:
        StoreError: it cannot be read, or was made by a newer version.
    """
    roster = Roster(paths)
    try:
        roster.read()
    except DamagedRoster as error:
        kept = roster.replace_damaged(rebuild_team(paths))
        journal.warn("roster rebuilt", reason=str(error), kept=str(kept))
        state = f"was damaged ({error.why})"
        return f"{error.path} {state}: {_RESTORED}; the old file is kept as {kept}. {_UNKNOWN}"
    if files.exists(paths.config) or not (team := rebuild_team(paths)).members:
        return None
    roster.update(lambda _: team)
    journal.warn("roster rebuilt", reason="it was gone")
    return f"{paths.config} was gone: {_RESTORED}. {_UNKNOWN}"


def rebuild_team(paths: TeamPaths) -> Team:
    """Return the team, as derived from the conversations in its directory; all members are idle."""
    team = Team(name=paths.default_name)
    for path in directories.list_files(paths.transcripts, "*.jsonl"):
        opened = _last_opened(path)
        role = opened.role or _first(_IDENTITY, opened.system)
        try:
            name = check_name(path.stem)
        except BadName:
            continue  # such as user.jsonl
        if role is None:
            continue
        complete = opened.plan is not None  # the record has all facts
        plan = bool(opened.plan) if complete else _PLAN in opened.system
        above = opened.spawned_by if complete else _first(_ELSEWHERE, opened.system)
        team = replace(team, name=opened.team or team.name)
        team = team.with_new(name, role=role, status=Status.IDLE, plan=plan, spawned_by=above)
    return team


def find_kept(paths: TeamPaths) -> list[Path]:
    """Return the files that were put aside, for a person to look at."""
    return directories.list_files(paths.root, f"**/*{files.DAMAGED}*")


def _deliver_again(paths: TeamPaths, taken: Path) -> None:
    """Put taken mail back into its inbox; a conversation ignores messages that it has had.

    A line without an id gets the same id as when it was taken, if possible.
    """
    inbox = paths.inbox(_owner(taken))
    if directories.is_directory(taken):
        return
    with locks.locked(inbox) as fd, translate_os_errors(inbox):
        content = files.read(taken) or b""
        header = _HEADER.match(content)
        batch = header[1].decode() if header else ""
        if _is_in_inbox(fd, batch):
            return
        found = b"".join(_with_ids(content, batch, to=_owner(taken)))
        if found:
            files.write_at_end(fd, found)
            files.make_durable(inbox)


def _is_in_inbox(fd: int, batch: str) -> bool:
    """Return whether a batch is still in its inbox, by its marker, or by any if its id is lost."""
    if batch:
        return lines.behind_marker(fd, batch) is not None
    return any(map(lines.is_marker, lines.read(fd, 0)))


def _with_ids(content: bytes, batch: str, *, to: str) -> Iterator[bytes]:
    """Yield the lines of a damaged file of taken mail, without the header."""
    batch = batch or hashlib.sha256(content).hexdigest()[:32]
    for number, (line, found) in enumerate(lines.sort_all(content, batch, to=to, longest=len)):
        if isinstance(found, Message):
            yield found.encode()
        elif found is not None and line.strip(b"\0\n") and number:  # the first was the header
            yield line.rstrip(b"\n") + b"\n"


def _set_aside_ledger(paths: TeamPaths) -> Path | None:
    """Copy the damaged ledger, which stays until the new one replaces it."""
    if not files.exists(paths.ledger):
        return None
    if directories.is_directory(paths.ledger):
        return files.put_aside(paths.ledger)
    kept = files.name_aside(paths.ledger)
    files.replace(kept, files.read(paths.ledger) or b"")
    return kept


def _used(paths: TeamPaths, cost: Cost) -> tuple[dict[str, Account], dict[str, Account]]:
    """Return the usage of each teammate and of each day, from the conversations."""
    used: dict[str, Account] = defaultdict(lambda: NOTHING)
    by_day: dict[str, Account] = defaultdict(lambda: NOTHING)
    for name, transcript in _conversations(paths):
        for moment, account in _calls(transcript, cost):
            used[name] += account
            if moment:
                by_day[day_of(moment)] += account
    return used, by_day


def _conversations(paths: TeamPaths) -> Iterator[tuple[str, Path]]:
    """Yield each transcript with its teammate's name, including those of its subagents."""
    names = {path.stem for path in directories.list_files(paths.transcripts, "*.jsonl")}
    yield from ((name, paths.transcript(name)) for name in names)
    for path in directories.list_files(paths.subagents, "*.jsonl"):
        owners = [name for name in names if path.stem.startswith(f"{name}-")]
        yield max(owners, key=len, default=path.stem), path


def _calls(transcript: Path, cost: Cost) -> Iterator[tuple[float, Account]]:
    """Yield the time and the usage of each call of a conversation."""
    from teamd.transcript.file import Transcript  # noqa: PLC0415 -- only repairs read transcripts
    from teamd.transcript.records import Replied, Summarised, SummaryFailed  # noqa: PLC0415

    for record in Transcript(transcript).records():
        if isinstance(record, Replied | Summarised | SummaryFailed) and record.usage is not None:
            taken = Account.of_call(record.usage, cost(record.model, record.usage))
            yield record.time, taken


def _is_damaged_ledger(paths: TeamPaths) -> bool:
    """Return whether the ledger's first line is damaged; later torn lines are ignored."""
    if directories.is_directory(paths.ledger):
        return True
    content = files.read(paths.ledger)
    if not content:  # removed, emptied, or just created
        return bool(_used(paths, lambda *_: None)[0])
    first, _, _ = content.partition(b"\n")
    return _is_damaged(lambda: json.loads(first[:_LONGEST_RECORD])["record"])


def _is_damaged(read: Callable[[], object]) -> bool:
    """Return whether a file's content is invalid; a file that cannot be read may be valid."""
    try:
        read()
    except StoreError as error:
        return not isinstance(error.__cause__, OSError)
    except (ValueError, LookupError, TypeError, RecursionError):
        return True
    return False


def _contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the readable files of a folder with their contents."""
    for path in directories.list_files(folder, "*.json"):
        content = None
        with suppress(StoreError):
            content = files.read(path)
        if content is not None:
            yield path, content


def _owner(taken: Path) -> str:
    return taken.name.removesuffix(_TAKEN)


def _last_opened(transcript: Path) -> Opened:
    from teamd.transcript.file import Transcript  # noqa: PLC0415 -- only repairs read transcripts
    from teamd.transcript.records import Opened  # noqa: PLC0415

    opened = [record for record in Transcript(transcript).records() if isinstance(record, Opened)]
    return opened[-1] if opened else Opened()


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return None if found is None else found[1]
