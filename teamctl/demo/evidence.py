"""What is left of the demo's first part, and which of its steps that shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from teamd.messages import LEAD, Message
from teamd.states import Status
from teamd.team.roster import Team
from teamd.transcript.records import CallAnswered, Record, Replied, mail_in

_PROGRAM: Final = "roman.py"
_TESTS: Final = "test_roman.py"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that is left: files, conversations, mail, the roster.

    Attributes:
        mail: what has come to the lead.
    """

    workspace: Path
    records: Mapping[str, list[Record]]
    mail: Iterable[Message]
    team: Team

    def letters(self, sender: str, receiver: str) -> int:
        """Count the messages of a teammate that have reached the receiver, word for word."""
        sent = [given["content"] for given in self._calls(sender, "send_message").values()]
        got = list(self.mail) if receiver == LEAD else []
        for record in self.records.get(receiver, ()):
            got += mail_in(record)
        return sum(message.sender == sender and message.content in sent for message in got)

    def outputs(self, name: str, tool: str) -> list[str]:
        """Return what a tool gave to a teammate, failures left out."""
        calls = self._calls(name, tool)
        answers = (one for one in self.records.get(name, ()) if isinstance(one, CallAnswered))
        good = (one for one in answers if one.tool_use_id in calls and not one.is_error)
        return [one.content for one in good]

    def processes(self) -> set[int]:
        """The pids of those that live."""
        found = (member.process for member in self.team.members)
        return {process.pid for process in found if process is not None and process.alive}

    def _calls(self, name: str, tool: str) -> dict[str, dict[str, Any]]:
        """The input of each call of a tool, by its id."""
        replies = (one for one in self.records.get(name, ()) if isinstance(one, Replied))
        calls = (call for reply in replies for call in reply.calls)
        return {call["id"]: call["input"] for call in calls if call["name"] == tool}


def missing(evidence: Evidence) -> str | None:
    """Return the first step that did not happen, if there is one."""
    return next((step for step, happened in _STEPS if not happened(evidence)), None)


_STEPS: Final[tuple[tuple[str, Callable[[Evidence], bool]], ...]] = (
    ("bob writes test_roman.py", lambda e: (e.workspace / _TESTS).is_file()),
    ("alice writes roman.py", lambda e: (e.workspace / _PROGRAM).is_file()),
    ("alice's mail reaches bob", lambda e: e.letters("alice", "bob") > 0),
    ("bob's tests find a bug", lambda e: any("FAILED (" in o for o in e.outputs("bob", "bash"))),
    ("bob's mail reaches alice", lambda e: e.letters("bob", "alice") > 0),
    ("alice changes roman.py", lambda e: bool(e.outputs("alice", "edit_file"))),
    ("alice's second mail reaches bob", lambda e: e.letters("alice", "bob") > 1),
    ("bob's tests pass", lambda e: e.outputs("bob", "bash")[-1].endswith("\nOK")),
    ("bob's report reaches lead", lambda e: e.letters("bob", LEAD) > 0),
    ("two processes live", lambda e: len(e.processes()) == len(("alice", "bob"))),
    ("both end idle", lambda e: {m.status for m in e.team.members} == {Status.IDLE}),
)
