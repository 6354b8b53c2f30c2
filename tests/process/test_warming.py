"""Work that is done once before forking, so that no teammate repeats it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.children import said
from tests.e2e.harness import Project
from tests.strict.replies import say
from tests.strict.server import StrictServer
from tests.waiting import wait_until

# Prints the number of threads after warming up, then the modules that the first call loads.
PROBE = """
import asyncio, sys, threading
from teamd.models import Ask, claude
claude.warm_up()
print(threading.active_count())
before = set(sys.modules)
model = claude.Claude(base_url=None, key_command=None, headers={}, timeout_seconds=20,
                      cache=True)
said = [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}]
ask = Ask(model="claude-sonnet-5-5", system="You are 'a', role: b.", tools=[], messages=said,
          max_tokens=10)
asyncio.run(model.reply(ask))
print(*(name for name in set(sys.modules) - before if name.startswith(("anthropic", "anyio"))))
"""

# Serves a team, and prints the loaded modules just before the modules for children load.
READY: Final = """
import os, sys
from pathlib import Path
from teamd import daemon
from teamd.files.paths import TeamPaths

def ready():
    print(*sys.modules, flush=True)
    os._exit(0)

paths = TeamPaths(Path(sys.argv[1]) / ".team")
from teamd.supervisor.supervisor import Supervisor
Supervisor.begin = lambda _: ready()
daemon.serve(paths, paths.settings, ready=lambda: None)
"""
SLOW: Final = {
    "anthropic", "pydantic", "teamd.agent.child", "teamd.agent.loop", "teamd.tools",
}  # fmt: skip

# Serves a team that declares ann; prints the slow load, the trial fork, the state of the files when
# ready, and the start of a child; then the child stops the supervisor.
SERVE = """
import os, signal, sys, time
from pathlib import Path
from teamd import daemon
from teamd.files.paths import TeamPaths
from teamd.team.roster import Roster
from teamd.supervisor.fork import ChildProgram

paths = TeamPaths(Path(sys.argv[1]) / ".team")
supervisor = os.getpid()

def run(start):
    print("live", start.name, flush=True)
    os.kill(supervisor, signal.SIGTERM)
    signal.pause()

def try_first_steps(bell):
    print("tried", flush=True)

program = ChildProgram(run=run, load=lambda: print("load", flush=True), warning=lambda: None,
                       find_role=lambda _: None, try_first_steps=try_first_steps)

def ready():
    ann = Roster(paths).read().get("ann")
    print("ready", ann.status, ann.process, paths.inbox("ann").read_text().count("Go."), flush=True)

daemon.serve(paths, paths.settings, ready=ready, prepare=lambda _: program)
"""
DECLARED = '[[teammate]]\nname = "ann"\nrole = "clerk"\nprompt = "Go."\n'
SCRIPT = '{"turns": {"ann": [{"say": "Done."}]}}'
SDK = "jiter"  # the SDK's compiled part, which is visible among a process's mappings


@pytest.mark.slow
def test_a_start_is_ready_after_the_trial_fork_and_before_the_first_teammate_runs(
    tmp_path: Path,
) -> None:
    """All members are visible when the start returns; their processes follow a moment later."""
    (tmp_path / "team.toml").write_text(DECLARED)
    lines = said(SERVE, tmp_path).splitlines()
    assert lines == ["load", "tried", "ready working None 1", "load", "live ann"]


@pytest.mark.slow
def test_a_start_whose_trial_fork_fails_is_not_ready(tmp_path: Path) -> None:
    code = SERVE.replace('print("tried", flush=True)', "raise KeyError(4242)")
    code = code.replace("daemon.serve(", "try: daemon.serve(").rstrip()
    lines = said(f"{code}\nexcept Exception as error: print(error)\n", tmp_path).splitlines()
    why = "no teammate can begin here: KeyError: 4242; `teamctl doctor` checks the machine"
    assert lines == ["load", why]


@pytest.mark.slow
def test_a_start_loads_the_sdk_only_without_a_script(project: Project) -> None:
    """If reloaded settings need the SDK after all, the next fork waits for it."""
    project.write("script.json", SCRIPT)
    project.write("team.toml", '[model]\nscript = "script.json"\n')
    # Not forked, since such a supervisor shares the modules that the tests' server has loaded.
    supervisor = project.begin("teamd", "start", "--foreground").pid
    wait_until(lambda: project.log("teamd", "ready"), what="it is ready")
    project.do("teamctl", "spawn", "ann", "clerk", "Go.", "--wait")
    assert not any(map(_has_sdk, (supervisor, project.member("ann")["pid"])))
    project.write("team.toml", "")
    project.do("teamd", "reload")
    project.do("teamctl", "spawn", "bob", "clerk", "Go.", "--wait")
    assert all(map(_has_sdk, (supervisor, project.member("bob")["pid"])))


def _has_sdk(pid: int) -> bool:
    return SDK in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.slow
def test_the_first_call_of_a_teammate_loads_no_module_and_warming_up_starts_no_thread() -> None:
    """Shared memory stays shared, and a process with threads must not fork."""
    with StrictServer(lambda _: say("Hi.")) as server:
        done = subprocess.run(
            [sys.executable, "-c", PROBE],
            env=server.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert done.stdout.split("\n") == ["1", "", ""]


def test_a_supervisor_resumes_its_team_before_it_loads_modules_for_teammates(
    tmp_path: Path,
) -> None:
    """A mistake in the settings or files is reported without waiting for the SDK."""
    loaded = set(said(READY, tmp_path).split())
    assert "teamd.supervisor.supervisor" in loaded
    assert SLOW & loaded == set()
