"""What a page may have done: each by the very functions of the command of that name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from teamctl import arguments, texts
from teamctl.post import team_post
from teamd import control
from teamd.approvals.store import Approvals
from teamd.errors import ExitCode, TeamError, WrongUsage
from teamd.messages import USER, Message, check_name, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from teamd.cli import Choice

_GRACE_SECONDS: Final = 10.0  # for a shutdown, as the command has it
_MARGIN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The values that a page has sent with one action."""

    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        """Return a text that has to have something in it.

        Raises:
            WrongUsage: it has not.
        """
        found = self.words(key)
        if not found.strip():
            raise WrongUsage(f"{key} is empty; fill it in")
        return found

    def words(self, key: str) -> str:
        """Return a text that may be missing."""
        found = self.values.get(key, "")
        if not isinstance(found, str):
            raise WrongUsage(f"{key} has to be a text")
        return texts.without_secrets(found)

    def flag(self, key: str) -> bool:
        """Return whether that is wanted."""
        return self.values.get(key) is True

    def amount(self, key: str) -> float | None:
        """Return a number that may be missing."""
        found = self.values.get(key)
        if found is None or (isinstance(found, int | float) and not isinstance(found, bool)):
            return found
        raise WrongUsage(f"{key} has to be a number")


def act(choice: Choice, name: str, asked: Asked) -> str:
    """Do what is asked; return the sentence that says so.

    Raises:
        TeamError: it is refused, or failed.
    """
    return ACTIONS[name](choice, asked)


def _approve(choice: Choice, asked: Asked) -> str:
    return _answer(choice, asked, approve=True)


def _reject(choice: Choice, asked: Asked) -> str:
    return _answer(choice, asked, approve=False)


def _answer(choice: Choice, asked: Asked, *, approve: bool) -> str:
    post = team_post(choice)
    done = Approvals(post.paths, post).answer(
        asked.text("id"),
        by=USER,
        approve=approve,
        reason=asked.words("reason").strip(),
        always=approve and asked.flag("always"),
    )
    return f"{done.status}: the request {done.id} of {done.asker}"


def _send(choice: Choice, asked: Asked) -> str:
    post = team_post(choice)
    to, content = asked.text("to"), asked.text("text")
    made = asked.words("key") or new_id()  # a page that repeats it sends it once
    sent = post.send(Message(id=made, sender=post.person(), to=to, content=content))
    return f"sent to {sent.to}" + (f"; {sent.warning}" if sent.warning else "")


def _broadcast(choice: Choice, asked: Asked) -> str:
    post = team_post(choice)
    message = Message(type="broadcast", sender=post.person(), to="all", content=asked.text("text"))
    sent = post.broadcast(message)
    if not sent:
        raise TeamError("there is nobody to send to; spawn a teammate first")
    return f"sent to {', '.join(one.to for one in sent)}"


def _spawn(choice: Choice, asked: Asked) -> str:
    name = asked.text("name")
    check_name(name)
    facts = {
        "name": name,
        "role": asked.text("role"),
        "prompt": asked.text("prompt"),
        "model": asked.words("model") or None,
        "fresh": asked.flag("fresh"),
        "plan": True if asked.flag("plan") else None,
        "worktree": True if asked.flag("worktree") else None,
    }
    seconds = arguments.COPY_SECONDS if facts["worktree"] else arguments.REQUEST_SECONDS
    return _ask(choice, "spawn", facts, seconds)


def _shutdown(choice: Choice, asked: Asked) -> str:
    force = asked.flag("force")
    seconds = (0.0 if force else _GRACE_SECONDS) + _MARGIN_SECONDS
    facts = {"name": asked.text("name"), "seconds": _GRACE_SECONDS, "force": force}
    reply = control.ask(choice.existing(), "shutdown", facts, timeout_seconds=seconds)
    members = reply.data.get("members")
    if members is None:
        return reply.raise_unless_done().text
    said = "; ".join(member["text"] for member in members)
    if reply.exit_code is ExitCode.REFUSED:
        raise TeamError(said)
    return said


def _resume(choice: Choice, asked: Asked) -> str:
    more = {unit: asked.amount(unit) for unit in ("usd", "tokens")}
    facts = {"name": asked.text("name"), **{unit: most for unit, most in more.items() if most}}
    return _ask(choice, "resume", facts)


def _interrupt(choice: Choice, asked: Asked) -> str:
    facts = {"name": asked.text("name"), "text": asked.words("text")}
    return _ask(choice, "interrupt", facts)


def _pause(choice: Choice, asked: Asked) -> str:
    return _ask(choice, "pause", {"name": asked.text("name")})


def _ask(
    choice: Choice,
    command: str,
    facts: Mapping[str, Any],
    seconds: float = arguments.REQUEST_SECONDS,
) -> str:
    reply = control.ask(choice.existing(), command, facts, timeout_seconds=seconds)
    reply.raise_unless_done()
    warning = reply.data.get("warning")
    return f"{reply.text}; {warning}" if warning else reply.text


ACTIONS: Final[Mapping[str, Callable[[Choice, Asked], str]]] = {
    "approve": _approve,
    "reject": _reject,
    "send": _send,
    "broadcast": _broadcast,
    "spawn": _spawn,
    "shutdown": _shutdown,
    "resume": _resume,
    "interrupt": _interrupt,
    "pause": _pause,
}
