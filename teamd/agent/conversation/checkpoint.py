"""The state of a conversation as a checkpoint in its transcript: written, and read again.

Values are read by the types of the fields that they are for, so that whatever is added to the
state is in the checkpoint as well.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

from teamd.agent.conversation.state import ConversationState
from teamd.messages import Message
from teamd.transcript.file import Transcript, message_in
from teamd.transcript.records import Block, Checkpoint

# Another one with each change of what follows from records, or of what stands in the state: then
# all records are read. A field that is more or less is found without it.
FORMAT: Final = 3
_NAMES: Final = {"Message": Message, "Block": Block, "ChatMessage": Any}  # imported for types only


def make_checkpoint(state: ConversationState) -> Checkpoint:
    """Return the checkpoint of a state as it is now, and will be behind it."""
    facts = {one.name: getattr(state, one.name) for one in fields(ConversationState)}
    facts["_length"] += 1  # the checkpoint itself
    return Checkpoint(format=FORMAT, state=facts, time=time.time())


def find_checkpoint(transcript: Transcript) -> tuple[range, dict[str, Any]]:
    """Return where the last checkpoint stands that can be used, and the fields of its state.

    Where there is none, that is the beginning of the transcript, and no fields.
    """
    for there, checkpoint in transcript.checkpoints():
        with suppress(ValueError):  # damaged, or of a version whose state has other fields
            if checkpoint.format == FORMAT:
                return there, _decode_fields(ConversationState, checkpoint.state)
    return range(0), {}


def _decode_fields(kind: Any, found: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, by name."""
    hints = _hints(kind)
    if not isinstance(found, dict) or found.keys() != hints.keys():
        raise ValueError(kind)
    return {name: _decode(hint, found[name]) for name, hint in hints.items()}


def _decode(kind: Any, found: Any) -> Any:
    """Return the value of a type that stands there as JSON."""
    if get_origin(kind) is UnionType:  # with `None`
        return None if found is None else _decode(get_args(kind)[0], found)
    if kind is Message:
        return _decode_message(found)
    if is_dataclass(kind):
        return cast("type", kind)(**_decode_fields(kind, found))
    return _decode_plain(kind, found)


def _decode_plain(kind: Any, found: Any) -> Any:
    origin, items = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(found, dict):
        if items[1] is Any:  # of blocks there may be thousands
            return found
        return {key: _decode(items[1], value) for key, value in found.items()}
    if origin in (list, set, frozenset, tuple) and isinstance(found, list):
        return origin(_decode(items[0], value) for value in found)
    if kind is Any or (
        origin is None and isinstance(found, (int, float) if kind is float else kind)
    ):
        return found
    raise ValueError(kind)


def _decode_message(found: Any) -> Message:
    message = message_in(found)
    if message is None:
        raise ValueError(found)
    return message


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass, by name."""
    hints = get_type_hints(kind, localns=_NAMES)
    return {one.name: hints[one.name] for one in fields(kind) if one.init}
