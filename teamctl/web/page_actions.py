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
class ActionValues:
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


def _approve(actions: TeamActions, values: ActionValues) -> Outcome:
    always = values.flag("always")
    return actions.answer(values.text("id"), values.words("reason"), approve=True, always=always)


def _reject(actions: TeamActions, values: ActionValues) -> Outcome:
    return actions.answer(values.text("id"), values.words("reason"), approve=False)


def _send(actions: TeamActions, values: ActionValues) -> Outcome:
    return actions.send(values.text("to"), values.text("text"), values.words("key"))


def _spawn(actions: TeamActions, values: ActionValues) -> Outcome:
    return actions.spawn(
        values.text("name"),
        values.text("role"),
        values.text("prompt"),
        model=values.words("model") or None,
        fresh=values.flag("fresh"),
        plan=True if values.flag("plan") else None,
        worktree=True if values.flag("worktree") else None,
    )


def _resume(actions: TeamActions, values: ActionValues) -> Outcome:
    more = {unit: values.amount(unit) for unit in ("usd", "tokens")}
    return actions.resume(
        values.text("name"), **{unit: most for unit, most in more.items() if most}
    )


def _add_task(actions: TeamActions, values: ActionValues) -> Outcome:
    words = {key: values.words(key) for key in ("description", "role", "owner", "check", "key")}
    return actions.add_task(values.text("subject"), **words)


def _change_task(actions: TeamActions, values: ActionValues) -> Outcome:
    status = values.status("status") if values.words("status") else None
    owner = values.words("owner") if "owner" in values.values else None
    return actions.change_task(values.text("id"), Change(status=status, owner=owner))


ACTIONS: Final[Mapping[str, Callable[[TeamActions, ActionValues], Outcome]]] = {
    "approve": _approve,
    "reject": _reject,
    "send": _send,
    "broadcast": lambda actions, values: actions.broadcast(values.text("text")),
    "spawn": _spawn,
    "shutdown": lambda actions, values: actions.shutdown(
        values.text("name"), force=values.flag("force")
    ),
    "resume": _resume,
    "interrupt": lambda actions, values: actions.interrupt(
        values.text("name"), values.words("text")
    ),
    "pause": lambda actions, values: actions.pause(values.text("name")),
    "tell": lambda actions, values: actions.tell_lead(values.text("text"), values.words("key")),
    "add-task": _add_task,
    "claim-task": lambda actions, values: actions.claim_task(
        values.text("id"), values.text("owner")
    ),
    "change-task": _change_task,
    "seen": lambda actions, _: actions.note_seen(),
    "enqueue": lambda actions, values: actions.enqueue(values.text("name")),
    "dequeue": lambda actions, values: actions.dequeue(values.text("id")),
}
