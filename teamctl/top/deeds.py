"""What `top` does to a team: the calls that stand behind the commands, and no others.

Each is run in a thread of its own, so that a slow answer never freezes the screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from teamctl.arguments import REQUEST_SECONDS
from teamctl.post import team_post
from teamctl.texts import without_secrets
from teamd import control
from teamd.approvals.store import Approvals
from teamd.errors import TeamError
from teamd.messages import USER, Message, check_name

if TYPE_CHECKING:
    from teamd.cli import Choice
    from teamd.files.paths import TeamPaths

_GRACE_SECONDS: Final = 10.0  # as `teamctl shutdown` gives
_MARGIN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Deeds:
    """The person's calls to one team; each returns the sentence that says what was done.

    All raise a `TeamError` where it was not.
    """

    choice: Choice
    paths: TeamPaths

    def answer(self, request: str, reason: str = "", *, approve: bool) -> str:
        """Answer a request."""
        post = team_post(self.choice)
        words = without_secrets(reason).strip()
        done = Approvals(post.paths, post).answer(request, by=USER, approve=approve, reason=words)
        return f"{done.status} the request of {done.asker} ({done.id})"

    def send(self, name: str, text: str) -> str:
        """Send mail."""
        if not text.strip():
            raise TeamError("nothing was sent: the message is empty")
        post = team_post(self.choice)
        content = without_secrets(text)
        sent = post.send(Message(sender=post.person(), to=name, content=content))
        return f"sent to {sent.to}" + (f"; {sent.warning}" if sent.warning else "")

    def spawn(self, name: str, role: str, prompt: str) -> str:
        """Start or wake a teammate."""
        check_name(name)
        facts = {"name": name, "role": role, "prompt": without_secrets(prompt)}
        return self._ask("spawn", facts | {"model": None, "fresh": False, "plan": None})

    def shutdown(self, name: str) -> str:
        """Ask a teammate to end."""
        asked = {"name": name, "seconds": _GRACE_SECONDS, "force": False}
        limit = _GRACE_SECONDS + _MARGIN_SECONDS
        reply = control.ask(self.paths, "shutdown", asked, timeout_seconds=limit)
        return "; ".join(one["text"] for one in reply.data.get("members", ())) or reply.text

    def interrupt(self, name: str, text: str) -> str:
        """Break off the turn that runs; the text, if there is one, is what it reads next."""
        return self._ask("interrupt", {"name": name, "text": without_secrets(text).strip()})

    def pause(self, name: str) -> str:
        """Hold a teammate until it is resumed."""
        return self._ask("pause", {"name": name})

    def resume(self, name: str, usd: str = "", tokens: str = "") -> str:
        """Let a teammate go on, with limits that are raised by so much."""
        more: dict[str, Any] = {}
        if usd.strip():
            more["usd"] = _number(usd, float)
        if tokens.strip():
            more["tokens"] = _number(tokens, int)
        return self._ask("resume", {"name": name, **more})

    def _ask(self, command: str, facts: dict[str, Any]) -> str:
        reply = control.ask(self.paths, command, facts, timeout_seconds=REQUEST_SECONDS)
        warning = reply.raise_unless_done().data.get("warning")
        return f"{reply.text}; {warning}" if warning else reply.text


def _number(text: str, kind: type[int | float]) -> float:
    try:
        return kind(text.strip().removeprefix("$"))
    except ValueError as error:
        raise TeamError(f"{text!r} is no number; nothing was changed") from error
