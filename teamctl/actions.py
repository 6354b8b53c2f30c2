"""What a person does to a team from `top` or the page: the calls behind the commands, no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from teamctl.arguments import COPY_SECONDS, REQUEST_SECONDS
from teamctl.post import team_post
from teamctl.texts import not_empty, without_secrets
from teamd import control
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.command_line.run import TeamOptions
from teamd.errors import ExitCode, TeamError
from teamd.messages import USER, Message, check_name, new_id

_GRACE_SECONDS: Final = 10.0  # as `teamctl shutdown` gives
_MARGIN_SECONDS: Final = 10.0
_KINDS: Final[dict[str, str]] = {
    Kind.PLAN: "plan",
    Kind.SHUTDOWN: "shutdown",
    Kind.PERMISSION: "permission",
}


@dataclass(frozen=True, slots=True)
class Deeds:
    """The person's calls to one team; each returns the sentence that says what was done.

    All raise a `TeamError` where it was not.
    """

    choice: TeamOptions

    def answer(self, request: str, reason: str = "", *, approve: bool, always: bool = False) -> str:
        """Answer a request; with `always`, a permission is granted for good."""
        post = team_post(self.choice)
        words = without_secrets(reason).strip()
        done = Approvals(post.paths, post).answer(
            request, by=USER, approve=approve, reason=words, always=always
        )
        return f"{done.status} {title(done)}"

    def send(self, to: str, text: str, key: str = "") -> str:
        """Send mail; what is sent again with the same key arrives once."""
        post = team_post(self.choice)
        content = without_secrets(not_empty(text))
        message = Message(id=key or new_id(), sender=post.person(), to=to, content=content)
        sent = post.send(message)
        return f"sent to {sent.to}" + (f"; {sent.warning}" if sent.warning else "")

    def broadcast(self, text: str) -> str:
        """Send mail to everybody."""
        post = team_post(self.choice)
        content = without_secrets(not_empty(text))
        message = Message(type="broadcast", sender=post.person(), to="all", content=content)
        sent = post.broadcast(message)
        if not sent:
            raise TeamError("there is nobody to send to; spawn a teammate first")
        return f"sent to {', '.join(one.to for one in sent)}"

    def spawn(self, name: str, role: str, prompt: str, **how: Any) -> str:
        """Start or wake a teammate.

        Args:
            name: the teammate's.
            role: what it is.
            prompt: its next task.
            how: `model`, `effort`, `fresh`, `plan` and `worktree`, as the command has them.
        """
        check_name(name)
        facts = {"name": name, "role": role, "prompt": without_secrets(prompt)}
        left_out = {"model": None, "effort": None, "fresh": False, "plan": None, "worktree": None}
        seconds = COPY_SECONDS if how.get("worktree") else REQUEST_SECONDS
        return self._ask("spawn", facts | left_out | how, seconds)

    def shutdown(self, name: str, *, force: bool = False) -> str:
        """Ask a teammate to end, or end it."""
        asked = {"name": name, "seconds": _GRACE_SECONDS, "force": force}
        limit = (0.0 if force else _GRACE_SECONDS) + _MARGIN_SECONDS
        paths = self.choice.existing()
        reply = control.ask(paths, "shutdown", asked, timeout_seconds=limit)
        members = reply.data.get("members")
        if members is None:
            return reply.raise_unless_done().text
        said = "; ".join(member["text"] for member in members)
        if reply.exit_code is ExitCode.REFUSED:
            raise TeamError(said)
        return said

    def interrupt(self, name: str, text: str = "") -> str:
        """Break off the turn that runs; the text, if there is one, is what it reads next."""
        return self._ask("interrupt", {"name": name, "text": without_secrets(text).strip()})

    def pause(self, name: str) -> str:
        """Hold a teammate until it is resumed."""
        return self._ask("pause", {"name": name})

    def resume(self, name: str, **more: float) -> str:
        """Let a teammate go on, with limits on `usd` and `tokens` that are raised by so much."""
        return self._ask("resume", {"name": name, **more})

    def _ask(self, command: str, facts: dict[str, Any], seconds: float = REQUEST_SECONDS) -> str:
        reply = control.ask(self.choice.existing(), command, facts, timeout_seconds=seconds)
        warning = reply.raise_unless_done().data.get("warning")
        return f"{reply.text}; {warning}" if warning else reply.text


def title(approval: Approval) -> str:
    """Return what a request is called in sentences."""
    return f"the {kind_word(approval)} of {approval.asker} ({approval.id})"


def kind_word(approval: Approval) -> str:
    """Return what is asked for, in a word."""
    return _KINDS.get(approval.type, approval.type)
