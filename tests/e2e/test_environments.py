"""Start, spawn, bash, edits, working copies and doctor on several kinds of machines.

Each step works or fails with one sentence, and no teammate's process fails after `teamd start` has
reported success. The environments are real: another uid, a mount, a user namespace.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness import Ended, Project, opened
from tests.repositories import make_repository
from tests.strict.replies import say, use

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
]

REPOSITORY: Final = Path(__file__).resolve().parents[2]
STRANGER: Final = 4242  # an unused user id
OWNER: Final = 4343
# The tests' interpreter may be in a home that other users cannot enter.
PYTHON: Final = f"/usr/bin/python{sysconfig.get_python_version()}"
OTHER_USER: Final = (
    "setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--inh-caps=-all",
)  # fmt: skip
NO_NAMESPACES: Final = (
    "unshare", "--user", "--map-root-user", "--", "sh", "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"', "sh",
)  # fmt: skip
READ_ONLY_HOME: Final = (
    "unshare", "--mount", "--", "sh", "-c",
    'mount --bind "$HOME" "$HOME" && mount -o remount,ro,bind "$HOME" && exec "$@"', "sh",
)  # fmt: skip
WORDS: Final = "grün"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A kind of machine, and the outcome of each step on it.

    Attributes:
        before: the words before each command.
        variables: environment variables; `None` removes one, and `{root}` is the test's folder.
        only: whether a command sees only these variables and the model's.
        prepare: changes the files of a project before its start.
        start: part of the error of `teamd start`; empty if it works.
        warning: part of the warning of a `teamd start` that works.
        bash: part of the result of a command.
        copy: part of the error of a spawn with a working copy; empty if it works.
        doctor: part of the failed finding of `teamctl doctor`; empty if all is well.
    """

    before: tuple[str, ...] = ()
    variables: dict[str, str | None] = field(default_factory=dict)
    only: bool = False
    prepare: Callable[[Project], None] = lambda _: None
    start: str = ""
    warning: str = ""
    bash: str = WORDS
    copy: str = ""
    doctor: str = ""


def give_all(project: Project) -> None:
    """Give all files of a test to the unused user."""
    give(project.root, STRANGER)


def close_home(project: Project) -> None:
    """Put the home into a folder that its user cannot enter."""
    give(project.root, STRANGER)
    closed = project.root / "closed"
    (closed / "home").mkdir(parents=True)
    closed.chmod(0o700)


def give_project(project: Project) -> None:
    """Give only the project to another user."""
    give(project.folder, OWNER)


def give(folder: Path, uid: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


MACHINES: Final = {
    "a uid without passwd entry": Machine(
        before=OTHER_USER, variables={"HOME": "/"}, prepare=give_all
    ),
    "no home, and the C locale": Machine(variables={"HOME": None, "LC_ALL": "C", "LANG": "C"}),
    "a uid without passwd entry and no home": Machine(
        before=OTHER_USER, variables={"HOME": None, "XDG_STATE_HOME": None}, prepare=give_all
    ),
    "a home that may not be entered": Machine(
        before=OTHER_USER,
        variables={"HOME": "{root}/closed/home", "XDG_STATE_HOME": None},
        prepare=close_home,
    ),
    "cron": Machine(
        variables={
            "HOME": "{root}/home", "LOGNAME": "root", "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"
        },
        only=True,
    ),
    "root on another user's project": Machine(
        prepare=give_project,
        start=f"belongs to user {OWNER}, and commands that root starts in the sandbox cannot write",
        doctor=f"belongs to user {OWNER}",
    ),
    "no user namespaces": Machine(
        before=NO_NAMESPACES,
        warning="sandbox none: bubblewrap cannot start: user namespaces are switched off",
        bash="commands are refused: bubblewrap cannot start: user namespaces are switched off",
        copy="user namespaces are switched off",
        doctor="there is no sandbox, so commands are refused",
    ),
    "a read-only home": Machine(before=READ_ONLY_HOME, variables={"XDG_STATE_HOME": None}),
}  # fmt: skip


@dataclass(frozen=True)
class Visit:
    """A project on such a machine."""

    machine: Machine
    project: Project

    def run(self, program: str, *words: str) -> Ended:
        """Run a command in the project to its end."""
        python = PYTHON if self.machine.before[:1] == OTHER_USER[:1] else sys.executable
        command = (python, "-P", "-m", "teamd_commands", program, *words)
        given = [f"{name}={value}" for name, value in self._variables().items()]
        return self.project.run("env", "-i", *given, *self.machine.before, *command)

    def _variables(self) -> dict[str, str]:
        """Return the complete environment of a command."""
        own = self.project.environment
        kept = ("PATH", "HOME", "XDG_STATE_HOME", "LANG", "TERM")
        found = {} if self.machine.only else {name: own[name] for name in kept if name in own}
        found |= {name: value for name, value in own.items() if name.startswith("ANTHROPIC_")}
        found["PYTHONPATH"] = (
            f"{REPOSITORY}:{REPOSITORY}/teamd/launcher:{sysconfig.get_paths()['purelib']}"
        )
        for name, value in self.machine.variables.items():
            found.pop(name, None)
            if value is not None:
                found[name] = value.format(root=self.project.root)
        return found


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own belongs to root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", MACHINES)
def test_each_step_works_or_fails_with_one_sentence(name: str, root: Path) -> None:
    machine = MACHINES[name]
    with opened(root) as project:
        make_repository(project.folder)
        edits = (
            ("bash", {"command": f"printf {WORDS} | tee by-bash.txt"}),
            ("write_file", {"path": "grün.txt", "content": WORDS}),
            ("read_file", {"path": "a.txt"}),
            ("edit_file", {"path": "a.txt", "old_text": "one", "new_text": "eins"}),
        )
        for teammate in ("ann", "bob"):
            project.stage.play(teammate, use(*edits), say("Done."))
        machine.prepare(project)
        visit = Visit(machine, project)
        assert_doctor(visit)
        started = visit.run("teamd", "start")
        if machine.start:
            assert started.status == 1, started
            assert machine.start in started.complaint
            return
        try:
            assert started.status == 0, started
            assert machine.warning in started.stderr
            assert bool(machine.warning) == bool(started.stderr), started.stderr
            assert_works(visit)
            assert_copies(visit)
        finally:
            stopped = visit.run("teamd", "stop")
        assert stopped.status == 0, stopped
        codes = [entry["code"] for entry in project.log("teamd", "exited")]
        assert set(codes) == {0}, codes


def assert_doctor(visit: Visit) -> None:
    """Check that `doctor` fails with exactly the finding that the table names."""
    looked = visit.run("teamctl", "doctor")
    failed = re.findall(r"^FAIL  (.*)", looked.stdout, re.MULTILINE)
    assert looked.stderr == ""
    wanted = visit.machine.doctor
    assert [wanted in one for one in failed] == [True] * bool(wanted), looked.stdout


def assert_works(visit: Visit) -> None:
    """Check that a teammate edits files, and that its command runs or is refused."""
    spawned = visit.run("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    assert (spawned.status, spawned.stdout) == (0, "Done.\n"), spawned
    said, written, _, edited = visit.project.records("ann", "result")
    assert visit.machine.bash in said["content"]
    assert not written["is_error"], written
    assert not edited["is_error"], edited
    folder = visit.project.folder
    assert (folder / "grün.txt").read_text(encoding="utf-8") == WORDS
    assert (folder / "a.txt").read_text(encoding="utf-8") == "eins\n"


def assert_copies(visit: Visit) -> None:
    """Check that a teammate gets a working copy, or that the spawn gives the reason."""
    spawned = visit.run("teamctl", "spawn", "bob", "coder", "Go.", "--worktree", "--wait")
    if visit.machine.copy:
        assert spawned.status == 1, spawned
        assert visit.machine.copy in spawned.complaint
        return
    assert (spawned.status, spawned.stdout) == (0, "Done.\n"), spawned
    copy = visit.project.paths.copy("bob")
    assert (copy / "a.txt").read_text(encoding="utf-8") == "eins\n"
