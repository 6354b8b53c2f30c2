"""Shells for tests of tools: without a sandbox, and with one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from teamd.programs.cgroup import Cgroup
from teamd.programs.sandboxed import Bounds
from teamd.sandbox.placeholders import Placeholders
from teamd.sandbox.policy import Policy
from teamd.sandbox.probe import probe
from teamd.sandbox.shells import OpenShell, SandboxedShell, make_home


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
