"""A terminal with a command in it, as a person has it: keys go in, and what is shown comes out."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from typing import Any

from tests.e2e.harness import Project
from tests.waiting import wait_until

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>])")
CTRL_C, CTRL_D, ALT_ENTER = b"\x03", b"\x04", b"\x1b\r"


class Terminal:
    """A command behind a terminal.

    Args:
        project: where it runs.
        argv: `teamctl chat` by default.
        options: of the process, such as another `stdout`.
    """

    def __init__(self, project: Project, *argv: str, **options: Any) -> None:
        self._mine, theirs = pty.openpty()
        os.set_blocking(self._mine, False)
        project.environment["PROMPT_TOOLKIT_NO_CPR"] = "1"  # nobody answers where the cursor is
        self.process: subprocess.Popen[str] = project.begin(
            *(argv or ("teamctl", "chat")),
            **{"stdin": theirs, "stdout": theirs, "stderr": theirs, **options},
            terminal=True,
        )
        os.close(theirs)
        self._raw = b""

    @property
    def shown(self) -> str:
        """All that was shown so far, without what moves the cursor."""
        return _ESCAPES.sub("", self.raw.decode(errors="replace"))

    @property
    def raw(self) -> bytes:
        """All that was shown so far, as it came."""
        try:
            while part := os.read(self._mine, 1 << 16):
                self._raw += part
        except (BlockingIOError, OSError):  # EIO: the other end has closed
            pass
        return self._raw

    @property
    def rings(self) -> int:
        """How often it rang; what ends a sequence of codes does not ring."""
        return _ESCAPES.sub("", self.raw.decode(errors="replace")).count("\a")

    def sees(self, words: str) -> None:
        """Wait until that is shown."""
        wait_until(lambda: words in self.shown, what=f"{words!r} is shown")

    def asks_after(self, words: str) -> None:
        """Wait until a line can be typed after that was shown.

        A Ctrl-D that is typed before is lost: the terminal takes it for itself.
        """
        wait_until(lambda: "\n>" in self.shown.rpartition(words)[2], what=f"> after {words!r}")

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._mine, keys)

    def close(self) -> None:
        """Let the terminal go."""
        os.close(self._mine)
