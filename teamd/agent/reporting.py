"""Reports of a teammate to its supervisor, and lines to its lead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from teamd.messages import SHUTDOWN_ANSWER_TYPE, STATE_TYPE, TEAMD, Message

if TYPE_CHECKING:
    from teamd.agent.conversation.conversation import Conversation
    from teamd.mail.mailbox import Mailbox
    from teamd.mail.routing import Post
    from teamd.process_id import Identity
    from teamd.states import Status


@dataclass(kw_only=True, slots=True)
class Reporter:
    """Tells the supervisor and the lead how one teammate does.

    Attributes:
        name: the teammate's.
        process: named in each report, so that one of an earlier process is told apart.
        supervisor: the supervisor's inbox.
    """

    name: str
    process: Identity
    conversation: Conversation
    supervisor: Mailbox
    post: Post
    _last: dict[str, object] = field(default_factory=dict)

    def report(self, status: Status, reason: str | None = None) -> None:
        """Tell the supervisor how it goes; what it knows already is not said again."""
        reason = None if reason is None else self.post.paths.addressed(reason)
        facts: dict[str, object] = {
            "status": str(status),
            "reason": reason,
            "turns": self.conversation.turns,
            "input_tokens": self.conversation.input_tokens,
            "output_tokens": self.conversation.output_tokens,
        }
        if facts == self._last:
            return
        self._last = facts
        process = {"pid": self.process.pid, "started": self.process.started}
        self._send(STATE_TYPE, str(status), {**facts, **process})

    def report_answer(self, request_id: str) -> None:
        """Have the supervisor look at an answer; it believes the store, not this."""
        self._send(SHUTDOWN_ANSWER_TYPE, "answered", {"request_id": request_id})

    def notify_lead(self, text: str, *, key: str) -> None:
        """Send a line to whom it reports: the lead, and of one that leads the person.

        Args:
            text: the line.
            key: its id: sent twice, it is read once.

        Raises:
            StoreError: it cannot be sent now.
        """
        sentence = self.post.paths.addressed(text)
        words = sentence.replace("\0", "\ufffd")  # a server's own words may hold anything
        above = self.post.above(self.name)
        self.post.notify(Message(id=key, sender=self.name, to=above, content=words))

    def _send(self, kind: str, content: str, facts: dict[str, object]) -> None:
        message = Message(type=kind, sender=self.name, to=TEAMD, content=content, extra=facts)
        self.supervisor.put(message)
