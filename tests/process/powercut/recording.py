"""A project whose processes are recorded, see `preload/`, and killed where wanted."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.e2e.harness import Project
from tests.process.powercut.disk import Disk, Record, State, is_of_commands, read_log, state_of
from tests.process.powercut.preload.sitecustomize import install, mark
from tests.waiting import wait_until

PRELOAD: Final = Path(__file__).with_name("preload")
TOPS: Final = (".team", ".teams", "team.toml", "deep")

# A program that knows nothing of ours: `flock`, one write, fsync, close.
FOREIGN: Final = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
fcntl.flock(fd, fcntl.LOCK_EX)
os.write(fd, sys.stdin.buffer.read())
os.fsync(fd)
os.close(fd)
"""
_MARK: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); import sitecustomize;"
    "sitecustomize.mark(sys.argv[2], {'ran': sys.argv[3]})"
)


class Recording:
    """What happens to the files of a project from now on.

    Args:
        project: nothing of it runs yet.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.log = project.root / "powercut.log"
        self._kills = project.root / "powercut.kills"
        project.environment |= {
            "PYTHONPATH": str(PRELOAD),
            "POWERCUT_LOG": str(self.log),
            "POWERCUT_ROOT": str(project.folder),
            "POWERCUT_KILLS": str(self._kills),
        }
        self.before: State = state_of(project.folder, TOPS)

    def mark(self, **facts: Any) -> None:
        """Note a fact at this place of the recording."""
        mark(str(self.log), facts)

    def kill_at(self, call: str, path: str, when: str = "before", **more: Any) -> None:
        """Have the next process that comes to such a call kill itself there."""
        plan = {"call": call, "path": path, "when": when, **more}
        aside = self._kills.with_suffix(".new")
        aside.write_text(json.dumps(plan), encoding="utf-8")
        aside.rename(self._kills)

    def record_this_process(self) -> None:
        """Record what the calling process does, which was forked for it."""
        install(str(self.log), str(self.project.folder), str(self._kills))

    def let_live(self) -> None:
        """Kill nobody any more."""
        self._kills.unlink(missing_ok=True)

    def was_killed(self) -> bool:
        """Whether the process that was to die has died."""
        return not self._kills.exists()

    def wait_for_the_kill(self, what: str) -> None:
        """Wait until it has."""
        wait_until(self.was_killed, timeout_seconds=30, what=f"the kill: {what}")

    def command_that_marks(self, label: str) -> str:
        """Return a shell command that notes that it ran."""
        return shlex.join([sys.executable, "-S", "-c", _MARK, str(PRELOAD), str(self.log), label])

    def append(self, path: Path, text: str) -> None:
        """Append to a file as a program of others does, which nobody kills, and sync it."""
        argv = [sys.executable, "-c", FOREIGN, str(path)]
        environment = {**self.project.environment, "POWERCUT_KILLS": ""}
        subprocess.run(argv, env=environment, input=text.encode(), check=True, timeout=60)

    def records(self) -> list[Record]:
        """Return what was recorded so far."""
        return read_log(self.log)

    def check(self) -> None:
        """See that nothing went past the recorder: with all of it, the disk is as it is.

        Nobody may be writing just now.
        """
        disk = Disk(self.before)
        for record in self.records():
            if record[1] == "mark":
                assert "unrecorded" not in record[2], record
            else:
                disk.apply(record)
        rebuilt = {k: v for k, v in disk.after("all").items() if not is_of_commands(k)}
        real = state_of(self.project.folder, TOPS)
        assert {*rebuilt} == {*real}, {*rebuilt} ^ {*real}
        assert rebuilt == real
