"""Whether a supervisor runs, with any content of its pid file."""

from __future__ import annotations

import json
import os

import pytest

from teamd import __version__
from teamd.errors import NoTeamd
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.process_id import Identity
from tests.children import child

ME = Identity.own()
CLAIMS = """
import sys
from pathlib import Path
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
claim = pidfile.claim(TeamPaths(Path(sys.argv[1])))
print("claimed", flush=True)
sys.stdin.read()
"""


def test_without_a_pid_file_no_supervisor_runs(paths: TeamPaths) -> None:
    assert pidfile.supervisor(paths) is None
    assert not paths.supervisor.exists()


def test_only_one_supervisor_runs_at_a_time(paths: TeamPaths) -> None:
    claim = pidfile.claim(paths)
    try:
        assert pidfile.check(paths) == ME
        with pytest.raises(pidfile.AlreadyRunning) as caught:
            pidfile.claim(paths)
    finally:
        os.close(claim)
    assert caught.value.pid == os.getpid()
    assert f"(pid {os.getpid()}) already runs for {paths.root}" in str(caught.value)


def test_a_killed_supervisor_counts_as_stopped_at_once(paths: TeamPaths) -> None:
    """Its file remains, but the kernel releases its lock."""
    with child(CLAIMS, paths.root) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "claimed\n"
        assert pidfile.check(paths).pid == other.pid
        other.kill()
        other.wait(20)
        assert json.loads(paths.supervisor.read_bytes())["pid"] == other.pid
        assert pidfile.supervisor(paths) is None
    claim = pidfile.claim(paths)
    assert pidfile.check(paths) == ME
    os.close(claim)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 40,
        b"4242\n",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"pid": 1}',
        b'{"pid": null, "started": null}',
        b'{"pid": "self", "started": 1}',
        b'{"pid": -1, "started": 1}',
        b'{"pid": 0, "started": 1}',
        b'{"pid": 1e999, "started": 1}',
        b'{"pid": 1' + b"0" * 30 + b', "started": 1}',
        b'{"pid": 1, "started": 1' + b"0" * 400 + b"}",
        b"[" * 100_000,
        # The ids are given, since each process that collects tests has another pid.
        pytest.param(
            json.dumps({"pid": ME.pid, "started": ME.started}).encode()[:-4], id="half-written"
        ),
        pytest.param(
            json.dumps({"pid": ME.pid, "started": ME.started - 1}).encode(), id="an earlier boot"
        ),
    ],
)
def test_a_pid_file_that_names_no_valid_process_does_not_stop_the_next_supervisor(
    paths: TeamPaths, content: bytes
) -> None:
    """After a kill in mid-write, a full disk or a reused pid, `teamd start` must still start."""
    paths.supervisor.write_bytes(content)
    assert pidfile.supervisor(paths) is None
    with pytest.raises(NoTeamd, match="`teamd start`") as caught:
        pidfile.check(paths)
    assert caught.value.exit_code == 3
    claim = pidfile.claim(paths)
    try:
        assert pidfile.check(paths) == ME
    finally:
        os.close(claim)


def test_a_claim_without_a_readable_pid_is_still_reported(paths: TeamPaths) -> None:
    claim = pidfile.claim(paths)
    try:
        paths.supervisor.write_bytes(b"{")
        with pytest.raises(pidfile.AlreadyRunning, match=r"^a teamd already runs"):
            pidfile.claim(paths)
    finally:
        os.close(claim)


def test_a_stranger_is_not_taken_for_the_supervisor_whatever_the_file_says(
    paths: TeamPaths,
) -> None:
    """`teamd stop` ends the named process; a supervisor has the file open and locked."""
    with child("import sys; sys.stdin.read()") as stranger:
        there = Identity.of(stranger.pid)
        assert there is not None
        content = json.dumps({"pid": there.pid, "started": there.started})
        paths.supervisor.write_text(content, encoding="utf-8")
        assert pidfile.supervisor(paths) is None
        claim = pidfile.claim(paths)
        try:
            paths.supervisor.write_text(content, encoding="utf-8")
            assert pidfile.supervisor(paths) is None
        finally:
            os.close(claim)


def test_a_supervisor_repairs_its_overwritten_pid_file(paths: TeamPaths) -> None:
    """Otherwise no client could reach it, and no other supervisor could start in its place."""
    claim = pidfile.claim(paths)
    try:
        paths.supervisor.write_bytes(b"garbage of any length, and then some more of it\n" * 9)
        assert pidfile.supervisor(paths) is None
        assert pidfile.stands(claim, paths)
        assert pidfile.check(paths) == ME
        paths.supervisor.unlink()
        assert not pidfile.stands(claim, paths)
    finally:
        os.close(claim)


def test_a_supervisor_of_another_version_is_recognized(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pidfile.find_other_version(paths) is None
    claim = pidfile.claim(paths)
    try:
        assert pidfile.find_other_version(paths) is None
        monkeypatch.setattr(pidfile, "__version__", "9.0")
        assert pidfile.find_other_version(paths) == __version__
        paths.supervisor.write_text(json.dumps({"pid": ME.pid, "started": ME.started}))
        assert pidfile.find_other_version(paths) == ""
    finally:
        os.close(claim)
    assert pidfile.find_other_version(paths) is None
