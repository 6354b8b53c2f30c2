"""Resume: reading a conversation from its last checkpoint, compared with reading all records.

Each transcript has a summary every 300 turns, and ends 150 turns after one. The limit is the time
to parse the JSON after the checkpoint. There is no other program to compare with: known ones keep a
conversation without its history, or read all of it.

Run `python -m tests.bench.resume`; `--short` takes ten seconds.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Final

from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.state import ConversationState
from teamd.files.lines import read_lines
from teamd.messages import Message
from teamd.model_server.usage import Usage
from teamd.models import Block, Reply
from teamd.tools import Result
from teamd.transcript.file import Transcript
from teamd.transcript.records import Opened
from tests.bench.ruler import interleave, machine, median, options, table

_BETWEEN: Final = 300  # turns, from summary to summary
_BEHIND: Final = 150
_MAIL: Final = 50
_MIB: Final = 1 << 20
_SPENT: Final = Usage(input_tokens=1000, output_tokens=50)


class Case:
    """A transcript with checkpoints, and the same one without."""

    def __init__(self, folder: Path, mib: int) -> None:
        self.path, self.plain = folder / f"{mib}.jsonl", folder / f"{mib}.plain.jsonl"
        talk = self.read(self.path)
        talk.open(Opened(name="ann", role="coder", system="You are 'ann', role: coder."))
        while self.path.stat().st_size < mib * _MIB:
            self._work(talk, _BETWEEN)
            talk.summarise("You are 'ann'.", text="It went well. " * 99, reply=_reply("Sum", []))
        self._work(talk, _BEHIND)
        lines = self.path.read_bytes().splitlines(keepends=True)
        # Like an earlier version: with records of an unknown kind, which are ignored.
        self.plain.write_bytes(b"".join(lines).replace(b'"checkpoint"', b'"check-point"'))
        self.size, self.behind = self.path.stat().st_size, talk._checkpoint.start

    def read(self, path: Path) -> Conversation:
        """Read the conversation, as a teammate's next process does."""
        return Conversation(Transcript(path, durable=False))

    def parse(self) -> None:
        """Parse the checkpoint and the records after it."""
        for line in filter(None, read_lines(self.path, self.behind)):
            json.loads(line)

    def differences(self) -> list[str]:
        """Return the fields of the state that differ between the two ways of reading."""
        one, other = self.read(self.path), self.read(self.plain)
        names = [found.name for found in fields(ConversationState)]
        return [name for name in names if getattr(one, name) != getattr(other, name)]

    def _work(self, talk: Conversation, turns: int) -> None:
        for turn in range(turns):
            if turn % _MAIL == 0:
                talk.deliver([Message(sender="lead", to="ann", content=f"Go on with {turn}.")])
            call: Block = {
                "type": "tool_use",
                "id": f"t{turn}",
                "name": "bash",
                "input": {"command": "x"},
            }
            talk.add_reply(_reply("word " * 40, [call]))
            talk.add_result(call, Result(text="out " * 400))
            if turn % _MAIL == _MAIL - 1:
                talk.end_turn("end_turn", "Done.")


def _reply(text: str, calls: list[Block]) -> Reply:
    said: list[Block] = [{"type": "text", "text": text}, *calls]
    return Reply(content=said, stop_reason="tool_use", model="m", usage=_SPENT, frame="f")


def measure(sizes: Sequence[int], rounds: int) -> tuple[str, list[str]]:
    """Return the table of a run, and the fields that were lost."""
    rows = [
        ["MiB", "from its checkpoint", "all read", "all / checkpoint", "parse the rest", "/ it"]
    ]
    with tempfile.TemporaryDirectory() as name:
        made = {mib: Case(Path(name), mib) for mib in sizes}
        lost = [f"{mib} MiB: {name}" for mib, case in made.items() for name in case.differences()]
        steps: dict[str, Callable[[], None]] = {}
        for mib, case in made.items():
            steps[f"{mib} checkpoint"] = partial(_read, case, case.path)
            steps[f"{mib} all"] = partial(_read, case, case.plain)
            steps[f"{mib} limit"] = case.parse
        taken = {what: median(seconds) for what, seconds in interleave(steps, rounds).items()}
    for mib, case in made.items():
        ours, whole, limit = (taken[f"{mib} {what}"] for what in ("checkpoint", "all", "limit"))
        ratios = (f"{whole / ours:.0f} x", _ms(limit), f"{ours / limit:.1f} x")
        rows.append([f"{case.size / _MIB:.1f}", _ms(ours), _ms(whole), *ratios])
    return table("Resume of a conversation by the length of its transcript", rows), lost


def _read(case: Case, path: Path) -> None:
    case.read(path)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


if __name__ == "__main__":
    short = options(__doc__).short
    shown, missing = measure((1, 10) if short else (1, 10, 100), 3 if short else 7)
    sys.stdout.write(f"{shown}\n\nLost: {len(missing)}\n{machine()}\n")
    sys.exit("\n".join(missing) or None)
