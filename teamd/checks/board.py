"""The board in the hands of a process of checks."""

from __future__ import annotations

from teamd.board.board import Board
from teamd.files.paths import TeamPaths
from teamd.mail.routing import RESERVE, Post
from teamd.messages import TEAMD
from teamd.settings import Settings


def own_board(paths: TeamPaths, settings: Settings) -> Board:
    """Return the board in the hands of teamd, whose mail has room that others have not."""
    mail = settings.mail
    durable, room = mail.durability == "disk", RESERVE * mail.max_inbox_bytes
    longest = mail.max_message_bytes
    post = Post(paths, durable=durable, max_bytes=longest, max_inbox_bytes=room)
    return Board(paths, post, TEAMD, durable=durable)
