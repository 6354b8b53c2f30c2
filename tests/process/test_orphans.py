"""What a teammate leaves behind when it ends: processes that its supervisor adopts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from teamd.journal import Journal
from teamd.process_id import Identity
from teamd.supervisor.orphans import end_former, end_orphans
from tests.children import adopt_orphans, child, forked

DEAF = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
sys.stdin.read()
"""


def adopt_and_end(folder: Path, *, spared: bool) -> None:
    """Adopt a process whose parent has ended, end the orphans, and say whether it lives."""
    adopt_orphans()
    begin = ["sh", "-c", "sleep 1000 >/dev/null & echo $!"]
    pid = int(subprocess.run(begin, check=True, stdout=subprocess.PIPE, timeout=60).stdout)
    try:
        with closing(Journal(folder / "teamd.log", "teamd")) as journal:
            others = {pid} if spared else set[int]()
            end_orphans(spare=set(), supervisors=lambda: others, journal=journal)
        sys.stdout.write("lives" if Identity.of(pid) is not None else "ended")
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_an_adopted_process_that_does_not_end_by_itself_is_killed(tmp_path: Path) -> None:
    with forked(partial(adopt_and_end, tmp_path, spared=False)) as supervisor:
        assert supervisor.stdout.read() == "ended"
    assert '"orphan ended"' in (tmp_path / "teamd.log").read_text()


def test_an_adopted_supervisor_of_another_team_keeps_running(tmp_path: Path) -> None:
    """An agent may have started it."""
    with forked(partial(adopt_and_end, tmp_path, spared=True)) as supervisor:
        assert supervisor.stdout.read() == "lives"


def test_a_former_process_that_ignores_sigterm_is_killed_after_its_grace_period(
    tmp_path: Path,
) -> None:
    with child(DEAF) as former, closing(Journal(tmp_path / "log", "teamd")) as journal:
        assert former.stdout is not None
        assert former.stdout.readline() == "deaf\n"
        who = Identity.of(former.pid)
        assert who is not None
        end_former([who], seconds=0.0, journal=journal)
        assert former.wait(timeout=60) == -signal.SIGKILL
