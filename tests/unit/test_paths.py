"""The place of a team, how it is found, and its owner."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from teamd.errors import NoTeam, StoreError
from teamd.files import find_team
from teamd.files.paths import TeamPaths, home_folder
from teamd.team.roster import Roster

NOBODY = 65534


@pytest.fixture(autouse=True)
def _no_other_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEAMD_DIR", raising=False)


@pytest.fixture
def foreign(paths: TeamPaths) -> TeamPaths:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    os.chown(paths.root, NOBODY, NOBODY)
    return paths


def test_a_team_is_searched_for_upwards(paths: TeamPaths) -> None:
    deep = paths.home / "src" / "deep"
    deep.mkdir(parents=True)
    assert find_team.discover(deep) == paths
    assert find_team.discover(paths.home) == paths
    assert find_team.discover(paths.root) == paths


def test_the_nearest_team_is_used(paths: TeamPaths) -> None:
    inner = TeamPaths(paths.home / "src" / ".team")
    inner.create()
    assert find_team.discover(inner.home) == inner


def test_a_file_of_that_name_is_not_a_team(paths: TeamPaths) -> None:
    inner = paths.home / "src"
    inner.mkdir()
    (inner / ".team").write_text("")
    assert find_team.discover(inner) == paths


def test_no_team_is_found_where_none_exists(tmp_path: Path) -> None:
    found = find_team.discover(tmp_path)
    assert found is None or tmp_path.is_relative_to(found.home.parent)
    assert not (tmp_path / ".team").exists()


def test_the_environment_names_a_team(
    paths: TeamPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From any folder, and before the search; an option takes precedence over both."""
    other = TeamPaths(tmp_path / "other")
    other.create()
    monkeypatch.chdir(paths.home)
    assert find_team.existing(None) == paths
    monkeypatch.setenv("TEAMD_DIR", str(other.root))
    assert find_team.existing(None) == other
    assert find_team.existing(str(paths.root)) == paths
    monkeypatch.setenv("TEAMD_DIR", "")
    assert find_team.existing(None) == paths


def test_a_named_team_that_does_not_exist_is_reported_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAMD_DIR", str(tmp_path / "missing"))
    with pytest.raises(NoTeam, match=r"no team directory .*/missing; `teamd start` makes it"):
        find_team.existing(None)
    assert find_team.existing_or_here(None) == TeamPaths(tmp_path / "missing")


def test_a_new_team_is_created_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a folder above has one."""
    monkeypatch.chdir(tmp_path)
    above = find_team.discover(tmp_path)
    assert find_team.existing_or_here(None) == (above or TeamPaths(tmp_path / ".team"))
    TeamPaths(tmp_path / ".team").create()
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    assert find_team.existing_or_here(None) == TeamPaths(tmp_path / ".team")


def test_the_team_of_another_user_is_refused(
    foreign: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings name programs to run; in a shared folder any user could put one."""
    words = f"belongs to user {NOBODY}, not to you"
    with pytest.raises(StoreError, match=words):
        find_team.discover(foreign.home)
    with pytest.raises(StoreError, match=words):
        find_team.existing(str(foreign.root))
    with pytest.raises(StoreError, match=words):
        foreign.create()
    monkeypatch.chdir(foreign.home)
    with pytest.raises(StoreError, match=words):
        find_team.existing_or_here(None)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_its_owner_can_read_a_team(tmp_path: Path, umask: int) -> None:
    """Mail and conversations may be private."""
    before = os.umask(umask)
    try:
        made = TeamPaths(tmp_path / ".team")
        made.create()
    finally:
        os.umask(before)
    for folder, folders, files in os.walk(made.root):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
        assert {stat.S_IMODE((Path(folder) / f).stat().st_mode) for f in files} <= {0o600}
        assert folders or files or Path(folder).parent == made.root


def test_a_team_stays_out_of_git(paths: TeamPaths) -> None:
    """None of its files is meant for a commit; a `.gitignore` of the person stays."""
    ignore = paths.root / ".gitignore"
    assert ignore.read_bytes() == b"*\n"
    ignore.write_bytes(b"*\n!config.json\n")
    paths.create()
    assert ignore.read_bytes() == b"*\n!config.json\n"


def test_a_file_in_place_of_a_team_directory_is_reported_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / ".team").write_text("")
    with pytest.raises(StoreError, match=r"\.team: File exists"):
        TeamPaths(tmp_path / ".team").create()


def test_mail_is_detected_by_the_size_of_the_inbox(paths: TeamPaths) -> None:
    assert not paths.has_mail("bob")
    paths.inbox("bob").write_bytes(b"")
    assert not paths.has_mail("bob")
    paths.inbox("bob").write_bytes(b"x")
    assert paths.has_mail("bob")


def test_a_file_that_vanishes_during_the_check_counts_as_no_mail(paths: TeamPaths) -> None:
    """A teammate removes its taken mail while the supervisor checks which teammates to wake."""
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            paths.inbox("ann").touch()
            paths.inbox("ann").unlink()

    coming = threading.Thread(target=come_and_go)
    coming.start()
    try:
        assert not any(paths.has_mail("ann") for _ in range(20_000))
    finally:
        over.set()
        coming.join()


@pytest.mark.parametrize("home", ["", ".", "relative/home"])
def test_a_home_that_is_not_absolute_is_ignored(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    known = home_folder()
    monkeypatch.setenv("HOME", home)
    assert home_folder() == known


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("My Shop.2", "my-shop-2"),
        ("web", "web"),
        ("-x_y-", "x_y"),
        ("Ünï", "n"),
        ("日本", "team"),
        ("lead", "team"),
        ("_a", "team"),
        ("x" * 50, "x" * 40),
    ],
)
def test_a_team_is_named_after_its_folder(folder: str, name: str, tmp_path: Path) -> None:
    paths = TeamPaths(tmp_path / folder / ".team")
    assert paths.default_name == name
    assert Roster(paths).team_name() == name
    assert TeamPaths(tmp_path / folder / ".teams" / "Api").default_name == "Api"
