"""The systemd unit, checked by systemd itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "systemd" / "agent-teamd@.service"
VERIFIER = shutil.which("systemd-analyze")


@pytest.mark.skipif(VERIFIER is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit_file_without_warnings(tmp_path: Path) -> None:
    """Unknown keys leave the exit status 0, so standard error must be empty too."""
    instance = tmp_path / "agent-teamd@srv-project.service"
    shutil.copy(UNIT, instance)
    done = subprocess.run(
        [VERIFIER or "", "--user", "verify", instance],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_unit_waits_for_readiness_and_avoids_the_name_of_the_other_teamd() -> None:
    """Debian's libteam-utils ships `teamd@.service`."""
    units = {unit.name: unit.read_text(encoding="utf-8") for unit in UNIT.parent.iterdir()}
    assert UNIT.name in units
    assert "teamd@.service" not in units
    assert all("Type=notify" in text.splitlines() for text in units.values())
