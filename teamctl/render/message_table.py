"""Messages of the team as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from teamctl.render import output, tables
from teamctl.render.tables import FittedTable, Shape

# Id, sender, receiver, time in seconds since the epoch, state in a word, text.
MessageRow: TypeAlias = tuple[str, str, str, float | None, str, str]

NO_MESSAGES: Final = "no messages yet; `teamctl send NAME TEXT` sends one"
# An id is cut last, and stays long enough to be unique.
SHAPE: Final = Shape(
    elastic={"TEXT": 8, "ID": 15}, spare=("AGE", "FROM"), dispensable=("TO", "STATE", "TEXT")
)
_HEADINGS: Final = ("ID", "FROM", "TO", "AGE", "STATE", "TEXT")


def message_table(found: Iterable[MessageRow], *, ids: bool = True) -> FittedTable:
    """Return the table of messages; a time may be missing, and an id may be empty.

    Args:
        found: the messages.
        ids: whether to show ids, which take much of the width.
    """
    first = 0 if ids else 1
    rows = (
        [message_id, sender, to, output.ago(sent), state, " ".join(text.split())][first:]
        for message_id, sender, to, sent, state, text in found
    )
    return tables.make_table(_HEADINGS[first:], rows, ("AGE",), SHAPE)
