"""The actions of the page: the values that it sends, and the function for each action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from teamctl.actions import Outcome, TeamActions
from teamctl.arguments import without_secrets
from teamd.board.rules import Change
from teamd.board.task import TaskStatus
from teamd.errors import WrongUsage


@dataclass(frozen=True, slots=True)
class Asked:
    """The values that a page sent with an action."""

    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        """Return a text that must not be empty.

        Raises:
            WrongUsage: it is empty.
        """
        found = self.words(key)
        if not found.strip():
            raise WrongUsage(f"{key} is empty; fill it in")
        return found

    def words(self, key: str) -> str:
        """Return an optional text."""
        found = self.values.get(key, "")
        if not isinstance(found, str):
            raise WrongUsage(f"{key} has to be a text")
        return without_secrets(found)

    def flag(self, key: str) -> bool:
        return self.values.get(key) is True

    def status(self, key: str) -> TaskStatus:
        """Return the status of a task."""
        found = self.text(key)
        if found not in set(TaskStatus):
            raise WrongUsage(f"{key} has to be one of: {', '.join(TaskStatus)}")
        return TaskStatus(found)

    def amount(self, key: str) -> float | None:
        """Return an optional number."""
        found = self.values.get(key)
        if found is None or (isinstance(found, int | float) and not isinstance(found, bool)):
            return found
        raise WrongUsage(f"{key} has to be a number")


def _approve(actions: TeamActions, asked: Asked) -> Outcome:
    always = asked.flag("always")
    return actions.answer(asked.text("id"), asked.words("reason"), approve=True, always=always)


def _reject(actions: TeamActions, asked: Asked) -> Outcome:
    return actions.answer(asked.text("id"), asked.words("reason"), approve=False)


def _send(actions: TeamActions, asked: Asked) -> Outcome:
    return actions.send(asked.text("to"), asked.text("text"), asked.words("key"))


def _spawn(actions: TeamActions, asked: Asked) -> Outcome:
    return actions.spawn(
        asked.text("name"),
        asked.text("role"),
        asked.text("prompt"),
        model=asked.words("model") or None,
        fresh=asked.flag("fresh"),
        plan=True if asked.flag("plan") else None,
        worktree=True if asked.flag("worktree") else None,
    )


def _resume(actions: TeamActions, asked: Asked) -> Outcome:
    more = {unit: asked.amount(unit) for unit in ("usd", "tokens")}
    return actions.resume(asked.text("name"), **{unit: most for unit, most in more.items() if most})


def _add_task(actions: TeamActions, asked: Asked) -> Outcome:
    words = {key: asked.words(key) for key in ("description", "role", "owner", "check", "key")}
    return actions.add_task(asked.text("subject"), **words)


def _change_task(actions: TeamActions, asked: Asked) -> Outcome:
    status = asked.status("status") if asked.words("status") else None
    owner = asked.words("owner") if "owner" in asked.values else None
    return actions.change_task(asked.text("id"), Change(status=status, owner=owner))


ACTIONS: Final[Mapping[str, Callable[[TeamActions, Asked], Outcome]]] = {
    "approve": _approve,
    "reject": _reject,
    "send": _send,
    "broadcast": lambda actions, asked: actions.broadcast(asked.text("text")),
    "spawn": _spawn,
    "shutdown": lambda actions, asked: actions.shutdown(
        asked.text("name"), force=asked.flag("force")
    ),
    "resume": _resume,
    "interrupt": lambda actions, asked: actions.interrupt(asked.text("name"), asked.words("text")),
    "pause": lambda actions, asked: actions.pause(asked.text("name")),
    "tell": lambda actions, asked: actions.tell_lead(asked.text("text"), asked.words("key")),
    "add-task": _add_task,
    "claim-task": lambda actions, asked: actions.claim_task(asked.text("id"), asked.text("owner")),
    "change-task": _change_task,
    "seen": lambda actions, _: actions.note_seen(),
    "enqueue": lambda actions, asked: actions.enqueue(asked.text("name")),
    "dequeue": lambda actions, asked: actions.dequeue(asked.text("id")),
}
