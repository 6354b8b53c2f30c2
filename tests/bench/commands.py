"""Commands compared with `python -c pass` and with those of supervisor, a well-known program.

`python -m tests.bench.commands [--short] [--supervisor BIN]`: BIN is a folder with
`supervisord` and `supervisorctl`; by default they are looked up in PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.ruler import interleave, options, ratio, spread
from tests.waiting import wait_until

PROGRAMS: Final = Path(sys.executable).parent
CLONE: Final = Path(__file__).parents[2]
ROUNDS: Final = 20
PASS: Final = "python -c pass"
START: Final = "teamd start, then requests are taken"
PEER: Final = "supervisorctl status"
GIT: Final = "git status"
TEAM: Final = "teamctl team"
SEND: Final = "teamctl send bob Hello."
TYPED: Final = (TEAM, SEND, "teamctl inbox", "teamctl tasks")  # often typed by a person
LIMIT: Final = 2.0  # the wanted time, as a multiple of PEER's
START_SECONDS: Final = 2.0
MEMBERS: Final = ("alice", "bob", "carol")
STOP: Final = ("teamd", "stop", "--timeout", "60")  # on a busy machine the SDK loads slowly


class Bench:
    """A project with a running team of three, and a folder without a team next to it.

    Args:
        root: an empty folder; no user's settings or bytecode are visible from there.
    """

    def __init__(self, root: Path) -> None:
        self.folder, self.fresh = root / "project", root / "fresh"
        self._environment = {"HOME": str(root), "PATH": f"{PROGRAMS}{os.pathsep}{os.defpath}"}
        for folder in (self.folder / ".team", self.fresh):
            folder.mkdir(parents=True, mode=0o700)
        (self.fresh / "team.toml").write_text("[team]\nname = 'fresh'\n", encoding="utf-8")
        members = [{"name": name, "role": "coder", "status": "shutdown"} for name in MEMBERS]
        roster = self.folder / ".team" / "config.json"
        roster.write_text(json.dumps({"team_name": "default", "members": members}))

    def time(self, *argv: str, folder: Path | None = None) -> float:
        """Run a command that must succeed; return the milliseconds that it took."""
        begun = time.perf_counter()
        done = subprocess.run(
            argv, cwd=folder or self.folder, env=self._environment, capture_output=True,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        took = time.perf_counter() - begun
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr!r}")
        return 1000 * took

    def time_start(self) -> float:
        """Start a team's teamd and stop it; return the milliseconds until it was ready."""
        took = self.time("teamd", "start", folder=self.fresh)
        self.time(*STOP, folder=self.fresh)
        return took

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run the team's teamd, with a message and a conversation to show."""
        self.time("teamd", "start")
        try:
            self.time("teamctl", "send", "lead", "Ready.", "--from", "bob")
            self.time("teamctl", "inbox")
            yield
        finally:
            self.time(*STOP)

    def delivered(self) -> int:
        """Count the messages in an inbox."""
        inbox = self.folder / ".team" / "inbox" / "bob.jsonl"
        return inbox.read_bytes().count(b"\n") if inbox.exists() else 0


@contextmanager
def supervisord(root: Path, programs: str) -> Iterator[list[str] | None]:
    """Serve three programs with supervisor, if it is installed; yield its status command."""
    daemon, control = (_find(name, programs) for name in ("supervisord", "supervisorctl"))
    if daemon is None or control is None:
        yield None
        return
    settings, socket = root / "supervisor.conf", root / "supervisor.sock"
    sections = (f"[program:{name}]\ncommand=sleep 1000\n" for name in MEMBERS)
    interface = "supervisor.rpcinterface:make_main_rpcinterface"
    settings.write_text(
        f"[supervisord]\nnodaemon=true\nlogfile={root}/log\npidfile={root}/pid\n"
        f"[unix_http_server]\nfile={socket}\n[supervisorctl]\nserverurl=unix://{socket}\n"
        f"[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory={interface}\n"
        + "".join(sections)
    )
    with subprocess.Popen([daemon, "-c", settings], cwd=root, stdout=subprocess.DEVNULL) as serving:
        try:
            wait_until(socket.exists, what="supervisord serves")
            asked = [control, "-c", str(settings), "status"]
            wait_until(
                lambda: subprocess.run(asked, capture_output=True, check=False).returncode == 0,
                what="its programs run",
            )
            yield asked
        finally:
            serving.send_signal(signal.SIGTERM)


def _find(name: str, folder: str) -> str | None:
    return shutil.which(name, path=folder or None)


def main() -> None:
    """Measure and print the table; fail only if mail was lost."""
    given = options(__doc__, supervisor="")
    rounds = 1 if given.short else ROUNDS
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(root)
        peer = stack.enter_context(supervisord(root, given.supervisor))
        stack.enter_context(bench.serving())
        cases: dict[str, Callable[[], float]] = {
            PASS: partial(bench.time, str(PROGRAMS / "python"), "-c", "pass"),
            **{line: partial(bench.time, *line.split()) for line in TYPED},
            START: bench.time_start,
        }
        if peer is not None:
            cases[PEER] = partial(bench.time, *peer)
        if shutil.which("git") and (CLONE / ".git").exists():
            cases[GIT] = partial(bench.time, "git", "-C", str(CLONE), "status")
        if not given.short:
            interleave(cases, 1)  # writes bytecode and fills the page cache
        before = bench.delivered()
        found = interleave(cases, rounds)
        lost = rounds - (bench.delivered() - before)
    absent = [name for name in (PEER, GIT) if name not in cases]
    rows = [(name, figures, _remark(found, name)) for name, figures in found.items()]
    print(spread("commands", rows, "ms"))
    print(f"messages lost: {lost}; not installed: {', '.join(absent) or 'nothing'}")
    sys.exit(1 if lost else 0)


def _remark(found: dict[str, list[float]], name: str) -> str:
    times = f"{ratio(found, name, PASS):.2f} x pass"
    if name in TYPED and PEER in found:
        times += f"; {ratio(found, name, PEER):.2f} x {PEER}, at most {LIMIT:g}"
    if name == START:
        times += f", at most {START_SECONDS:g} s"
    return times


if __name__ == "__main__":
    main()
