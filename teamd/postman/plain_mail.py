"""Mail of other hosts in the shape that `teamd` itself writes: nothing in it is to be mended.

Nearly all of a backlog is such. One look at the bytes checks it, and the line for the inbox is cut
out of them, in a third of the time of reading the JSON and writing it anew. Any other line takes
that way, and comes to the same inbox.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

_CHARACTERS: Final = rb"[ !#-\[\]-\xff]*+"
_TEXT: Final = rb'"%s(?:\\["\\bfnrt]%s)*+"' % (_CHARACTERS, _CHARACTERS)  # no escape by number
_NAME: Final = rb"[\w-]{1,64}"
_PLAIN: Final = re.compile(
    rb'"kind": "mail", "to": "(%(name)s)", "team": "(%(name)s)", "message": '
    rb'\{("id": "[\w-]{1,200}", "type": "(?:message|broadcast|mail_held)", "from": "%(name)s)", '
    rb'("content": %(text)s, "timestamp": [1-9][0-9]{0,10}\.[0-9]{1,9}(?:, "summary": %(text)s)?)'
    rb"\}\}" % {b"name": _NAME, b"text": _TEXT}
)


# The receiver's name as its sender wrote it; the team of both; the message's id, its type and its
# sender's name, without the last quote; the text and all behind it.
PlainMail: TypeAlias = tuple[bytes, bytes, bytes, bytes]


def read_plain(body: bytes) -> PlainMail | None:
    """Read what a line of an outbox holds; `None` for all but plain mail."""
    found = _PLAIN.fullmatch(body)
    if found is None or not (body.isascii() or _is_utf8(body)):
        return None
    to, team, head, content = found.groups()
    return to, team, head, content


def write_plain(mail: PlainMail, to: bytes, place: bytes) -> bytes:
    """Return the line for an inbox, newline included.

    Args:
        mail: as it came.
        to: the receiver, as the roster has it.
        place: `TEAM@HOST` of the sender.
    """
    _, _, head, content = mail
    return b'{%s@%s", "to": "%s", %s}\n' % (head, place, to, content)


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
