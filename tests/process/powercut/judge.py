"""Checks a disk after a power cut against the acknowledgements before the cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from teamd.agent.conversation.conversation import Conversation
from teamd.approvals.approval import Verdict
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.board.task import Task
from teamd.budget.ledger import Ledger
from teamd.copies import record as copies
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.hosts.outbox import ConfirmedPosition, count_waiting, read_counts
from teamd.hosts.places import HostPlaces
from teamd.journal import Journal
from teamd.mail.mailbox import EMPTY, Mailbox
from teamd.mail.routing import MailRouter
from teamd.merges import queue
from teamd.merges.queue import MergeState
from teamd.messages import LEAD, TEAMD, USER
from teamd.recovery import repair, repair_roster
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript.file import Transcript, parse
from teamd.transcript.records import Delivered
from tests.process.powercut.far import FAR

_RANKS: Final = ("pending", "in_progress", "completed", "deleted")
PERSON: Final = (LEAD, USER)

Standing = tuple[str, dict[str, Any]]  # the owner of a message, and the message


@dataclass(slots=True)
class Told:
    """The acknowledgements of one team so far.

    Attributes:
        sent: pairs of receiver and content; each content is unique.
        spawned: the names whose `spawn` succeeded.
        up: those of `spawned` without a later request to end.
        shut: the names whose shutdown succeeded, without a later request to spawn again.
        tasks: the minimum of each task: its status, version, subject and owner.
        answered: the verdict by request.
        plans: the requests that are known to be asked.
        opened: the requests whose approval was acted on.
        asked: the number of model calls that the server has accepted.
        raised: the number of tokens by which a limit was reported as raised.
        ran: how often each command has run, by label.
        copied: the names that were spawned in a working copy.
        queued: the minimum state of entries of the merge queue, by id.
        jobs: pairs of teammate and number of reported background jobs.
        removed: whether the team was removed.
        written: files beside the team directory, with their beginnings.
        kept: patterns of files in it, with the beginning of one match.
        damaged: whether a file was damaged by something other than a power cut.
        garbage: invalid lines with the inbox that they were put into.
        crossing: the number of lines that were reported safe on their way to another host.
        received: the number of lines of another host that were confirmed to it.
    """

    sent: set[tuple[str, str]] = field(default_factory=set)
    spawned: set[str] = field(default_factory=set)
    up: set[str] = field(default_factory=set)
    shut: set[str] = field(default_factory=set)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    plans: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    asked: int = 0
    raised: int = 0
    ran: Counter[str] = field(default_factory=Counter)
    copied: set[str] = field(default_factory=set)
    queued: dict[str, str] = field(default_factory=dict)
    jobs: set[tuple[str, str]] = field(default_factory=set)
    written: set[tuple[str, str]] = field(default_factory=set)
    kept: set[tuple[str, str]] = field(default_factory=set)
    removed: bool = False
    damaged: bool = False
    garbage: set[tuple[str, str]] = field(default_factory=set)
    crossing: int = 0
    received: int = 0

    def hear(self, facts: dict[str, Any]) -> None:  # noqa: C901 -- one case a fact
        for key, value in facts.items():
            match key:
                case "sent" | "garbage" | "jobs" | "written" | "kept":
                    getattr(self, key).add(tuple(value))
                case "shut" | "plans" | "opened" | "copied":
                    getattr(self, key).add(value)
                case "spawned":
                    self.spawned.add(value)
                    self.up.add(value)
                case "wanted":
                    self.shut.discard(value)
                case "unwanted":
                    self.up.discard(value)
                case "task":
                    self.tasks.setdefault(value["id"], {}).update(value)
                case "answered" | "queued":
                    getattr(self, key)[value[0]] = value[1]
                case "asked":
                    self.asked += 1
                case "raised":
                    self.raised += value
                case "ran":
                    self.ran[value] += 1
                case "removed" | "damaged" | "crossing" | "received":
                    setattr(self, key, value)


class Judge:
    """Checks one team on its disk after a power cut, with the program's own readers.

    It takes the mail as its owners would, and thereby changes the directory.

    Args:
        root: the team directory.
        told: the acknowledgements.

    Attributes:
        sent_across: mail that was reported as sent to other teams: team, receiver, content.
    """

    def __init__(self, root: Path, told: Told) -> None:
        self._paths = TeamPaths(root)
        self._told = told
        self.sent_across: set[tuple[str, str, str]] = set()
        self._sent: set[tuple[str, str]] = set(told.sent)
        self._records = {
            path.stem: list(_records(path)) for path in self._paths.transcripts.glob("*.jsonl")
        }
        self._hear_senders()

    def complaints(self, sent: Iterable[tuple[str, str]] = ()) -> list[str]:
        """Return the broken promises, one line each.

        Args:
            sent: mail that other teams reported as sent to this one: receiver, content.
        """
        self._sent |= set(sent)
        if self._told.removed:
            return ["the team is there again"] if self._paths.root.is_dir() else []
        if not self._paths.root.is_dir():
            return ["the team is gone"] if self._told != Told() else []
        try:
            found = [] if self._told.damaged else list(self._ledger())
            for damage, _ in repair(self._paths, lambda *_: None):  # as a start does
                found += self._wrongly_damaged(damage.path)
            if self._told.damaged:
                with closing(Journal(self._paths.log(TEAMD), TEAMD)) as journal:
                    repair_roster(self._paths, journal)
            mail = list(self._all_mail())
            post = MailRouter(self._paths, durable=False, max_bytes=1 << 20)
            self._tasks = Board(self._paths, post, LEAD).read()
            self._approvals = Approvals(self._paths, post)
            return [
                *found,
                *self._mail(mail),
                *self._roster(),
                *self._board(),
                *self._mail_of_tasks(mail),
                *self._questions(),
                *self._mail_of_questions(mail),
                *self._ledger(),
                *self._copies(),
                *self._queue(mail),
                *self._jobs(),
                *self._commands(),
                *self._hosts(),
                *self._files(self._paths.home, self._told.written),
                *self._files(self._paths.root, self._told.kept),
            ]
        except TeamError as error:
            return [f"it cannot be read: {error}"]

    def _wrongly_damaged(self, path: Path) -> list[str]:
        """Complain if the ledger is damaged: it counts the limits and must never need a repair."""
        wrong = path == self._paths.ledger and self._told.asked and not self._told.damaged
        return [f"{path.name} is damaged"] if wrong else []

    def _mail(self, standing: Iterable[Standing]) -> Iterator[str]:
        there = Counter((box, mail["content"]) for box, mail in standing if not _is_repeated(mail))
        for to, content in self._sent:
            count = there[self._box(to), content]
            if count != 1:
                yield f"{content!r} to {to} stands {count} times"
        for (to, content), count in there.items():
            if count > 1:
                yield f"{content!r} to {to} stands {count} times"
        for to, line in self._told.garbage:  # the reader had to keep the line unchanged, once
            rejected = self._paths.rejected(to)
            kept = rejected.read_text(errors="replace").split("\n") if rejected.exists() else []
            if kept.count(line) != 1:
                yield f"the line {line!r} to {to} is kept {kept.count(line)} times"

    def _hear_senders(self) -> None:
        """Record all mail that was reported as sent.

        The transcripts of agents contain these reports.
        """
        for records in self._records.values():
            calls: dict[str, Any] = {}
            for record in records:
                if record.get("record") == "reply":
                    calls = {b["id"]: b for b in record["content"] if b["type"] == "tool_use"}
                elif record.get("record") == "result" and record["content"].startswith("sent to"):
                    given = calls[record["tool_use_id"]]["input"]
                    to, _, team = given["to"].partition("@")
                    if team:
                        self.sent_across.add((team, to, given["content"]))
                    else:
                        self._sent.add((to, given["content"]))

    def _all_mail(self) -> Iterator[Standing]:
        """Yield every message that a conversation holds, or will hold after its owner reads."""
        person = Roster(self._paths).read().person if self._paths.config.exists() else LEAD
        names = {path.stem.partition(".")[0] for path in self._paths.inboxes.glob("*.jsonl")}
        for name in sorted(names - {TEAMD}):
            kept = USER if name == LEAD and person == LEAD else name
            for mail in self._fresh(name, kept):
                yield self._box(name), mail
        for name, records in self._records.items():
            for record in records:
                for mail in _mail_in(record):
                    yield self._box(name), mail

    def _fresh(self, name: str, kept: str) -> Iterator[dict[str, Any]]:
        """Read like a new process of the owner: take the mail and keep new messages."""
        known = Conversation(Transcript(self._paths.transcript(kept), durable=False))
        box = Mailbox(self._paths, name)
        while (batch := box.take()) != EMPTY:
            for message in batch.messages:
                if not known.has_seen(message):
                    known.apply(Delivered(messages=(message,)))
                    yield message.to_json()
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
            elif name in self._told.up and member.status is Status.SHUTDOWN:
                yield f"{name} was spawned and is {member.status}"

    def _board(self) -> Iterator[str]:
        yield from self._tasks.damaged.values()
        for task_id, least in self._told.tasks.items():
            task = self._tasks.by_id.get(task_id)
            if task is None:
                yield f"task {task_id} is gone"
            else:
                yield from self._task(task, least)

    @staticmethod
    def _task(task: Task, least: dict[str, Any]) -> Iterator[str]:
        if _RANKS.index(task.status) < _RANKS.index(least.get("status", "pending")):
            yield f"task {task.id} is {task.status}, and was {least['status']}"
        for key in ("subject", "owner"):
            if least.get(key, getattr(task, key)) != getattr(task, key):
                yield f"task {task.id} has {key} {getattr(task, key)!r}, not {least[key]!r}"
        version = int(task.description.removeprefix("version ") or 0)
        if version < least.get("version", 0):
            yield f"task {task.id} has version {version}, and had {least['version']}"

    def _mail_of_tasks(self, standing: Iterable[Standing]) -> Iterator[str]:
        """Yield statements of mail about the board that the board contradicts."""
        for box, mail in standing:
            if "task_id" not in mail:
                continue
            task = self._tasks.by_id.get(mail["task_id"])
            if task is None:
                yield f"{box} was told of task {mail['task_id']}, which is gone"
            elif " gave you task " in mail["content"] and task.owner.lower() != box:
                yield f"{box} was given task {task.id}, which is of {task.owner!r}"

    def _questions(self) -> Iterator[str]:
        asked = dict.fromkeys(self._told.plans | self._plans_asked())
        approved = dict.fromkeys(self._told.opened, "approved")  # and acted on
        for request, verdict in {**asked, **approved, **self._told.answered}.items():
            found = self._approvals.find(request)
            if found is None:
                yield f"request {request} was asked and is gone"
            elif verdict is not None and str(found.status) != verdict:
                yield f"request {request} was {verdict} and is {found.status}"

    def _mail_of_questions(self, standing: Iterable[Standing]) -> Iterator[str]:
        """Yield statements of mail that contradict a plan's file, and answers not sent once."""
        told = Counter[tuple[str, str]]()
        for box, mail in standing:
            if not mail["type"].startswith("plan_approval_"):
                continue
            request = mail["request_id"]
            found = self._approvals.find(request)
            if found is None:
                yield f"{box} was told of plan {request}, which is gone"
            elif "approve" in mail:
                told[request, box] += 1
                if (found.status is Verdict.APPROVED) is not mail["approve"]:
                    yield f"{box} was told approve={mail['approve']} of a plan {found.status}"
        for request in self._told.answered:
            found = self._approvals.find(request)
            if found is not None and told[request, found.asker] != 1:
                yield f"{found.asker} was told {told[request, found.asker]} times of {request}"

    def _plans_asked(self) -> set[str]:
        """Return the requests that a model was told are with the lead."""
        return {
            record["content"].split()[1]
            for records in self._records.values()
            for record in records
            if record.get("record") == "result"
            and record["content"].startswith("plan ")
            and " is with the lead" in record["content"]
        }

    def _ledger(self) -> Iterator[str]:
        if self._told.asked:
            calls = Ledger(self._paths.ledger, is_alive=lambda _: False).read().total().calls
            if calls < self._told.asked:
                yield f"{self._told.asked} calls were made, and {calls} count"
        if self._told.raised:
            raised = sum(Ledger(self._paths.ledger).read().raised.values())
            if raised < self._told.raised:
                yield f"a limit is raised by {raised} of {self._told.raised}"

    def _copies(self) -> Iterator[str]:
        for name in self._told.copied:
            if copies.find(self._paths, name) is None:
                yield f"{name} was spawned in a working copy, which is gone"

    def _queue(self, standing: Iterable[Standing]) -> Iterator[str]:
        entries = queue.read(self._paths)
        for entry_id, state in self._told.queued.items():
            entry = entries.find(entry_id)
            if entry is None or MergeState(state).finished > entry.state.finished:
                yield f"entry {entry_id} was {state} and is {entry and entry.state}"
        for box, mail in standing:
            if told := mail.get("queue_id"):
                entry = entries.find(told)
                if entry is None or not entry.state.finished:
                    yield f"{box} was told of entry {told}, which is {entry and entry.state}"

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

    def _hosts(self) -> Iterator[str]:
        places = HostPlaces(self._paths)
        if self._told.crossing:
            position = ConfirmedPosition.read(places.confirmed(FAR)) or ConfirmedPosition()
            there = position.n + count_waiting(self._paths, FAR)
            if there < self._told.crossing:
                yield f"{there} lines are confirmed or wait, not {self._told.crossing}"
        if self._told.received:
            n = (read_counts(places.received(FAR)) or {"n": 0})["n"]
            if n < self._told.received:
                yield f"{self._told.received} lines of another host were confirmed, not {n}"

    @staticmethod
    def _files(folder: Path, told: Iterable[tuple[str, str]]) -> Iterator[str]:
        for pattern, beginning in told:
            found = [path.read_text(errors="replace") for path in folder.glob(pattern)]
            if not any(text.startswith(beginning) for text in found):
                yield f"{pattern} is gone, or begins otherwise"

    def _told_jobs(self) -> set[tuple[str, str]]:
        """Return the jobs whose numbers a model has read."""
        return {
            (name, record["content"].removeprefix("job_id: "))
            for name, records in self._records.items()
            for record in records
            if record.get("record") == "result" and record["content"].startswith("job_id: ")
        }

    def _begun(self) -> Iterator[str]:
        """Yield the commands of all calls that are recorded as started."""
        for records in self._records.values():
            calls: dict[str, Any] = {}
            for record in records:
                if record.get("record") == "reply":
                    calls |= {b["id"]: b for b in record["content"] if b["type"] == "tool_use"}
                elif record.get("record") == "started" and record["tool_use_id"] in calls:
                    given = calls[record["tool_use_id"]]["input"]
                    yield f"{given.get('command', '')} "


def _records(transcript: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a conversation in order, without torn lines."""
    for line in transcript.read_bytes().split(b"\n"):
        if (record := parse(line)) is not None:
            yield record


def _mail_in(record: dict[str, Any]) -> list[dict[str, Any]]:
    return record["messages"] if record.get("record") == "mail" else []


def _is_repeated(mail: dict[str, Any]) -> bool:
    """Return whether the program itself may write the same text more than once."""
    return bool(mail["type"] != "message" or mail["from"] == TEAMD)
