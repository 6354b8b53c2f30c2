"""The demo's story, its temporary folder with a team, and its handling of signals."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self

from teamd_commands import command_line

from teamctl.arguments import REQUEST_SECONDS
from teamctl.render import output
from teamd import control, programs
from teamd.control import ControlReply
from teamd.errors import TeamError, translate_os_errors
from teamd.files import pidfile
from teamd.files.paths import STATE_VARIABLE, TeamPaths
from teamd.messages import TEAM_FOLDER
from teamd.programs import Captured
from teamd.settings.trust import TrustStore
from teamd.team.roster import Roster

_LONGEST_REASON: Final = 200


@contextmanager
def temporary_folder(*, keep: bool) -> Iterator[Path]:
    """Make a folder, and remove it after the `with` block unless it should be kept.

    Raises:
        TeamError: the folder could not be made or removed.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="teamd-demo-")).resolve()
    except OSError as error:
        raise TeamError(
            f"no temporary folder could be made: {error}; set TMPDIR to a folder that you can "
            "write to"
        ) from error
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                raise TeamError(f"{folder} could not be removed; remove it by hand")


def describe_end(folder: Path, *, kept: bool) -> str:
    """Return a sentence about the end of the demo and its folder."""
    where = f"its folder stays: {folder}" if kept else "its folder is gone"
    return f"teamd has ended, and {where}"


def failure(folder: Path, step: str, why: str, *, kept: bool) -> TeamError:
    """Return the error of a step that did not happen."""
    reason = textwrap.shorten(output.plain(why), _LONGEST_REASON, placeholder=" …")
    remedy = f"look into {folder}" if kept else "--keep leaves its folder"
    what = f"{step} ({reason})" if reason else step
    return TeamError(f"the demo failed: this did not happen: {what}; {remedy}")


SETTINGS: Final = """\
[team]
name = "demo"
workspace = "project"

[model]
script = "script.json"  # instead of a model
"""
_START_SECONDS: Final = 90.0  # more than `teamd start` itself waits for teamd
_STOP_SECONDS: Final = 60.0  # more than `teamd stop` itself waits
_RUN_SECONDS: Final = 30.0
# Variables that name another team, another service or a key are left out.
_FOREIGN: Final = ("TEAMD_DIR", "ANTHROPIC_", "CREDENTIALS_", "NOTIFY_", "WATCHDOG_")
_NO_SETTINGS: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHELL_BASE: Final = 128  # the shell's exit status for a signal


@dataclass(frozen=True, slots=True)
class Part:
    """A teammate in the story, with the scripted turns of its model."""

    name: str
    role: str
    prompt: str
    turn: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TaskInCopy(Part):
    """A teammate that does a task in a working copy, with the task's subject and check."""

    subject: str
    check: str


@dataclass(frozen=True, slots=True)
class Story:
    """The whole story: first the teammates, in the order of their spawns, then the task."""

    parts: tuple[Part, ...]
    task: TaskInCopy
    pace_seconds: float

    @classmethod
    def read(cls, file: Path | None) -> Self:
        """Read the story that comes with the program, or another one.

        Raises:
            TeamError: it cannot be read.
        """
        source = files("teamctl.demo") / "story.toml" if file is None else file
        try:
            told = tomllib.loads(source.read_text(encoding="utf-8"))
            parts = tuple(Part(**one) for one in told["teammate"])
            return cls(parts, TaskInCopy(**told["copy"]), float(told["pace_seconds"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TeamError(f"{source} does not contain a story for the demo: {error}") from error

    def script(self, *, paced: bool) -> str:
        """Return the text of a `[model] script` file; see teamd/models/scripted.py."""
        turns = {part.name: part.turn for part in (*self.parts, self.task)}
        return json.dumps({"pace_seconds": self.pace_seconds if paced else 0, "turns": turns})


class Stage:
    """A folder with settings, a script and a workspace, and its teamd.

    Attributes:
        kept: whether the folder stays after the demo.
        workspace: the folder in which the tools work.
    """

    def __init__(self, folder: Path, script: str, *, kept: bool) -> None:
        self.folder = folder
        self.kept = kept
        self.paths = TeamPaths(folder / TEAM_FOLDER)
        self.workspace = folder / "project"
        with translate_os_errors(folder):
            self.workspace.mkdir()
            (folder / "script.json").write_text(script, encoding="utf-8")
            self.paths.settings.write_text(SETTINGS, encoding="utf-8")
        self._state = {STATE_VARIABLE: str(folder / "state")}  # not the person's: it is temporary
        TrustStore(self._state).confirm(self.paths.settings, SETTINGS.encode())

    def start(self) -> None:
        """Start teamd, and wait until it accepts requests.

        Raises:
            TeamError: it did not start.
        """
        self._command("teamd", "start", seconds=_START_SECONDS)

    def spawn(self, part: Part, **more: object) -> ControlReply:
        """Spawn a teammate; `more` adds arguments to the request.

        Raises:
            TeamError: teamd does not answer.
        """
        facts = {"name": part.name, "role": part.role, "prompt": part.prompt, **more}
        return control.ask(self.paths, "spawn", facts, timeout_seconds=REQUEST_SECONDS)

    def stop(self) -> None:
        """Stop teamd, if it runs.

        Raises:
            TeamError: a process still runs.
        """
        there = pidfile.supervisor(self.paths)
        if there is None:
            return
        members = Roster(self.paths).read().members
        processes = [there, *(member.process for member in members if member.process)]
        self._command("teamd", "stop", seconds=_STOP_SECONDS)
        left = [process.pid for process in processes if process.alive]
        if left:
            raise TeamError(f"the demo failed: these processes are left: {left}")

    def run(self, *arguments: str) -> Captured:
        """Run Python in the workspace."""
        return self._capture([sys.executable, *arguments])

    def git(self, *words: str) -> None:
        """Run git in the workspace, without the person's settings.

        Raises:
            TeamError: it failed.
        """
        ended = self._capture(["git", *words], **_NO_SETTINGS)
        if ended.status:
            said = " ".join(ended.stderr.decode("utf-8", "replace").split())
            raise TeamError(f"the demo failed: `git {words[0]}` said: {said}")

    def _capture(self, argv: Sequence[str], **variables: str) -> Captured:
        environment, where = {"PATH": _path(), **variables}, self.workspace
        ending = programs.capture(argv, timeout_seconds=_RUN_SECONDS, cwd=where, env=environment)
        return asyncio.run(ending)

    def _command(self, program: str, *words: str, seconds: float) -> str:
        argv = [*command_line(program), *words, "--team-dir", str(self.paths.root)]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        environment = {**kept, **self._state, "PATH": _path()}
        ending = programs.capture(argv, timeout_seconds=seconds, cwd=self.folder, env=environment)
        name = f"{program} {words[0]}"
        try:
            ended = asyncio.run(ending)
        except OSError as error:  # also for a TimeoutError
            raise TeamError(f"the demo failed: `{name}`: {error}") from error
        if ended.status:
            said = ended.stderr.decode("utf-8", "replace").split()
            raise TeamError(f"the demo failed: `{name}` said: {' '.join(said)}")
        return ended.stdout.decode("utf-8", "replace")


class Interrupted(Exception):
    """A signal ended the demo.

    Attributes:
        exit_status: the exit status of the command.
    """

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"the demo was ended by {number.name}")
        self.exit_status: Final = _SHELL_BASE + number


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Catch signals inside the `with` block, and yield a function that then raises `Interrupted`.

    A signal that is ignored, as under nohup, stays ignored.
    """
    came: list[signal.Signals] = []

    def check() -> None:
        if came:
            raise Interrupted(came[0])

    before = {
        number: signal.signal(number, lambda number, _: came.append(signal.Signals(number)))
        for number in _ENDINGS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def open_stage(folder: Path, script: str, *, kept: bool) -> Iterator[Stage]:
    """Open a stage in an empty folder, and stop its teamd after the `with` block."""
    stage = Stage(folder, script, kept=kept)
    try:
        yield stage
    finally:
        stage.stop()


def _path() -> str:
    """Return the PATH with the folder of this Python in front, since PATH may lack it."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
