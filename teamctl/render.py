"""Parts of conversations as text for a person: clipped, or as one line."""

from __future__ import annotations

from typing import Final

from teamctl import output
from teamd.transcript import records

_LONGEST: Final = 100  # characters of a line
_LINES: Final = 3


def explain_end(name: str, ended: records.TurnEnded) -> str | None:
    """Return why a turn ended otherwise than by itself, in a sentence; `None` where it did not."""
    used_up = f"{name} used up the model calls of one wake; send it a message to let it go on"
    reasons = {
        records.PAUSED: f"{name} is paused: {ended.text}",
        records.LIMIT: used_up,
        records.REPEATED: f"{name} repeated one call until its turn was ended; send it a message "
        "to let it go on",
        "refusal": f"the model of {name} refused to go on; ask differently",
        records.INTERRUPTED: f"the turn of {name} was interrupted",
    }
    return reasons.get(ended.outcome)


def clip_line(text: str) -> str:
    """Return a text in one line, as far as there is room for it."""
    return _cut(" ".join(output.plain(text).splitlines()), _LONGEST)


def clip_first_line(text: str) -> str:
    """Return the first line of a text, as far as there is room for it."""
    return _cut(next(iter(output.plain(text).splitlines()), ""), _LONGEST)


def clip_beginning(text: str, *, lines: int = _LINES, rest: str) -> str:
    """Return the first lines of a text; they may be long, but not all together.

    Args:
        text: from elsewhere.
        lines: at the most.
        rest: where all of it can be read; told if it is cut.
    """
    found = [one.rstrip() for one in output.plain(text).strip().splitlines()]
    kept = "\n".join(found[:lines])
    cut = _cut(kept, _LONGEST * lines)
    if cut == kept and len(found) > lines:
        cut += "…"
    return cut if cut == kept else f"{cut} ({rest})"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest].rstrip()}…"
