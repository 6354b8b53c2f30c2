"""Trace a message through the files: sent, queued, taken, delivered or rejected."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from teamd.errors import TeamError
from teamd.files import files
from teamd.files.lines import read_lines
from teamd.files.paths import TeamPaths
from teamd.mail.outbox_mail import crossing
from teamd.messages import LEAD, TEAMD, USER, Message, is_moment, moment_of
from teamd.transcript.file import decode, message_in, parse
from teamd.transcript.records import Delivered

# Messages with facts from the file that contains them.
Found = Iterator[tuple[Message, dict[str, Any]]]
_Identity = tuple[str, str, str]

SHORTEST_BEGINNING: Final = 4
_MOST_NAMED: Final = 5
_MAIL: Final = b'"mail"'
_IDS: Final = re.compile(rb'"id": ?"([\w.-]+)"')
_SPELT_AS_IT_IS: Final = re.compile(r"[\w.-]+", re.ASCII)


class DeliveryStage(StrEnum):
    """The stage that a message has reached."""

    QUEUED = "queued"
    TAKEN = "taken"
    REJECTED = "rejected"
    DELIVERED = "delivered"
    CROSSING = "crossing"  # on its way to another host
    ARRIVED = "arrived"  # in its receiver's inbox on the other host, which knows the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """The trace of a message to one receiver; times in seconds since the epoch.

    Attributes:
        sent: `None` if a foreign sender gave no time.
        position: in the queue, from 1; `None` once it has left the queue.
        taken: when its reader took it, if known.
        delivered: when it was put into the conversation.
        file: the file that contains it now.
    """

    id: str
    type: str
    sender: str
    to: str
    sent: float | None
    stage: DeliveryStage
    position: int | None = None
    taken: float | None = None
    delivered: float | None = None
    file: str

    def to_json(self) -> dict[str, Any]:
        """Return the trace as `--json` shows it."""
        fields = {**asdict(self), "stage": str(self.stage)}
        return {"from" if key == "sender" else key: value for key, value in fields.items()}


def trace(paths: TeamPaths, wanted: str) -> list[MessageTrace]:
    """Return the traces of one message, one per receiver, by an id or the start of an id.

    Raises:
        TeamError: no message matches, or several do.
    """
    found = [way for name in receivers(paths) for way in _ways(paths, name, wanted).values()]
    found += _crossing(paths, wanted)
    if exact := [way for way in found if way.id == wanted]:
        return exact
    ids = sorted({way.id for way in found}) if len(wanted) >= SHORTEST_BEGINNING else []
    if not ids:
        raise TeamError(
            f"no message has the id {wanted!r}; `teamctl send … --json`, "
            "`teamctl inbox --json` and `teamctl transcript NAME --json` show ids"
        )
    if len(ids) > 1:
        more = ", …" if len(ids) > _MOST_NAMED else ""
        raise TeamError(
            f"{len(ids)} ids begin with {wanted!r}; give more of one: "
            f"{', '.join(ids[:_MOST_NAMED])}{more}"
        )
    return found


def texts_sent(paths: TeamPaths, to: str, sender: str, message_id: str) -> list[str]:
    """Return the texts that a sender has sent to `to` under an id, without rejected ones.

    Args:
        paths: the receiver's team.
        to: the receiver's name, as in the roster.
        sender: the sender as the receiver sees it.
        message_id: the whole id.
    """
    return [
        content
        for (own, whose, content), way in _ways(paths, to, message_id).items()
        if (own, whose) == (message_id, sender) and way.stage is not DeliveryStage.REJECTED
    ]


def find_ids(paths: TeamPaths, name: str, wanted: Collection[str]) -> set[str]:
    """Return those of these ids that occur in the files of a receiver's mail.

    This reads each file once. Ids that JSON may escape count as found.
    """
    plain = {made.encode(): made for made in wanted if _SPELT_AS_IT_IS.fullmatch(made)}
    found = set(wanted) - set(plain.values())
    for path in (paths.inbox(name), paths.taken(name), *paths.delivered(name)):
        for line in read_lines(path):
            found.update(plain[made] for made in _IDS.findall(line) if made in plain)
    return found


def under_way(paths: TeamPaths, name: str) -> tuple[Found, ...]:
    """Return the mail that is not in a receiver's conversation yet; takes no lock.

    A message that moves during the call may occur twice; the later occurrence counts.
    """
    inbox, taken = files.read(paths.inbox(name)) or b"", _lines(paths.taken(name))
    header = (parse(taken[0]) or {}) if taken else {}
    batch, start, end = str(header.get("batch")), *_in_hand(header)
    facts: dict[str, Any] = {"stage": DeliveryStage.TAKEN, "taken": moment_of(batch)}
    return (
        _queued(paths.inbox(name), _split(inbox[end:]), batch),
        _lying(paths.inbox(name), _split(inbox[start:end]), **facts),
        _lying(paths.taken(name), taken, **facts),
    )


def receivers(paths: TeamPaths) -> list[str]:
    """Return the names of all members that have received mail, even if not in the roster."""
    there = (*paths.inboxes.glob("*.jsonl"), *paths.transcripts.glob("*.jsonl"))
    names = {path.name.partition(".")[0] for path in there}
    return sorted(names - {TEAMD} | ({LEAD} if USER in names else set()))


def _ways(paths: TeamPaths, name: str, begun: str) -> dict[_Identity, MessageTrace]:
    """Return the traces to one receiver by id, sender and text.

    The files are read in the direction in which mail moves, so a message that moves meanwhile is
    seen at least once, and its last stage counts.
    """
    ways: dict[_Identity, MessageTrace] = {}
    for places in (
        *under_way(paths, name),
        *(_delivered(path, name, begun) for path in paths.delivered(name)),
        _lying(paths.rejected(name), _lines(paths.rejected(name)), DeliveryStage.REJECTED),
    ):
        here: dict[_Identity, MessageTrace] = {}
        for mail, facts in places:
            if mail.id and mail.id.startswith(begun):  # a repeated send comes later
                here.setdefault((mail.id, mail.sender, mail.content), _way(mail, name, facts))
        # A rejected message that was sent again is in the queue again, and that counts.
        rejected = {key for key, way in here.items() if way.stage is DeliveryStage.REJECTED}
        ways |= {key: way for key, way in here.items() if key not in rejected & ways.keys()}
    return ways


def _crossing(paths: TeamPaths, begun: str) -> Iterator[MessageTrace]:
    """Yield the traces to other hosts, as far as this host knows them."""
    if not paths.hosts.is_dir():
        return
    known: set[_Identity] = set()
    for address, mail, arrived, path in crossing(paths, begun):
        to, key = str(address), (mail.id, mail.sender, f"{address} {mail.content}")
        if key not in known:  # a repeated send comes later
            known.add(key)
            stage = DeliveryStage.ARRIVED if arrived else DeliveryStage.CROSSING
            yield _way(mail, to, {"file": str(path), "stage": stage})


def _lines(path: Path) -> list[bytes]:
    return _split(files.read(path) or b"")


def _split(content: bytes) -> list[bytes]:
    return [line for line in content.split(b"\n") if line.strip()]


def _in_hand(header: dict[str, Any]) -> tuple[int, int]:
    """Return the start and end of the inbox part that an older reader has read in place."""
    try:
        return int(header["at"]), int(header["inbox"].partition(":")[0])
    except (KeyError, ValueError, AttributeError, TypeError):
        return 0, 0


def _queued(inbox: Path, lines: list[bytes], batch: str) -> Found:
    """Yield waiting mail; lines before the marker of a taken batch are in that batch."""
    marker = json.dumps({"taken_as": batch}).encode()
    start = lines.index(marker) + 1 if marker in lines else 0
    for position, line in enumerate(lines[start:], start=1):
        for mail, facts in _lying(inbox, [line], DeliveryStage.QUEUED):
            yield mail, {**facts, "position": position}


def _lying(path: Path, lines: list[bytes], stage: DeliveryStage, **facts: Any) -> Found:
    for line in lines:
        if (mail := message_in(parse(line))) is not None:
            yield mail, {"file": str(path), "stage": stage, **facts}


def _delivered(path: Path, to: str, begun: str) -> Found:
    # Skip lines without these bytes, to avoid parsing long ones; only if JSON escapes none of them.
    known = begun.encode() if _SPELT_AS_IT_IS.fullmatch(begun) else b""
    for line in read_lines(path):
        record = decode(line) if _MAIL in line and known in line else None
        if isinstance(record, Delivered):
            moments = {"taken": record.taken, "delivered": record.time or None}
            for mail in record.messages:
                if mail.to in ("", to):  # the person is sometimes `lead` and sometimes `user`
                    yield mail, {"file": str(path), "stage": DeliveryStage.DELIVERED, **moments}


def _way(mail: Message, to: str, facts: dict[str, Any]) -> MessageTrace:
    sent = float(mail.timestamp) if is_moment(mail.timestamp) else None
    return MessageTrace(id=mail.id, type=mail.type, sender=mail.sender, to=to, sent=sent, **facts)
