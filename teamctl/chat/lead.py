"""The agent that leads, as the person's side reaches it: by requests, mail and its conversation."""

from __future__ import annotations

from teamctl.arguments import REQUEST_SECONDS
from teamctl.post import team_post
from teamctl.texts import without_secrets
from teamd import control
from teamd.cli import Choice
from teamd.messages import FRESH_KEY, LEAD, PROMPT_KEY, USER, Message
from teamd.states import Status


class Lead:
    """One team's leading agent.

    Args:
        fresh: whether the first thing that it is told begins a new conversation.
        model: its model from now on, where another one is wanted.
    """

    def __init__(self, choice: Choice, *, fresh: bool, model: str | None) -> None:
        self._post = team_post(choice)
        self.paths = self._post.paths
        self._fresh = fresh
        self._model = model

    def call(self, *, scripted: bool) -> str | None:
        """Have it there; returns what the person should know of it.

        Args:
            scripted: whether nobody is there to know: why it is paused is told in its answer.

        Raises:
            NoTeamd: nobody could start it.
            TeamError: it is at work, and would have to begin anew or with another model.
        """
        arguments = {"fresh": self._fresh, "model": self._model}
        reply = control.ask(self.paths, LEAD, arguments, timeout_seconds=REQUEST_SECONDS)
        reply.raise_unless_done()
        warning = reply.data.get("warning")
        if scripted and reply.data["member"]["status"] == Status.PAUSED:
            return None
        return None if warning is None else str(warning)

    def tell(self, text: str, *, kind: str = "message") -> str:
        """Send it what the person says; returns the message's id."""
        extra = {PROMPT_KEY: True, FRESH_KEY: True} if self._fresh else {}
        content = without_secrets(text)
        message = Message(type=kind, sender=USER, to=LEAD, content=content, extra=extra)
        self._post.send(message)
        self._fresh = False
        return message.id

    def interrupt(self) -> None:
        """Break off its turn, if it has one; does not wait for it.

        Raises:
            NoTeamd: nobody could.
        """
        whom = {"name": LEAD}
        request = control.ControlRequest.within(REQUEST_SECONDS, "interrupt", arguments=whom)
        control.submit(self.paths, request)
