"""Real starts: a team is started on a disk that a power cut left, until all its work is done."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from tests.process.powercut.disk import put_state, read_log
from tests.process.powercut.judge import Judge, Told
from tests.process.powercut.preload.sitecustomize import mark
from tests.strict.replies import say
from tests.strict.server import StrictServer
from tests.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

    from tests.process.powercut.disk import Record
    from tests.process.powercut.judging import Cut
    from tests.strict.asked import Asked
    from tests.strict.replies import Answer

STARTER: Final = Path(__file__).with_name("starter.py")
_SECONDS: Final = 60.0
_RESTS: Final = ("idle", "shutdown", "failed", "paused")


class Starts:
    """Starts teams one after the other, in a folder of its own.

    Args:
        folder: empty.
        commands: the log to which commands of the recorded run write that they ran.
    """

    def __init__(self, folder: Path, commands: Path) -> None:
        self._folder = folder
        self._commands = commands
        self._log: Path | None = None
        self._asked = 0
        self._ended: dict[int, int] = {}
        self._pids: list[int] = []
        self._news = threading.Condition()
        self._server = StrictServer(self._answer)
        root = Path(__file__).parents[3]  # where `tests` is imported from
        environment = {**os.environ, "PYTHONPATH": str(root)}
        self._starter = subprocess.Popen(
            [sys.executable, str(STARTER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._server.__enter__()
        self._listener.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._starter:
            if self._starter.stdin is not None:
                self._starter.stdin.close()
            self._listener.join()
        self._server.__exit__(kind, error, trace)

    def recover(self, cut: Cut, told: Told) -> tuple[list[str], list[Record]]:
        """Start a team, let it do all there is, stop it, and read the person's mail.

        Returns:
            What does not hold then, by what had been told before the cut; and a recording of the
            whole, for a second cut.
        """
        project = self._folder / "project"
        shutil.rmtree(self._folder, ignore_errors=True)
        project.mkdir(parents=True)
        put_state(project, cut.state)
        self._log = self._folder / "second.log"
        self._asked, before = 0, self._commands.stat().st_size
        complaints = self._live(project)
        told = copy.deepcopy(told)
        told.asked += self._asked
        for record in read_log(self._commands, before):
            told.hear(record[2])
        complaints += Judge(project / ".team", told).complaints()
        complaints += [f"the server refused: {error}" for error in self._server.refused]
        self._server.refused.clear()
        return complaints, read_log(self._log)

    def _live(self, project: Path) -> list[str]:
        paths = TeamPaths(project / ".team")
        pid = self._begin("teamd", "start", "--foreground")
        try:
            wait_until(
                lambda: pid in self._ended or self._rests(paths),
                timeout_seconds=_SECONDS,
                what="the team rests",
            )
            if pid in self._ended:
                return [f"teamd ended with {self._ended[pid]}: {self._output()}"]
            os.kill(pid, signal.SIGTERM)
        except AssertionError as error:
            os.kill(pid, signal.SIGKILL)
            return [f"{error}: {self._roster(paths)}"]
        if status := self._wait(pid):
            return [f"teamd stopped with {status}: {self._output()}"]
        if status := self._wait(self._begin("teamctl", "inbox")):
            return [f"teamctl inbox ended with {status}: {self._output()}"]
        return []

    def _rests(self, paths: TeamPaths) -> bool:
        if b'"event": "ready"' not in _content(paths.log("teamd")):
            return False
        roster = self._roster(paths)
        return all(
            member["status"] in _RESTS
            and (member["status"] != "idle" or not Mailbox(paths, member["name"]).waiting())
            for member in roster
        )

    @staticmethod
    def _roster(paths: TeamPaths) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(paths.config.read_bytes())["members"]
        return found

    def _answer(self, asked: Asked) -> Answer:
        with self._news:
            self._asked += 1
            if self._log is not None:
                mark(str(self._log), {"asked": asked.name})
        return say("Nothing to do.")

    def _begin(self, *argv: str) -> int:
        wanted = {
            "argv": argv,
            "folder": str(self._folder / "project"),
            "output": str(self._folder / "output"),
            "log": str(self._log),
            "environment": {
                **self._server.environment,
                "PATH": os.environ["PATH"],
                "HOME": str(self._folder),
            },
        }
        if self._starter.stdin is None:
            raise ValueError("no pipe")
        with self._news:
            known = len(self._pids)
            self._starter.stdin.write(json.dumps(wanted).encode() + b"\n")
            self._starter.stdin.flush()
            self._news.wait_for(lambda: len(self._pids) > known, timeout=_SECONDS)
            return self._pids[-1]

    def _wait(self, pid: int) -> int:
        with self._news:
            self._news.wait_for(lambda: pid in self._ended, timeout=_SECONDS)
            return self._ended[pid]

    def _listen(self) -> None:
        for line in self._starter.stdout or ():
            with self._news:
                words = line.split()
                if len(words) == 1:
                    self._pids.append(int(words[0]))
                else:
                    self._ended[int(words[1])] = int(words[2])
                self._news.notify_all()

    def _output(self) -> str:
        return _content(self._folder / "output").decode(errors="replace")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
