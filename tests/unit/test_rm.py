"""`teamctl rm` deletes the files of one name, and reports the files that stay."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from teamctl.commands.rm import _describe_copy, _purge
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.team.states import Status
from tests.repositories import copy_project
from tests.unit.life import call, enrol

KEY = "0123456789abcdef-1-2"


def test_a_purge_lists_each_removed_file_and_folder_in_json(paths: TeamPaths) -> None:
    """A subagent of bob-2 has a file whose name begins like those of bob."""
    home = paths.home_of("bob")
    (home / "notes").mkdir(parents=True)
    paths.subagents.mkdir(exist_ok=True)
    own, other = (paths.subagents / f"{name}-{KEY}.jsonl" for name in ("bob", "bob-2"))
    for path in (own, other, paths.inbox("bob"), paths.inbox("bob-2"), home / "notes" / "x"):
        path.touch()
    done = call(paths, "rm", "bob", "--purge", "--yes", "--json")
    assert (done.status, done.err) == (0, "")
    removed = sorted(map(str, (own, home, paths.inbox("bob"))))
    found = json.loads(done.out)
    assert (found["name"], sorted(found["removed"])) == ("bob", removed)
    assert not any(path.exists() for path in (own, home, paths.inbox("bob")))
    assert other.exists()
    assert paths.inbox("bob-2").exists()


def test_json_for_several_names_contains_each_error_unless_all_fail(paths: TeamPaths) -> None:
    enrol(paths, bob=Status.IDLE, eve=Status.IDLE)
    paths.inbox("carl").touch()
    calls = [
        ["rm", *names, "--purge", "--yes", "--json"] for names in (("bob", "carl"), ("bob", "eve"))
    ]
    some, none = (call(paths, *argv) for argv in calls)
    assert (some.status, some.err) == (3, "")
    refused, removed = json.loads(some.out)["members"]
    assert refused["error"].endswith("start it with `teamd start`")
    assert removed["name"] == "carl"
    assert (none.status, none.out) == (3, "")
    assert json.loads(none.err)["error"] == f"{refused['error']}; {refused['error']}"


def test_a_purge_does_not_follow_links(paths: TeamPaths, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").touch()
    paths.home_of("bob").parent.mkdir(parents=True)
    paths.home_of("bob").symlink_to(outside)
    call(paths, "rm", "bob", "--purge", "--yes")
    assert not paths.home_of("bob").is_symlink()
    assert (outside / "mine").exists()


def test_a_teammate_that_has_joined_again_does_not_lose_files(paths: TeamPaths) -> None:
    """Between the question and the lock, a teammate may be spawned under that name."""
    enrol(paths, bob=Status.IDLE)
    paths.inbox("bob").touch()
    with pytest.raises(TeamError, match="bob has joined the team again, so no file was deleted"):
        _purge(paths, "bob")
    assert paths.inbox("bob").exists()


def test_a_working_copy_that_cannot_be_removed_stays_with_a_reason(tmp_path: Path) -> None:
    paths = copy_project(tmp_path / "project", "bob")
    assert _describe_copy(paths, "bob") == f", and its working copy in {paths.copy('bob')}"
    for record in paths.work.glob("*.json"):
        record.write_text("{")
    done = call(paths, "rm", "bob", "--purge", "--yes")
    assert done.status == 0
    assert f"; its working copy stays in {paths.copy('bob')}: " in done.out
    subprocess.run(["git", "-C", paths.copy("bob"), "status"], check=True, capture_output=True)
