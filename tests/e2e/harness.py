"""A separate project folder, the installed commands in it, and a strict server."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import pytest

from teamd import secret_environment
from teamd.files.paths import SETTINGS_FILE, STATE_VARIABLE, TeamPaths
from teamd.service import READY
from teamd.settings.trust import TrustStore
from teamd.team import teams
from tests.forked.client import Begun, Forked
from tests.forked.client import server as forks
from tests.strict.asked import Asked, Model
from tests.strict.exchange import Accepted
from tests.strict.replies import Answer, say
from tests.strict.server import StrictServer, by_name
from tests.waiting import wait_until

PROGRAMS: Final = Path(sys.executable).parent  # not resolved: the programs of a virtual environment
LONGEST_SECONDS: Final = 60.0
SIGHTED: Final = pytest.mark.skipif(
    os.geteuid() != 0, reason="to an ordinary user processes of teamd's show nothing of themselves"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command's exit status and output."""

    status: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The only line on standard error; fails if there is not exactly one."""
        assert self.stderr.count("\n") == 1, f"not one line on standard error: {self.stderr!r}"
        assert self.stderr.endswith("\n")
        return self.stderr.removesuffix("\n")


class Stage:
    """A model whose turns can be set while the server runs; the default is `Nothing to do`."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}

    def act(self, name: str, model: Model) -> None:
        """Answer all further requests of a teammate with this function."""
        self._models[name] = model

    def play(self, name: str, *turns: Answer | Model) -> None:
        """Answer a teammate's further requests with these turns, one per request."""
        self.act(name, by_name({name: turns}))

    def __call__(self, asked: Asked) -> Answer:
        model = self._models.get(asked.name)
        return say("Nothing to do.") if model is None else model(asked)


class Project:
    """A folder with the commands of this environment and a separate HOME.

    Attributes:
        root: contains everything; every process of the test names it in its environment, even the
            commands of the `bash` tool, which get little more than `PATH`.
        folder: the working directory of the commands.
        environment: the commands' environment; a test may change it.
        stage: the model.
        server: must have refused nothing at the end, unless the test takes `refusals` first.

    Args:
        installed: whether to start every command as a person does. Otherwise commands are forked
            from a process that has loaded them, which is a second faster and looks the same from
            outside.
    """

    def __init__(
        self, root: Path, server: StrictServer, stage: Stage, *, installed: bool = False
    ) -> None:
        self.root = root
        self.folder = root / "project"
        self.server = server
        self.stage = stage
        self.paths = TeamPaths(self.folder / ".team")
        home = root / "home"
        for made in (self.folder, home):
            made.mkdir()
        kept = {key: value for key, value in os.environ.items() if key.startswith(_KEPT)}
        path = os.pathsep.join((str(PROGRAMS), str(root / "bin"), os.environ["PATH"]))
        self._path = path
        own = {"PATH": path, "HOME": str(home), STATE_VARIABLE: str(root / "state")}
        self.environment = {**kept, **own, **server.environment}
        self._begun: list[subprocess.Popen[str]] = []
        self._installed = installed
        self._serving: list[Forked] = []

    def run(
        self,
        *argv: str,
        stdin: str = "",
        timeout_seconds: float = LONGEST_SECONDS,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run a command to its end; `env` is added to the project's environment."""
        given = {**self.environment, **(env or {})}
        where = cwd or self.folder
        if not self._installed and forks().takes(argv, given):
            written = forks().run(
                argv, stdin=stdin, timeout_seconds=timeout_seconds, cwd=where, env=given
            )
            ended = Ended(status=written.status, stdout=written.stdout, stderr=written.stderr)
        else:
            done = subprocess.run(
                argv,
                input=stdin,
                timeout=timeout_seconds,
                cwd=where,
                env=given,
                capture_output=True,
                text=True,
                check=False,
            )
            ended = Ended(status=done.returncode, stdout=done.stdout, stderr=done.stderr)
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended

    def do(self, *argv: str, stdin: str = "") -> str:
        """Run a command that must succeed; return its output."""
        done = self.run(*argv, stdin=stdin)
        assert done.status == 0, f"{argv} ended with {done.status}: {done.stderr}"
        return done.stdout

    def begin(self, *argv: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in the background; it is killed at the end of the test at the latest.

        Args:
            argv: the command.
            options: its streams, as for `subprocess.Popen`, with an empty standard input by
                default; `terminal`, whether the first stream becomes the terminal of a new session;
                and `installed`, as for the project: a forked command may end before a test can look
                at it.
        """
        terminal = options.pop("terminal", False)
        installed = options.pop("installed", self._installed)
        streams = {"stdin": subprocess.DEVNULL, **options}
        where, env = self.folder, self.environment
        begun: subprocess.Popen[str]
        if not installed and forks().takes(argv, env):
            begun = Begun(argv, streams, cwd=where, env=env, terminal=terminal)
        else:
            if terminal:
                streams |= {"start_new_session": True, "preexec_fn": _take_terminal}
            begun = subprocess.Popen(argv, cwd=where, env=env, text=True, **streams)
        self._begun.append(begun)
        return begun

    @contextmanager
    def serving(self, *argv: str) -> Iterator[tuple[int, str]]:
        """Run a command that serves until the end of the block, and stop it cleanly.

        Yields its pid and the first line that it prints.
        """
        begun = self.begin(*argv, stdout=subprocess.PIPE)
        assert begun.stdout is not None
        try:
            yield begun.pid, begun.stdout.readline().strip()
        finally:
            begun.terminate()
            assert begun.wait(timeout=20) == 0

    def start(self) -> int:
        """Start teamd; return its pid."""
        self.start_in(self.folder)
        return self.supervisor

    def start_in(self, folder: Path) -> None:
        """Start teamd in another folder, such as a renamed project."""
        if self._installed or not forks().takes(("teamd",), self.environment):
            started = self.run("teamd", "start", cwd=folder)
            assert started.status == 0, started.stderr
        else:
            self._fork_supervisor(folder=folder)

    def restart(self) -> int:
        """Stop teamd and start it again; return its pid. `teamd restart` has its own tests."""
        self.do("teamd", "stop")
        return self.start()

    def ask_no_service(self, settings: str = "") -> None:
        """Answer from a script that says `Nothing to do`, so that a started teamd loads no SDK."""
        self.write("turns.json", '{"turns": {}}')
        self.write("team.toml", f'[model]\nscript = "turns.json"\n{settings}')

    def found(self, team: str) -> None:
        """Make another team, and start its teamd, as `teamctl create` does.

        The command would start a new interpreter; it has its own tests.
        """
        teams.make(self.folder, team)
        self._fork_supervisor("--team", team)

    def _fork_supervisor(self, *which: str, folder: Path | None = None) -> None:
        """Fork a supervisor and wait until it is ready, as `teamd start` does."""
        reader, writer = os.pipe()
        plain, _ = secret_environment.split(self.environment)
        with (
            secret_environment.handed_over(self.environment) as secrets,
            os.fdopen(reader, "rb") as ready,
            Path(os.devnull).open("r+b") as nothing,
            TemporaryFile("w+") as errors,
        ):
            descriptors = [nothing.fileno(), nothing.fileno(), errors.fileno(), writer, secrets]
            argv = ("teamd", *which, "start", "--foreground", "--ready-fd", "3")
            argv = (*argv, secret_environment.OPTION, "4")
            serving = forks().fork(
                argv, descriptors, cwd=folder or self.folder, env=plain, new_session=True
            )
            self._serving.append(serving)
            os.close(writer)
            if ready.read() != READY:
                status = serving.wait(LONGEST_SECONDS)
                errors.seek(0)
                raise AssertionError(f"{argv} ended with {status}: {errors.read()}")

    @property
    def supervisor(self) -> int:
        """The pid in teamd's pid file."""
        return int(json.loads(self.paths.supervisor.read_bytes())["pid"])

    def enlist(self, *names: str, **facts: Any) -> None:
        """Make a team without processes: a roster in the format of the lessons."""
        self.paths.create()
        members = [{"name": name, "role": "coder", "status": "idle", **facts} for name in names]
        roster = {"team_name": self.folder.name, "members": members}
        new = self.paths.config.with_name("config.new")
        new.write_text(json.dumps(roster), encoding="utf-8")
        new.replace(self.paths.config)  # a watcher never sees a partial file

    def write(self, name: str, text: str, *, trusted: bool = True) -> Path:
        """Write a file into the project's folder, and create its parent folders.

        Settings are trusted, unless `trusted` is false.
        """
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        wait_until(lambda: not path.is_dir(), what=f"no command keeps the place of {name}")
        path.write_text(text, encoding="utf-8")
        if trusted and path.name == SETTINGS_FILE:
            TrustStore(self.environment).confirm(path, path.read_bytes())
        return path

    def member(self, name: str) -> dict[str, Any]:
        """Return a teammate's roster entry; empty if it has none."""
        if not self.paths.config.exists():
            return {}
        members = json.loads(self.paths.config.read_bytes())["members"]
        return next((m for m in members if m["name"] == name), {})

    def wait_for(self, name: str, status: str, *, turns: int = 0) -> dict[str, Any]:
        """Wait until the roster shows this status after at least so many turns."""

        def so() -> bool:
            member = self.member(name)
            return member.get("status") == status and member.get("turns", 0) >= turns

        wait_until(so, timeout_seconds=30, what=f"{name} is {status}")
        return self.member(name)

    def wait_for_process(self, name: str) -> int:
        """Wait until the roster names a teammate's process after a start; return its pid."""
        found: list[int] = []  # it may have ended before a second look

        def is_there() -> bool:
            found[:] = filter(None, [self.member(name).get("pid")])
            return bool(found)

        wait_until(is_there, what=f"{name} has a process")
        return found[0]

    def records(self, name: str, kind: str | None = None) -> list[dict[str, Any]]:
        """Return a transcript's records, all or those of one kind."""
        path = self.paths.transcript(name)
        *lines, _ = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
        records = [json.loads(line) for line in lines]  # the last one may be partly written
        return [r for r in records if kind is None or r["record"] == kind]

    def mail(self, name: str) -> str:
        """Return the raw text of an inbox."""
        inbox = self.paths.inbox(name)
        return inbox.read_text(encoding="utf-8") if inbox.exists() else ""

    def log(self, name: str, event: str) -> list[dict[str, Any]]:
        """Return the log entries for an event."""
        path = self.paths.log(name)
        *lines, _ = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
        return [entry for line in lines if (entry := json.loads(line))["event"] == event]

    def asked(self, name: str, *, least: int = 0) -> list[Accepted]:
        """Wait for at least so many accepted requests of a teammate; return them."""

        def accepted() -> list[Accepted]:
            return [one for one in self.server.requests if one.asked.name == name]

        wait_until(lambda: len(accepted()) >= least, what=f"{name} asks {least} times")
        return accepted()

    def refusals(self) -> list[str]:
        """Return the requests that the server refused, so that they do not fail the test."""
        taken = [str(error) for error in self.server.refused]
        self.server.refused.clear()
        return taken

    def survivors(self) -> dict[int, str]:
        """Return the command lines, by pid, of all processes whose environment names the folder."""
        mark = f"{self.root}/".encode()
        found = {}
        for pid in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 -- half of the time
            with suppress(OSError):
                if mark in _read(f"/proc/{pid}/environ"):
                    words = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ")
                    found[int(pid)] = words.decode(errors="replace").strip()
        return found

    def end(self) -> None:
        """Stop teamd; check that no process is left and that the server has refused nothing."""
        for begun in self._begun:
            with begun:
                begun.kill()
        for serving in self._serving:
            serving.close()
        blind = os.geteuid() != 0  # see `SIGHTED`
        stopped = None
        if (left := self.survivors()) or blind:
            stopped = self.run("teamd", "stop", env={"PATH": self._path})
            left = self.survivors()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left, f"these outlived `teamd stop` ({stopped}): {left}"
        refused = [f"{error} in {error.body}" for error in self.server.refused]
        assert not refused, f"the server refused: {refused}"


def _read(path: str) -> bytes:
    with open(path, "rb", 0) as file:  # noqa: PTH123 -- for the same reason
        return file.read()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # its keys send signals


@contextmanager
def opened(root: Path, *, installed: bool = False, **terms: Any) -> Iterator[Project]:
    """Yield a project in an empty folder without teamd; end and check it afterwards.

    Args:
        root: the folder.
        installed: see `Project`.
        terms: the server's terms, such as `context_tokens`.
    """
    stage = Stage()
    with StrictServer(stage, **terms) as server:
        project = Project(root, server, stage, installed=installed)
        try:
            yield project
        finally:
            project.end()


_KEPT: Final = ("PYTHON", "COVERAGE", "TZ")  # measurement settings, and the time zone at noon
