"""Follows a team at work, by its files alone, until it has come to rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from teamctl.demo.telling import ConversationEvents, Event
from teamctl.tail import GrowingFile
from teamd.files import pidfile
from teamd.files.watch import wait_for
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD
from teamd.states import Status
from teamd.team.roster import Roster
from teamd.transcript.decoding import decode_lines
from teamd.transcript.records import NoticeSent, Replied, TurnEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from teamctl.demo.telling import Teller
    from teamd.files.paths import TeamPaths
    from teamd.messages import Message
    from teamd.transcript.records import Record

REST_SECONDS: Final = 60.0  # takes 6 where nothing else runs
AGREE_SECONDS: Final = 10.0
_GONE: Final = (Status.FAILED, Status.SHUTDOWN)


class Onlooker:
    """Tells what teammates do.

    Args:
        check: called at each look; raises what ends the following.

    Attributes:
        records: of each teammate's transcript, so far.
        mail: what has come to the lead, so far.
        trouble: why it did not go on, a sentence; empty if all is well.
    """

    def __init__(
        self, paths: TeamPaths, names: Iterable[str], teller: Teller, check: Callable[[], None]
    ) -> None:
        self._paths = paths
        self._teller = teller
        self._check = check
        self._roster = Roster(paths)
        self._growing = {name: GrowingFile(paths.transcript(name)) for name in names}
        self._told = {name: ConversationEvents(name) for name in self._growing}
        self.records: dict[str, list[Record]] = {name: [] for name in self._growing}
        self.mail: dict[str, Message] = {}
        self.trouble = ""

    def follow(self) -> None:
        """Return when nobody works any more and no mail is under way, or on trouble."""
        folder = self._paths.transcript(LEAD).parent
        if not wait_for(folder, self._look, timeout_seconds=REST_SECONDS):
            self.trouble = f"the team was not done within {REST_SECONDS:g} s"
        for growing in self._growing.values():
            growing.close()
        if not self.trouble:
            # Reports go by way of the supervisor, so the roster is a moment behind.
            wait_for(self._paths.root, self._agrees, timeout_seconds=AGREE_SECONDS)

    def _look(self) -> bool | None:
        self._check()
        gone = self._who_is_gone()  # before the look: what they wrote, they wrote
        self._tell_news()
        if gone:
            self.trouble = self.trouble or gone
            return True
        if not all(map(_has_ended, self.records.values())):
            return None
        # Only who works sends mail. So if none was under way, and nobody has worked meanwhile,
        # nobody ever will.
        waiting = any(Mailbox(self._paths, name).waiting() for name in self.records)
        return None if self._tell_news() or waiting else True

    def _tell_news(self) -> bool:
        """Tell what is new; returns whether anybody has worked."""
        events = list(self._mail_events())
        worked = False
        for name, growing in self._growing.items():
            for record in decode_lines(growing.lines()):
                worked = True
                self.records[name].append(record)
                events += self._told[name].events(record)
                if isinstance(record, TurnEnded) and record.outcome != "end_turn":
                    self.trouble = f"{name} is {record.outcome}: {record.text}"
        for event in sorted(events, key=lambda event: event.moment):
            self._teller.tell(event)
        return worked

    def _mail_events(self) -> Iterator[Event]:
        for message in Mailbox(self._paths, LEAD).peek():
            if message.id not in self.mail:
                self.mail[message.id] = message
                what = f"← {message.sender}: {message.summary or message.content}"
                yield Event(moment=message.timestamp, who=LEAD, what=what)

    def _who_is_gone(self) -> str:
        if pidfile.supervisor(self._paths) is None:
            return "teamd has ended"
        members = self._roster.read().members
        return next(
            (f"{m.name} is {m.status}: {m.reason}" for m in members if m.status in _GONE), ""
        )

    def _agrees(self) -> bool | None:
        """Whether the roster says what the transcripts do."""
        self._check()
        for member in self._roster.read().members:
            replies = sum(isinstance(one, Replied) for one in self.records[member.name])
            if member.status is not Status.IDLE or member.turns != replies:
                return None
        return True


def _has_ended(records: list[Record]) -> bool:
    return bool(records) and isinstance(records[-1], TurnEnded | NoticeSent)
