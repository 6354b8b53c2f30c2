"""A terminal that runs a command: tests type keys and read the screen."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.harness import Project
from tests.waiting import wait_until


class Multiplexer:
    """One window of a separate tmux server.

    Args:
        project: where the command runs.
        command: for the shell.
        size: columns and lines.
    """

    def __init__(self, project: Project, command: str, size: tuple[int, int] = (80, 24)) -> None:
        self._project = project
        self._socket = str(project.root / "tmux")
        columns, lines = map(str, size)
        self._do("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", lines, command)

    @property
    def shown(self) -> str:
        """The screen as it is now."""
        return self._do("capture-pane", "-p")

    def sees(self, words: str, *, timeout_seconds: float = 20) -> None:
        """Wait until a text is on the screen."""
        wait_until(lambda: words in self.shown, timeout_seconds=timeout_seconds, what=repr(words))

    def misses(self, words: str) -> None:
        """Wait until a text has disappeared from the screen."""
        wait_until(lambda: words not in self.shown, what=f"{words!r} is gone")

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self._do("send-keys", *keys)

    def type(self, words: str) -> None:
        """Type words as they are."""
        self._do("send-keys", "-l", words)

    def resize(self, columns: int, lines: int) -> None:
        self._do("resize-window", "-x", str(columns), "-y", str(lines))

    @property
    def buffer(self) -> str:
        """The texts that programs have copied through the terminal."""
        return self._do("show-buffer")

    @property
    def process(self) -> int:
        """The pid of the command."""
        return int(self._do("list-panes", "-F", "#{pane_pid}"))

    def accept_copies(self) -> None:
        """Let programs copy by the terminal, as a person's settings of tmux do."""
        self._do("set-option", "-s", "set-clipboard", "on")

    def close(self) -> None:
        """End the server and its programs."""
        self._do("kill-server")
        left = self._project.survivors
        wait_until(lambda: not any("teamctl top" in one for one in left().values()), what="its end")

    def _do(self, *words: str) -> str:
        # Without TMUX, which would refer to the person's own server.
        environment = {**self._project.environment, "TERM": "screen-256color", "LC_ALL": "C.UTF-8"}
        argv = ("tmux", "-u", "-S", self._socket, *words)
        done = subprocess.run(
            argv,
            env=environment,
            cwd=self._project.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout


@contextmanager
def opened(
    project: Project, command: str, size: tuple[int, int] = (80, 24)
) -> Iterator[Multiplexer]:
    """Open a window with a command for the length of a block."""
    window = Multiplexer(project, command, size)
    try:
        yield window
    finally:
        window.close()


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
        project.environment["PROMPT_TOOLKIT_NO_CPR"] = "1"  # it reports no position
        self.process: subprocess.Popen[str] = project.begin(
            *(argv or ("teamctl", "chat")),
            **{"stdin": theirs, "stdout": theirs, "stderr": theirs, **options},
            terminal=True,
        )
        os.close(theirs)
        self._raw = b""

    @property
    def shown(self) -> str:
        """All output so far, without control sequences."""
        return _ESCAPES.sub("", self.raw.decode(errors="replace"))

    @property
    def raw(self) -> bytes:
        """All output so far, unchanged."""
        try:
            while part := os.read(self._mine, 1 << 16):
                self._raw += part
        except (BlockingIOError, OSError):  # EIO: the other end has closed
            pass
        return self._raw

    @property
    def rings(self) -> int:
        """Return how often the bell rang; a BEL that ends a control sequence does not count."""
        return _ESCAPES.sub("", self.raw.decode(errors="replace")).count("\a")

    def sees(self, words: str) -> None:
        """Wait until a text has been shown."""
        wait_until(lambda: words in self.shown, what=f"{words!r} is shown")

    def asks_after(self, words: str) -> None:
        """Wait until the prompt accepts input after a text has been shown.

        A Ctrl-D that is typed earlier is lost: the terminal driver takes it.
        """
        wait_until(lambda: "\n>" in self.shown.rpartition(words)[2], what=f"> after {words!r}")

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._mine, keys)

    def close(self) -> None:
        os.close(self._mine)
