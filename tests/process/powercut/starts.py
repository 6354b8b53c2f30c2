"""Real starts: a team is started on a disk that a power cut left, until all its work is done."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import threading
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from teamd import secret_environment
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.process_id import Identity
from tests.forked.client import Forked, interpreters_part
from tests.forked.client import server as forks
from tests.process.powercut.disk import Record, put_state, read_log
from tests.process.powercut.judge import Judge, Told
from tests.process.powercut.judging import Cut
from tests.process.powercut.preload.sitecustomize import mark
from tests.process.powercut.recording import PRELOAD
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say
from tests.strict.server import StrictServer
from tests.waiting import wait_until

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
        self._lock = threading.Lock()
        self._server = StrictServer(self._answer)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        with closing(self._begin("teamd", "start", "--foreground")) as teamd:
            process = Identity.of(teamd.pid)
            try:
                wait_until(
                    lambda: process is None or not process.alive or self._rests(paths),
                    timeout_seconds=_SECONDS,
                    what="the team rests",
                )
            except AssertionError as error:
                os.kill(teamd.pid, signal.SIGKILL)
                return [f"{error}: {self._roster(paths)}"]
            if process is None or not process.signal(signal.SIGTERM):
                return [f"teamd ended with {teamd.wait(_SECONDS)}: {self._output()}"]
            if status := teamd.wait(_SECONDS):
                return [f"teamd stopped with {status}: {self._output()}"]
        with closing(self._begin("teamctl", "inbox")) as teamctl:
            if status := teamctl.wait(_SECONDS):
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
        with self._lock:
            self._asked += 1
            if self._log is not None:
                mark(str(self._log), {"asked": asked.name})
        return say("Nothing to do.")

    def _begin(self, *argv: str) -> Forked:
        """Fork a command that is recorded."""
        environment = {
            **interpreters_part(os.environ),
            **self._server.environment,
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "PYTHONPATH": str(PRELOAD),
            "POWERCUT_LOG": str(self._log),
            "POWERCUT_ROOT": str(self._folder / "project"),
            "POWERCUT_KILLS": "",
        }
        plain, _ = secret_environment.split(environment)
        with (
            secret_environment.handed_over(environment) as secrets,
            Path(os.devnull).open("rb") as nothing,
            (self._folder / "output").open("ab") as output,
        ):
            given = [nothing.fileno(), output.fileno(), output.fileno(), secrets]
            if "--foreground" in argv:  # else it would start anew, to have its secrets handed over
                argv, environment = (*argv, secret_environment.OPTION, "3"), plain
            return forks().fork(
                argv, given, cwd=self._folder / "project", env=environment, new_session=True
            )

    def _output(self) -> str:
        return _content(self._folder / "output").decode(errors="replace")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
