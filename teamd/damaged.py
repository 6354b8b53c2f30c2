"""Damaged files of the program's own: put aside at a start, so that they keep no team from working.

A power cut leaves no file damaged on which a promise rests. It may leave some on which none does,
such as the supervisor's own mail, and disks and people do the rest. Where a damaged file holds
what is promised, that is saved: mail is delivered again, and usage is counted anew from the
conversations. Damaged tasks stay where they are: what is blocked by one stays blocked until a
person has looked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final

from teamd.approvals.approval import Approval
from teamd.control import ControlReply
from teamd.errors import StoreError
from teamd.protocol import TEAMD
from teamd.store import files, lines, locks
from teamd.store.board_files import read_all
from teamd.store.entries import NOTHING, Account
from teamd.store.ledger import Ledger
from teamd.store.taken import Taken
from teamd.store.trouble import told
from teamd.transcript.file import Transcript
from teamd.transcript.records import Replied, Summarised, SummaryFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from teamd.store.paths import TeamPaths
    from teamd.tokens import Usage

    # The cost in USD of a reply of that model with that usage; `None` where it is not known.
    Cost = Callable[[str, Usage], Decimal | None]

_TAKEN: Final = ".taken.jsonl"
_LONGEST_RECORD: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged file.

    Attributes:
        path: where it stands.
        repaired: what becomes of what it held, once it is put aside.
    """

    path: Path
    repaired: str

    def __str__(self) -> str:
        return f"{self.path} is damaged"


def find_damage(paths: TeamPaths) -> Iterator[Damage]:
    """Yield the damaged files of a team, but for its roster, which has a repair of its own.

    Raises:
        StoreError: the team directory cannot be read.
    """
    for path in _listed(paths.inboxes, f"*{_TAKEN}"):
        if _is_damaged(Taken(path, _owner(path)).position):
            control = _owner(path) == TEAMD
            yield Damage(
                path,
                "nobody waits any more for the requests in it"
                if control
                else "the mail in it is delivered again, each message once",
            )
    for path in _listed(paths.requests, "*.json"):
        if Approval.decode(files.read(path) or b"") is None:
            yield Damage(path, "whoever asked has to ask again")
    for path in _listed(paths.replies, "*.json"):
        content = files.read(path) or b""
        if _is_damaged(partial(ControlReply.decode, content)):
            yield Damage(path, "nobody waits for this reply any more")
    if _is_damaged_ledger(paths):
        yield Damage(paths.ledger, "what was used is counted anew from the conversations")


def repair(paths: TeamPaths, cost: Cost) -> Iterator[tuple[Damage, Path]]:
    """Put the damaged files of a team aside and save what they held; yields where they are now.

    Nobody may be at work but the caller: the team's supervisor, before it starts anybody.

    Raises:
        StoreError: something cannot be read or written.
    """
    for damage in list(find_damage(paths)):
        if damage.path == paths.ledger:
            kept = files.put_aside(damage.path)
            Ledger(paths.ledger).restore(dict(_used(paths, cost)))
        elif damage.path.name.endswith(_TAKEN) and _owner(damage.path) != TEAMD:
            kept = _deliver_again(paths, damage.path)
        else:
            kept = files.put_aside(damage.path)
        yield damage, kept


def find_kept(paths: TeamPaths) -> list[Path]:
    """Return the files that were put aside, for a person to look at."""
    with told(paths.root):
        return sorted(paths.root.rglob(f"*{files.DAMAGED}*"))


def find_damaged_tasks(paths: TeamPaths) -> list[str]:
    """Return a sentence for each task that cannot be read."""
    return list(read_all(paths).damaged.values())


def _deliver_again(paths: TeamPaths, taken: Path) -> Path:
    """Put taken mail back into its inbox; a conversation that has had it takes it for the same."""
    inbox = paths.inbox(_owner(taken))
    with locks.locked(inbox) as fd, told(inbox):
        if not any(map(lines.is_marker, lines.read(fd, 0))):  # or all of it stands there still
            header, newline, rest = (files.read(taken) or b"").partition(b"\n")
            found = rest if header.startswith(b'{"batch"') else header + newline + rest
            if found.strip(b"\0\n"):
                files.write_at_end(fd, found.rstrip(b"\n") + b"\n")
                files.sync(fd)
        return files.put_aside(taken)


def _used(paths: TeamPaths, cost: Cost) -> Iterator[tuple[str, Account]]:
    """What each teammate has used, as far as conversations tell: those of its subagents too."""
    used: dict[str, Account] = defaultdict(lambda: NOTHING)
    names = {path.stem for path in _listed(paths.transcripts, "*.jsonl")}
    for name in names:
        used[name] += _account(paths.transcript(name), cost)
    for path in _listed(paths.subagents, "*.jsonl"):
        owners = [name for name in names if path.stem.startswith(f"{name}-")]
        used[max(owners, key=len, default=path.stem)] += _account(path, cost)
    yield from used.items()


def _account(transcript: Path, cost: Cost) -> Account:
    total = NOTHING
    for record in Transcript(transcript).records():
        if isinstance(record, Replied | Summarised | SummaryFailed) and record.usage is not None:
            total += _of_one_call(record.usage, cost(record.model, record.usage))
    return total


def _of_one_call(usage: Usage, usd: Decimal | None) -> Account:
    return Account(
        input_tokens=usage.total_input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        calls=1,
        unpriced_calls=int(usd is None),
        usd=usd or Decimal(0),
    )


def _is_damaged_ledger(paths: TeamPaths) -> bool:
    """Whether the ledger's beginning is lost; what is torn behind that was never relied on."""
    if not files.exists(paths.ledger):
        return False
    try:
        content = files.read(paths.ledger) or b""
    except StoreError:
        return paths.ledger.is_dir()
    if not content:  # made, and its first line not written; or emptied
        return any(files.size(path) for path in _listed(paths.transcripts, "*.jsonl"))
    first, _, _ = content.partition(b"\n")
    return _is_damaged(lambda: json.loads(first[:_LONGEST_RECORD])["record"])


def _is_damaged(read: Callable[[], object]) -> bool:
    try:
        read()
    except (StoreError, ValueError, LookupError, TypeError, RecursionError):
        return True
    return False


def _listed(folder: Path, pattern: str) -> list[Path]:
    with told(folder):
        return [path for path in sorted(folder.glob(pattern)) if path.is_file()]


def _owner(taken: Path) -> str:
    return taken.name.removesuffix(_TAKEN)
