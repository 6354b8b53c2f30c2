"""Commands that a sentence tells its reader to type."""

from __future__ import annotations

from teamd.protocol import LEAD


def again(name: str, *options: str) -> str:
    """The command that calls a teammate again, in backquotes; nobody spawns who leads."""
    called = "teamctl chat" if name == LEAD else f"teamctl spawn {name} …"
    return f"`{' '.join([called, *options])}`"
