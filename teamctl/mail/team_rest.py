"""Whether teammates are at rest: idle or stopped, with no mail under way between them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from teamctl.tail import GrowingFile
from teamd.board.files import TaskFiles
from teamd.board.task import TaskStatus
from teamd.errors import StoreError
from teamd.files import files, lines, pidfile
from teamd.files.directories import list_files
from teamd.files.file_stamp import remember
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.merges import queue
from teamd.messages import LEAD, PROMPT_KEY, Message
from teamd.team.member import Member
from teamd.team.roster import Roster, Team
from teamd.team.states import Status
from teamd.transcript.file import decode
from teamd.transcript.records import Delivered, mail_in

# A teammate that takes mail reports its work within this time.
_CALM_SECONDS: Final = 0.5
RECHECK_SECONDS: Final = 0.25  # see `teamd.files.watch.wait_for`
_MAIL: Final = b'{"record": "%s"' % Delivered.kind.encode()
Choose = Callable[[Team], list[Member]]


@dataclass(slots=True)
class RestWatch:
    """Checks whether the chosen members of a team have been at rest for a moment.

    Work that wakes a member always adds to a conversation. So the moment begins again whenever a
    conversation has grown, and work cannot hide by moving from one member to another.
    """

    paths: TeamPaths
    choose: Choose
    clock: Callable[[], float] = time.monotonic
    _roster: Roster = field(init=False)
    _tasks: TaskFiles = field(init=False)
    _judged: Callable[[], frozenset[str]] = field(init=False)
    _since: float = field(default=0.0, init=False)
    _sizes: list[int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._roster = Roster(self.paths)
        self._tasks = TaskFiles(self.paths)
        self._judged = remember(self.paths.tasks, self._read_judged)

    def look(self) -> list[Member] | None:
        """Return the chosen members if all of them rest.

        Raises:
            NoTeamd: a member is at work, but no teamd runs.
        """
        chosen = self.choose(self._roster.read())
        if any(map(self.is_busy, chosen)):
            pidfile.check(self.paths)
            self._sizes = None
            return None
        sizes = [files.size(self.paths.transcript(one.name)) for one in chosen]
        now = self.clock()
        if sizes != self._sizes:
            self._sizes, self._since = sizes, now
        return chosen if now - self._since >= _CALM_SECONDS else None

    def is_busy(self, member: Member) -> bool:
        """Return whether a member works, or waits for the check of a task or for its merge."""
        return at_work(self.paths, member) or member.name.lower() in self._judged()

    def _read_judged(self) -> frozenset[str]:
        """Return the owners of work that is being checked or merged; the result comes as mail."""
        tasks = self._tasks.read().by_id.values()
        owners = [one.owner for one in tasks if one.status is TaskStatus.CHECKING]
        # An entry that waits for something has a reason.
        merges = [one.teammate for one in queue.read(self.paths).open if not one.why]
        return frozenset(name.lower() for name in (*owners, *merges))


def at_work(paths: TeamPaths, member: Member) -> bool:
    """Return whether the teammate works, or is about to work."""
    if member.status is not Status.IDLE:
        return member.status is Status.WORKING
    if member.name == LEAD and runs_subagent(paths):
        return True
    waiting = paths.has_mail(member.name) or files.size(paths.taken(member.name)) > 0
    return waiting and member.reason is None  # otherwise the mail is held, and the reason says why


def runs_subagent(paths: TeamPaths) -> bool:
    """Return whether a subagent of the lead runs in the background; its end wakes the lead.

    A command in the background is not waited for: it may be a server.
    """
    return any(job.get("ended") is None for job in find_subagents(paths))


def find_subagents(paths: TeamPaths) -> Iterator[dict[str, Any]]:
    """Yield the jobs of the lead's subagents in the background, as in their files."""
    for path in list_files(paths.jobs(LEAD), "*.json"):
        with suppress(StoreError, ValueError):  # a damaged file describes no job
            job = json.loads(files.read(path) or b"null")
            if isinstance(job, dict) and job.get("subagent") is True:
                yield job


def explain_late(working: Sequence[str], seconds: float) -> str:
    """Return the beginning of the error that a deadline has passed."""
    if len(working) > 1:
        who = f"{', '.join(working[:-1])} and {working[-1]} are"
    else:
        who = f"{working[0] if working else 'somebody'} is"
    return f"{who} still at work after {seconds:g} s"


class Crew:
    """The lead and the members that work for it, from now on.

    A member now working for the person joins once the lead or another crew member writes to it.

    Attributes:
        started: when the crew was made, in seconds since the epoch.
    """

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self.started = time.time()
        team = Roster(paths).read()
        self._sizes = {one.name: files.size(paths.transcript(one.name)) for one in team.members}
        self._names = {LEAD} | {one.name for one in team.members if self._is_led(one)}
        self._conversations: dict[str, GrowingFile] = {}

    def choose(self, team: Team) -> list[Member]:
        """Return the members of the crew."""
        while True:  # a member that has joined may have written to others
            outside = [one.name for one in team.members if one.name not in self._names]
            reached = {name for name in outside if self._is_reached(name)}
            if not reached:
                break
            self._names |= reached
        return [one for one in team.members if one.name in self._names]

    def has_acted(self, member: Member) -> bool:
        """Return whether a member of the crew has worked, or changed its state, since the start."""
        if member.name == LEAD or (member.status_since or 0.0) >= self.started:
            return True
        size = files.size(self._paths.transcript(member.name))
        return size != self._sizes.get(member.name, 0)

    def _is_led(self, member: Member) -> bool:
        """Return whether a member rests, or works on a task that the lead gave."""
        if member.status is not Status.WORKING:
            return True
        prompts = (one for one in self._mail_back(member.name) if one.extra.get(PROMPT_KEY) is True)
        prompt = next(prompts, None)
        # Until its first turn the person was the lead.
        return (
            prompt is not None
            and prompt.sender == LEAD
            and prompt.timestamp >= self._first_turn_of_lead()
        )

    def _first_turn_of_lead(self) -> float:
        """Return when the lead agent's first conversation began; infinity if there is none."""
        first = next(lines.read_lines(self._paths.transcript(LEAD)), None)
        record = None if first is None else decode(first)
        return math.inf if record is None else record.time

    def _mail_back(self, name: str) -> Iterator[Message]:
        """Yield the mail of a member, the newest first."""
        yield from reversed(self._queued(name))
        path = self._paths.transcript(name)
        for start in lines.find_lines(path, _MAIL):
            yield from reversed(mail_in(decode(next(lines.read_lines(path, start)))))

    def _is_reached(self, name: str) -> bool:
        """Return whether a member outside the crew has received mail from the crew."""
        if name not in self._conversations:
            start = self._sizes.get(name, 0)
            self._conversations[name] = GrowingFile(self._paths.transcript(name), start)
        queued = self._queued(name)  # first: mail moves from there to the conversation
        new = (line for line in self._conversations[name].lines() if line.startswith(_MAIL))
        delivered = [message for line in new for message in mail_in(decode(line))]
        return self._is_from_crew((*queued, *delivered))

    def _is_from_crew(self, mail: Iterable[Message]) -> bool:
        return any(message.sender in self._names for message in mail)

    def _queued(self, name: str) -> list[Message]:
        if not self._paths.has_mail(name) and not files.size(self._paths.taken(name)):
            return []
        with suppress(StoreError):  # an unreadable inbox is reported elsewhere
            return Mailbox(self._paths, name).peek()
        return []
