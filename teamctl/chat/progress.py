"""What the lead does while a person waits: for how long, and at what cost."""

from __future__ import annotations

import time
from dataclasses import replace

from teamctl import output, render
from teamd.budget.account import NOTHING, Account
from teamd.budget.ledger import Ledger
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD
from teamd.transcript import records


class LeadProgress:
    """Follows what the lead does, record by record."""

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self.what = ""
        self.since = 0.0

    def note(self, record: records.Record) -> None:
        """Take in what has happened."""
        match record:
            case records.Delivered() | records.CallAnswered() | records.NoteAdded():
                self.what, self.since = "thinking", record.time
            case records.Replied():
                self._tools = {str(call["id"]): describe_call(call) for call in record.calls}
            case records.CallStarted():
                self.what = self._tools.get(record.tool_use_id, "a tool")
                self.since = record.time
            case records.TurnEnded():
                self.what = ""


class Turn:
    """What a turn that the person waits for has taken so far."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._began = time.monotonic()
        self._before = self._account()

    def cost(self) -> str:
        """Return the seconds and the money."""
        now, before = self._account(), self._before
        spent = replace(
            now,
            usd=now.usd - before.usd,
            unpriced_calls=max(0, now.unpriced_calls - before.unpriced_calls),
        )
        seconds = output.duration(time.monotonic() - self._began)
        return f"{seconds}, {output.cost(spent)}" if now.calls > before.calls else seconds

    def _account(self) -> Account:
        try:
            return Ledger(self._paths.ledger).read().used.get(LEAD, NOTHING)
        except TeamError:  # what it costs can be told later as well
            return NOTHING


def describe_call(call: records.Block) -> str:
    """Return a tool call on one line."""
    given = call["input"] if isinstance(call["input"], dict) else {"input": call["input"]}
    said = ", ".join(f"{key}: {value}" for key, value in given.items())
    return render.clip_line(f"{call['name']} {said}")
