"""Shells for tests of tools: without a sandbox, and with one."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from teamd.programs.cgroup import Cgroup
from teamd.programs.sandboxed import Bounds
from teamd.sandbox.placeholders import Placeholders
from teamd.sandbox.policy import Policy
from teamd.sandbox.probe import probe
from teamd.sandbox.shells import OpenShell, SandboxedShell, make_home


def opened() -> set[tuple[int, int, int]]:
    """Return what this process has open: each number with its file's device and inode number.

    Compare with `opened() - before` and not by their number: threads of earlier tests may close
    what is theirs at any moment. What earlier tests have left in cycles is closed first.
    """
    gc.collect()
    found = set()
    for path in Path("/dev/fd").iterdir():
        with suppress(OSError):  # that of this very look
            status = os.fstat(int(path.name))
            found.add((int(path.name), status.st_dev, status.st_ino))
    return found


def links(pid: int) -> dict[str, Path]:
    """Return what another process has open: each number with what it points to."""
    found = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since the folder was listed
            found[fd.name] = fd.readlink()
    return found


@contextmanager
def mounted(folder: Path, *words: str) -> Iterator[Path]:
    """Mount something on a folder, as `mount` has the words; skip the test where that cannot be."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount")
    done = subprocess.run(
        ["mount", *words, str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def policy_for(workspace: Path, *, aside: Path, **more: Any) -> Policy:
    """A policy whose home and temporary folder are made in `aside`."""
    home, temporary = aside / "home", aside / "tmp"
    for folder in (home, temporary):
        folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {
        "environment": {"PATH": os.environ["PATH"]},
        "bounds": Bounds(processes=500, memory_bytes=4 << 30, file_bytes=4 << 30),
        **more,
    }
    return Policy(workspace=workspace, home=home, temporary=temporary, **settings)


def open_shell(workspace: Path, **variables: str) -> OpenShell:
    """A shell without a sandbox, at home in its workspace."""
    environment = {"PATH": os.environ["PATH"], **variables}
    return OpenShell(policy_for(workspace, aside=workspace, environment=environment))


def sandboxed_shell(workspace: Path, *, aside: Path, **more: Any) -> SandboxedShell:
    """A shell with a sandbox; what it needs besides the workspace stands in `aside`."""
    found = probe()
    assert found.works, found.trouble
    policy = policy_for(workspace, aside=aside, **more)
    make_home(policy, "ann")
    placeholders = Placeholders(workspace, aside / "state")
    cgroup = Cgroup.make(f"teamd-test-{aside.parent.name}", policy.bounds.processes)
    team, removed = aside / "team", aside / "removed"
    return SandboxedShell(found.program, policy, placeholders, team, removed, cgroup)
