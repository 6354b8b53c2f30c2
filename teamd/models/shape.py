"""What a reply must be like to be taken into a conversation; the SDK checks nothing of it.

What lacks a part would be met again at each resume, and never be got rid of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from teamd.models import TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from teamd.models import Block

_PARTS: Final[Mapping[str, Mapping[str, type]]] = {
    "text": {"text": str},
    "tool_use": {"id": str, "name": str, "input": dict},
}


def checked(block: Block) -> Block:
    """Return the block as it is.

    Raises:
        TransientError: it has not the parts that its type has.
    """
    for part, kind in _PARTS.get(block["type"], {}).items():
        if not isinstance(block.get(part), kind):
            what = block["type"].replace("_", " ")
            raise TransientError(f"the model's server sent a {what} block without a proper {part}")
    return block


def count(tokens: object) -> int:
    """A number of tokens; servers that imitate the API leave it out, or make something up."""
    return tokens if isinstance(tokens, int) and tokens > 0 else 0
