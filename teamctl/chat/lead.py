"""The agent that leads, as the person's side reaches it: by requests, mail and its conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from teamd.errors import ExitCode, TeamError
from teamd.protocol import LEAD, USER, Message
from teamd.store import requests
from teamd.store.post import Post
from teamd.store.requests import Request

if TYPE_CHECKING:
    from teamd.commandline import Choice
    from teamd.store.paths import TeamPaths

_SECONDS: Final = 30.0


class Lead:
    """One team's leading agent."""

    def __init__(self, choice: Choice, paths: TeamPaths) -> None:
        mail = choice.settings(paths).mail
        self.paths = paths
        self._post = Post(
            paths, durable=mail.durability == "disk", max_bytes=mail.max_message_bytes
        )

    def call(self) -> str | None:
        """Have it there; returns what the person should know of it.

        Raises:
            NoTeamd: nobody could start it.
        """
        answer = requests.ask(self.paths, LEAD, {}, timeout_seconds=_SECONDS)
        if answer.exit_code != ExitCode.DONE:
            raise TeamError(answer.text)
        warning = answer.data.get("warning")
        return None if warning is None else str(warning)

    def tell(self, text: str, *, kind: str = "message") -> str:
        """Send it what the person says; returns the message's id."""
        message = Message(type=kind, sender=USER, to=LEAD, content=text)
        self._post.send(message)
        return message.id

    def interrupt(self) -> None:
        """Break off its turn, if it has one; does not wait for it.

        Raises:
            NoTeamd: nobody could.
        """
        requests.submit(self.paths, Request.within(_SECONDS, "interrupt", arguments={"name": LEAD}))
