"""What a page may have done: each a deed of the person, from values that a page has sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from teamctl import arguments
from teamctl.actions import Deeds
from teamd.command_line.run import TeamOptions
from teamd.errors import WrongUsage


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
        return arguments.without_secrets(found)

    def flag(self, key: str) -> bool:
        """Return whether that is wanted."""
        return self.values.get(key) is True

    def amount(self, key: str) -> float | None:
        """Return a number that may be missing."""
        found = self.values.get(key)
        if found is None or (isinstance(found, int | float) and not isinstance(found, bool)):
            return found
        raise WrongUsage(f"{key} has to be a number")


def act(choice: TeamOptions, name: str, asked: Asked) -> str:
    """Do what is asked; return the sentence that says so.

    Raises:
        TeamError: it is refused, or failed.
    """
    return ACTIONS[name](Deeds(choice), asked)


def _approve(deeds: Deeds, asked: Asked) -> str:
    always = asked.flag("always")
    return deeds.answer(asked.text("id"), asked.words("reason"), approve=True, always=always)


def _reject(deeds: Deeds, asked: Asked) -> str:
    return deeds.answer(asked.text("id"), asked.words("reason"), approve=False)


def _send(deeds: Deeds, asked: Asked) -> str:
    return deeds.send(asked.text("to"), asked.text("text"), asked.words("key"))


def _spawn(deeds: Deeds, asked: Asked) -> str:
    return deeds.spawn(
        asked.text("name"),
        asked.text("role"),
        asked.text("prompt"),
        model=asked.words("model") or None,
        fresh=asked.flag("fresh"),
        plan=True if asked.flag("plan") else None,
        worktree=True if asked.flag("worktree") else None,
    )


def _resume(deeds: Deeds, asked: Asked) -> str:
    more = {unit: asked.amount(unit) for unit in ("usd", "tokens")}
    return deeds.resume(asked.text("name"), **{unit: most for unit, most in more.items() if most})


ACTIONS: Final[Mapping[str, Callable[[Deeds, Asked], str]]] = {
    "approve": _approve,
    "reject": _reject,
    "send": _send,
    "broadcast": lambda deeds, asked: deeds.broadcast(asked.text("text")),
    "spawn": _spawn,
    "shutdown": lambda deeds, asked: deeds.shutdown(asked.text("name"), force=asked.flag("force")),
    "resume": _resume,
    "interrupt": lambda deeds, asked: deeds.interrupt(asked.text("name"), asked.words("text")),
    "pause": lambda deeds, asked: deeds.pause(asked.text("name")),
}
