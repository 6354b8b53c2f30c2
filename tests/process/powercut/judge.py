"""What must hold on a disk after a power cut, by what had been told before it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from teamd.approvals.store import Approvals
from teamd.damaged import repair
from teamd.errors import TeamError
from teamd.protocol import LEAD, TEAMD, USER
from teamd.states import Status
from teamd.store.board import Board
from teamd.store.ledger import Ledger
from teamd.store.mailbox import EMPTY, Mailbox
from teamd.store.paths import TeamPaths
from teamd.store.post import Post
from teamd.store.roster import Roster
from teamd.transcript.decoding import parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RANKS: Final = ("pending", "in_progress", "completed", "deleted")
PERSON: Final = (LEAD, USER)


@dataclass(slots=True)
class Told:
    """What somebody has been told so far, of one team.

    Attributes:
        sent: contents by receiver; each content is unique.
        spawned: names whose `spawn` succeeded.
        shut: those whose shutdown did, and whom nobody has wanted back since.
        tasks: the least that is to be of each task: its status, its version.
        answered: the verdict by request.
        asked: how many model calls the server has accepted.
        ran: the labels of commands that have run.
        jobs: background jobs whose number was told, by the teammate.
        removed: whether the team is gone.
        garbage: lines that are no message, by the inbox that they were put into.
    """

    sent: set[tuple[str, str]] = field(default_factory=set)
    spawned: set[str] = field(default_factory=set)
    shut: set[str] = field(default_factory=set)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    ran: Counter[str] = field(default_factory=Counter)
    jobs: set[tuple[str, str]] = field(default_factory=set)
    removed: bool = False
    garbage: set[tuple[str, str]] = field(default_factory=set)

    def hear(self, facts: dict[str, Any]) -> None:  # noqa: C901 -- one case a fact
        """Take a mark into account."""
        for key, value in facts.items():
            match key:
                case "sent":
                    self.sent.add((value[0], value[1]))
                case "wanted":
                    self.shut.discard(value)
                case "spawned":
                    self.spawned.add(value)
                case "shut":
                    self.shut.add(value)
                case "task":
                    self.tasks.setdefault(value["id"], {}).update(value)
                case "answered":
                    self.answered[value[0]] = value[1]
                case "asked":
                    self.asked += 1
                case "ran":
                    self.ran[value] += 1
                case "job":
                    self.jobs.add((value[0], value[1]))
                case "removed":
                    self.removed = True
                case "garbage":
                    self.garbage.add((value[0], value[1]))


class Judge:
    """Looks at one team as its disk is after a power cut, with the program's own readers.

    Its mail is taken as its owners would take it, so the directory is another one afterwards.

    Args:
        root: the team directory.
        told: what must hold.
    """

    def __init__(self, root: Path, told: Told) -> None:
        self._paths = TeamPaths(root)
        self._told = told
        self._records = {
            path.stem: list(_records(path)) for path in self._paths.transcripts.glob("*.jsonl")
        }

    def complaints(self) -> list[str]:
        """Return what does not hold, in a line each."""
        if self._told.removed:
            return ["the team is there again"] if self._paths.root.is_dir() else []
        if not self._paths.root.is_dir():
            return ["the team is gone"] if self._told != Told() else []
        try:
            for _ in repair(self._paths, lambda *_: None):
                pass  # as a start does
            return [
                *self._mail(),
                *self._roster(),
                *self._board(),
                *self._approvals(),
                *self._ledger(),
                *self._jobs(),
                *self._commands(),
            ]
        except TeamError as error:
            return [f"it cannot be read: {error}"]

    def _mail(self) -> Iterator[str]:
        there = Counter(self._standing())
        for to, content in self._promised():
            count = there[self._box(to), content]
            if count != 1:
                yield f"{content!r} to {to} stands {count} times"
        for (to, content), count in there.items():
            if count > 1:
                yield f"{content!r} to {to} stands {count} times"
        for to, line in self._told.garbage:  # whoever read was to keep it, as it came, once
            rejected = self._paths.rejected(to)
            kept = rejected.read_text(errors="replace").split("\n") if rejected.exists() else []
            if kept.count(line) != 1:
                yield f"the line {line!r} to {to} is kept {kept.count(line)} times"

    def _promised(self) -> set[tuple[str, str]]:
        """All mail whose sender was told that it is sent, agents by what their transcripts say."""
        found = set(self._told.sent)
        for records in self._records.values():
            calls: dict[str, Any] = {}
            for record in records:
                if record.get("record") == "reply":
                    calls = {b["id"]: b for b in record["content"] if b["type"] == "tool_use"}
                elif record.get("record") == "result" and record["content"].startswith("sent to"):
                    given = calls[record["tool_use_id"]]["input"]
                    if "@" not in given["to"]:
                        found.add((given["to"], given["content"]))
        return found

    def _standing(self) -> Iterator[tuple[str, str]]:
        """Every message that stands in a conversation, or will once its owner has read."""
        person = Roster(self._paths).read().person if self._paths.config.exists() else LEAD
        names = {path.stem.partition(".")[0] for path in self._paths.inboxes.glob("*.jsonl")}
        for name in sorted(names - {TEAMD}):
            kept = USER if name == LEAD and person == LEAD else name
            for message in self._fresh(name, self._records.get(kept, [])):
                yield self._box(name), message
        for name, records in self._records.items():
            for record in records:
                for mail in _mail_in(record):
                    if not _is_repeated(mail):
                        yield self._box(name), mail["content"]

    def _fresh(self, name: str, kept: list[dict[str, Any]]) -> Iterator[str]:
        """Read as a new process of the owner does: take, keep what is new, be done."""
        known = {_gist(mail) for record in kept for mail in _mail_in(record)}
        box = Mailbox(self._paths, name)
        while (batch := box.take()) != EMPTY:
            for mail in (message.to_json() for message in batch.messages):
                if _gist(mail) not in known:
                    known.add(_gist(mail))
                    if not _is_repeated(mail):
                        yield mail["content"]
            box.done(batch)

    @staticmethod
    def _box(name: str) -> str:
        return LEAD if name in PERSON else name

    def _roster(self) -> Iterator[str]:
        if not self._told.spawned and not self._paths.config.exists():
            return
        team = Roster(self._paths).read()
        for name in self._told.spawned:
            member = team.find(name)
            if member is None:
                yield f"{name} was spawned and is no member"
            elif name in self._told.shut and member.status is not Status.SHUTDOWN:
                yield f"{name} was shut down and is {member.status}"

    def _board(self) -> Iterator[str]:
        post = Post(self._paths, durable=False, max_bytes=1 << 20)
        tasks = Board(self._paths, post, LEAD).read()
        yield from tasks.damaged.values()
        for task_id, least in self._told.tasks.items():
            task = tasks.by_id.get(task_id)
            if task is None:
                yield f"task {task_id} is gone"
                continue
            if _RANKS.index(task.status) < _RANKS.index(least.get("status", "pending")):
                yield f"task {task_id} is {task.status}, and was {least['status']}"
            version = int(task.description.removeprefix("version ") or 0)
            if version < least.get("version", 0):
                yield f"task {task_id} has version {version}, and had {least['version']}"

    def _approvals(self) -> Iterator[str]:
        approvals = Approvals(self._paths, Post(self._paths, durable=False, max_bytes=1 << 20))
        for request, verdict in self._told.answered.items():
            found = approvals.find(request)
            if found is None or str(found.status) != verdict:
                stands = found and found.status
                yield f"request {request} was {verdict} and is {stands}"

    def _ledger(self) -> Iterator[str]:
        if self._told.asked:
            calls = Ledger(self._paths.ledger, is_alive=lambda _: False).read().total().calls
            if calls < self._told.asked:
                yield f"{self._told.asked} calls were made, and {calls} count"

    def _jobs(self) -> Iterator[str]:
        for name, number in self._told.jobs | self._told_jobs():
            if not (self._paths.jobs(name) / f"{number}.json").exists():
                yield f"nobody knows of job {number} of {name}"

    def _commands(self) -> Iterator[str]:
        begun = "".join(self._begun())
        for label, times in self._told.ran.items():
            if times > 1:
                yield f"the command {label} ran {times} times"
            if f"{label} " not in begun:
                yield f"the command {label} ran, and no conversation knows"

    def _told_jobs(self) -> set[tuple[str, str]]:
        """The jobs whose number a model has read."""
        return {
            (name, record["content"].removeprefix("job_id: "))
            for name, records in self._records.items()
            for record in records
            if record.get("record") == "result" and record["content"].startswith("job_id: ")
        }

    def _begun(self) -> Iterator[str]:
        """The commands of all calls that are noted as begun."""
        for records in self._records.values():
            calls: dict[str, Any] = {}
            for record in records:
                if record.get("record") == "reply":
                    calls |= {b["id"]: b for b in record["content"] if b["type"] == "tool_use"}
                elif record.get("record") == "started" and record["tool_use_id"] in calls:
                    given = calls[record["tool_use_id"]]["input"]
                    yield f"{given.get('command', '')} "


def _records(transcript: Path) -> Iterator[dict[str, Any]]:
    """The records of a conversation as they stand there; torn lines are passed over."""
    for line in transcript.read_bytes().split(b"\n"):
        if (record := parse(line)) is not None:
            yield record


def _mail_in(record: dict[str, Any]) -> list[dict[str, Any]]:
    return record["messages"] if record.get("record") == "mail" else []


def _gist(mail: dict[str, Any]) -> tuple[Any, ...]:
    return mail.get("id"), mail.get("from"), mail.get("content")


def _is_repeated(mail: dict[str, Any]) -> bool:
    """Whether such words are written more than once, by the program itself."""
    return bool(mail["type"] != "message" or mail["from"] == TEAMD)
