"""Who is to be spawned: asked for in a request, or declared in `team.toml`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from teamd.errors import NotAMessage
from teamd.protocol import FRESH_KEY, PROMPT_KEY, Message, check_name
from teamd.store import files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from teamd.store.paths import TeamPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """Who is to be spawned, and what for.

    Attributes:
        plan: whether it works by plan; `None` for as before.
    """

    name: str
    role: str
    prompt: str
    model: str | None = None
    fresh: bool = False
    plan: bool | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Newcomer:
        """Read a spawn request's arguments.

        Raises:
            NotAMessage: one is missing or of the wrong kind.
            BadName: nobody can have that name.
        """
        plan = arguments.get("plan")
        return cls(
            name=check_name(text_of(arguments, "name")),
            role=text_of(arguments, "role"),
            prompt=text_of(arguments, "prompt"),
            model=model_of(arguments),
            fresh=arguments.get("fresh") is True,
            plan=plan if isinstance(plan, bool) else None,
        )

    def told(self, name: str, message_id: str, sender: str) -> Message:
        """Its prompt as mail, to the name as it is written in the roster."""
        extra = {PROMPT_KEY: True, **({FRESH_KEY: True} if self.fresh else {})}
        return Message(id=message_id, sender=sender, to=name, content=self.prompt, extra=extra)


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What reading the settings again came to: sentences, and teammates to spawn."""

    lines: tuple[str, ...]
    newcomers: tuple[Newcomer, ...]


def prompt_id(paths: TeamPaths, declared: Newcomer) -> str:
    """The id of a declared teammate's prompt: the same for as long as it could be the same prompt.

    A supervisor may die between the roster, the prompt and whatever it notes of them. The next one
    sends it again, and under the same id that is one message. Somebody who has worked since, and
    was taken out of the roster by hand, has a longer conversation: it is spawned again, and what
    it is told then is new.

    Raises:
        StoreError: the conversation cannot be looked at.
    """
    spoken = files.size(paths.transcript(declared.name))
    facts = [paths.own_name, declared.name, declared.prompt, spoken]
    return f"declared-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}"


def text_of(arguments: Mapping[str, Any], key: str) -> str:
    """An argument that must be a text with something in it.

    Raises:
        NotAMessage: it is not.
    """
    value = arguments.get(key)
    if not isinstance(value, str) or not value.strip():
        raise NotAMessage(f"a {key} is needed, as a text that is not empty")
    return value


def model_of(arguments: Mapping[str, Any]) -> str | None:
    """The model that the arguments name, if they name one.

    Raises:
        NotAMessage: it is no text.
    """
    model = arguments.get("model")
    if not (model is None or isinstance(model, str)):
        raise NotAMessage("a model is named by a text")
    return model
