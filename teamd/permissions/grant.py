"""A lasting permission of the person for a tool call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A lasting permission for the call that the person was asked about, and nothing wider.

    Attributes:
        command: the first words of a command.
        text: or the whole script, if its commands cannot be told apart.
        path: or a file, relative to the workspace.
    """

    tool: str
    command: tuple[str, ...] = ()
    text: str = ""
    path: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set, for JSON."""
        facts = {"command": list(self.command), "text": self.text, "path": self.path}
        return {"tool": self.tool, **{key: value for key, value in facts.items() if value}}

    @classmethod
    def decode(cls, found: Any) -> Grant:
        """Read a grant.

        Raises:
            ValueError: the value is not a grant.
        """
        if not isinstance(found, dict) or not isinstance(found.get("tool"), str):
            raise ValueError("not a grant")  # noqa: TRY004 -- one kind of error for damaged files
        words, texts = found.get("command", []), [found.get(key, "") for key in ("text", "path")]
        if not isinstance(words, list) or not all(isinstance(t, str) for t in (*words, *texts)):
            raise ValueError("not a grant")
        return cls(tool=found["tool"], command=tuple(words), text=texts[0], path=texts[1])

    def __str__(self) -> str:
        if self.command:
            import shlex  # noqa: PLC0415 -- only for this

            return f"{self.tool}: {shlex.join(self.command)} …"
        return f"{self.tool}: {self.text or self.path}" if self.text or self.path else self.tool
