"""A fast path for mail from other hosts in exactly the format that `teamd` writes.

Nearly all lines of a backlog have this format. A regular expression checks the line and the inbox
line is cut out of it, in a third of the time of decoding and encoding JSON. Other lines are
decoded, with the same result.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

_CHARACTERS: Final = rb"[ !#-\[\]-\xff]*+"
_TEXT: Final = rb'"%s(?:\\["\\bfnrt]%s)*+"' % (_CHARACTERS, _CHARACTERS)  # no numeric escapes
_NAME: Final = rb"[\w-]{1,64}"
_PLAIN: Final = re.compile(
    rb'"kind": "mail", "to": "(%(name)s)", "team": "(%(name)s)", "message": '
    rb'\{("id": "[\w-]{1,200}", "type": "(?:message|broadcast|mail_held)", "from": "%(name)s)", '
    rb'("content": %(text)s, "timestamp": [1-9][0-9]{0,10}\.[0-9]{1,9}(?:, "summary": %(text)s)?)'
    rb"\}\}" % {b"name": _NAME, b"text": _TEXT}
)


# The receiver's name as the sender wrote it; the team; the id, type and sender's name, without the
# last quote; the text and the remaining keys.
PlainMail: TypeAlias = tuple[bytes, bytes, bytes, bytes]


def read_plain(body: bytes) -> PlainMail | None:
    """Parse the body of an outbox line; `None` if it is not in this format."""
    found = _PLAIN.fullmatch(body)
    if found is None or not (body.isascii() or _is_utf8(body)):
        return None
    to, team, head, content = found.groups()
    return to, team, head, content


def write_plain(mail: PlainMail, to: bytes, place: bytes) -> bytes:
    """Return the line for an inbox, with its newline.

    Args:
        mail: the parsed line.
        to: the receiver, as in the roster.
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
