"""Commands from one host to another, and answers: their JSON, and the allowed arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from teamd.errors import ExitCode, NotAMessage
from teamd.messages import is_moment, new_id

# The arguments that are sent, by command. Model, tools, sandbox, limits and working copies follow
# the settings of the other host.
CROSSING: Final[Mapping[str, Mapping[str, type]]] = {
    "spawn": {"name": str, "role": str, "prompt": str},
    "shutdown": {"name": str, "seconds": float, "force": bool},
    "interrupt": {"name": str, "text": str},
}
_ID: Final = re.compile(r"[0-9a-f]{14}-[0-9a-f]{16}")
_LONGEST_TEXT: Final = 100_000  # characters in an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class FarRequest:
    """A command for another host. It is executed at most once, and not after its deadline.

    Attributes:
        command: one of `CROSSING`.
        deadline: by the sender's clock `elapsed`.
        boot: the id of the boot of the sender's machine.
    """

    command: str
    arguments: Mapping[str, Any]
    deadline: float
    boot: str
    id: str = field(default_factory=new_id)

    def encode(self) -> dict[str, Any]:
        """Return the fields to send."""
        return {
            "id": self.id,
            "command": self.command,
            "arguments": dict(self.arguments),
            "deadline": self.deadline,
            "boot": self.boot,
        }

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> FarRequest:
        """Decode an untrusted request; ignore arguments that are not in `CROSSING`.

        Raises:
            NotAMessage: it is not a request.
        """
        made, command = found.get("id"), found.get("command")
        given, deadline = found.get("arguments"), found.get("deadline")
        if not isinstance(made, str) or not _ID.fullmatch(made):
            raise NotAMessage("a request from another host needs an id")
        if not isinstance(command, str) or command not in CROSSING:
            raise NotAMessage(f"no host can ask another for {command!r}")
        if not is_moment(deadline) or not isinstance(boot := found.get("boot"), str):
            raise NotAMessage("a request from another host must give a deadline and its clock")
        arguments = _crossing(CROSSING[command], given if isinstance(given, dict) else {})
        return cls(
            id=made, command=command, arguments=arguments, deadline=float(deadline), boot=boot
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FarAnswer:
    """The answer of another host: a sentence and an exit code.

    Attributes:
        id: the id of the request.
    """

    id: str
    text: str
    exit_code: ExitCode = ExitCode.DONE

    def encode(self) -> dict[str, Any]:
        """Return the fields to send."""
        return {"id": self.id, "text": self.text, "exit_code": int(self.exit_code)}

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> FarAnswer:
        """Decode an untrusted answer.

        Raises:
            NotAMessage: it is not an answer.
        """
        made, text, code = found.get("id"), found.get("text"), found.get("exit_code")
        if not isinstance(made, str) or not _ID.fullmatch(made) or not isinstance(text, str):
            raise NotAMessage("an answer from another host needs the request's id, and a text")
        if isinstance(code, bool) or not isinstance(code, int) or code not in list(ExitCode):
            raise NotAMessage("an answer from another host needs an exit code")
        return cls(id=made, text=text[:_LONGEST_TEXT], exit_code=ExitCode(code))


def _crossing(wanted: Mapping[str, type], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the allowed arguments.

    Raises:
        NotAMessage: an argument is missing or has the wrong type.
    """
    found: dict[str, Any] = {}
    for name, kind in wanted.items():
        value = given.get(name)
        number = kind is float and isinstance(value, int) and not isinstance(value, bool)
        if not (isinstance(value, kind) or number):
            raise NotAMessage(f"the request from another host lacks its {name}")
        found[name] = value
    return found
