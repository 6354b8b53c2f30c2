"""How a tool call ended, as its result shows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from teamd.transcript.records import CallAnswered

# What the bash tool notes below the output, see `teamd.tools.shell`.
_NOTED: Final = re.compile(
    r"^\[(exit status \d+|killed by [^\]]+|ended after [^,\]]+|all of it was ended)", re.MULTILINE
)
_END: Final = 1000  # characters; notes are the last lines


def find_trouble(answer: CallAnswered) -> str:
    """Return what became of a command that did not end well, such as `exit status 1`, or nothing.

    Its call has succeeded: the model was told. The page has the same in `member.js`.
    """
    found = _NOTED.search(answer.content[-_END:])
    return found[1] if found else ""
