"""`teamctl doctor` on limited machines: without bash, space, watches or lingering."""

from __future__ import annotations

import errno
import gc
import getpass
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from teamctl.doctor import Finding, Level, machine
from teamctl.doctor.machine import check_machine
from teamd.files.paths import TeamPaths


class Usage(NamedTuple):
    """The space of a disk, as `shutil.disk_usage` returns it."""

    total: int
    used: int
    free: int


def find(word: str, paths: TeamPaths | None = None) -> list[Finding]:
    return [one for one in check_machine(paths) if word in one.what]


@contextmanager
def open_files(limit: int) -> Iterator[None]:
    """Limit this process to file descriptors below this number."""
    gc.collect()  # descriptors that earlier tests left open in reference cycles
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_programs_bash_is_a_failure_and_teamd_is_called_by_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (bash,) = find("bash")
    assert (bash.level, bash.remedy) == (Level.FAIL, "install bash")
    (teamd,) = find("teamd is not on the PATH")
    own = Path(sys.argv[0]).resolve().parent / "teamd"
    assert (teamd.level, teamd.remedy) == (Level.NOTE, f"call it as {own}")


@pytest.mark.parametrize(("limit", "level"), [(255, Level.FAIL), (256, Level.OK)])
def test_a_low_limit_on_open_files_is_a_failure(limit: int, level: Level) -> None:
    with open_files(limit):
        (found,) = find("files may be open")
    assert found.level is level
    assert ("only 255 files" in found.what) == (level is Level.FAIL)


@pytest.mark.parametrize(("free", "level"), [(100 << 20, Level.OK), (99 << 20, Level.FAIL)])
def test_a_full_disk_is_reported_in_mebibytes_with_its_path(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch, free: int, level: Level
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 30, 0, free))
    (found,) = [*find("MiB", paths), *find("space on the disk", paths)]
    assert found.level is level
    full = f"only 99 MiB are free for {paths.root}"
    assert found.what == ("there is space on the disk" if level is Level.OK else full)


def test_a_team_that_never_ran_is_not_a_problem(tmp_path: Path) -> None:
    (tmp_path / ".team").mkdir()
    (found,) = find("no team has run", TeamPaths(tmp_path / ".team"))
    assert found.level is Level.OK


def test_without_free_watches_late_mail_is_reported(
    paths: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux allows 128 per user, which other tests need too."""

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("teamd.files.watch.Inotify", refuse)
    (found,) = find("the system's watches", paths)
    assert found.level is Level.NOTE
    assert found.what.endswith("mail is seen after half a second")
    assert "max_user_instances" in found.remedy


@pytest.mark.parametrize("lingers", [True, False])
def test_lingering_under_systemd_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lingers: bool
) -> None:
    monkeypatch.setattr(machine, "_SYSTEMD", tmp_path)
    monkeypatch.setattr(machine, "_LINGER", tmp_path)
    user = getpass.getuser()
    if lingers:
        (tmp_path / user).touch()
    (found,) = find("lingering")
    if lingers:
        assert (found.level, found.what.split(":")[0]) == (Level.OK, "lingering is on")
    else:
        assert (found.level, found.remedy) == (Level.NOTE, f"loginctl enable-linger {user}")


def test_without_systemd_lingering_is_not_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_SYSTEMD", tmp_path / "none")
    assert find("lingering") == []


@pytest.mark.parametrize(
    ("battery", "states", "told"),
    [("BAT0", "freeze mem\n", 1), ("AC", "freeze mem\n", 0), ("BAT0", "\n", 0), ("BAT0", None, 0)],
)
def test_only_a_laptop_that_can_sleep_gets_advice_to_stay_awake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, battery: str, states: str | None, told: int
) -> None:
    (tmp_path / "supply" / battery).mkdir(parents=True)
    if states is not None:
        (tmp_path / "state").write_text(states)
    monkeypatch.setattr(machine, "_BATTERIES", tmp_path / "supply")
    monkeypatch.setattr(machine, "_SLEEP_STATES", tmp_path / "state")
    found = find("may suspend")
    assert len(found) == told
    assert all("systemd-inhibit" in one.remedy for one in found)
