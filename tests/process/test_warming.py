"""Work that is done once before forking, so that no teammate repeats it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.children import said

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
