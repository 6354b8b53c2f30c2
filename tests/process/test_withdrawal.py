"""Abandoned work of copies: removed from the queue, or deleted together with a team."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from teamd.copies import move_branch
from teamd.copies.clone import make_copy
from teamd.copies.source import Source
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from tests.e2e.harness import Project
from tests.queues import Yard
from tests.repositories import git

pytestmark = pytest.mark.slow


def test_discarded_work_leaves_the_queue_and_is_kept(project: Project) -> None:
    yard = Yard(project, "ann", "bob")
    queued = yard.commit("ann", a="mine\n")
    yard.commit("bob", b="of bob\n")
    yard.add("ann")
    yard.add("bob")
    git(yard.copy("ann"), "commit", "-q", "--amend", "-m", "another")
    said = project.do("teamctl", "discard", "ann", "--force")
    assert said.endswith("; no longer in the queue: 1\n")
    assert [entry["teammate"] for entry in yard.entries().values()] == ["bob"]
    kept = yard.git("for-each-ref", "--format=%(objectname)", "refs/teamd/discarded/ann")
    assert queued in kept, "what was queued is not in the copy any more"
    done = json.loads(project.do("teamctl", "discard", "bob", "--force", "--json"))
    assert done["removed"] == ["2"]
    assert yard.stored() == {}


@pytest.fixture
def zoe(project: Project) -> Path:
    """The copy of zoe in another team of the project, with one commit."""
    Yard(project)
    paths = TeamPaths(project.folder / ".teams/other")
    paths.create()
    make_copy(paths, "zoe", "other", project.folder)
    copy = paths.copy("zoe")
    git(copy, "commit", "-q", "--allow-empty", "-m", "hours of work")
    return copy


def test_a_team_with_unmerged_work_is_not_deleted(project: Project, zoe: Path) -> None:
    refused = project.run("teamctl", "delete", "other")
    assert refused.status == 1
    assert refused.complaint == (
        "teamctl: these have unmerged work: zoe (1 commit and 0 files); `teamctl --team "
        "other merge NAME` takes it, --force keeps it for 30 days and deletes the team"
    )
    tip = git(zoe, "rev-parse", "HEAD")
    said = project.do("teamctl", "delete", "other", "--force")
    assert not zoe.exists()
    (ref,) = git(project.folder, "for-each-ref", "--format=%(refname)", "refs/teamd").split()
    assert said.endswith(f"what nobody merged is kept for 30 days as {ref}\n")
    assert git(project.folder, "rev-parse", ref) == tip


def test_work_that_cannot_be_kept_stops_a_deletion(project: Project, zoe: Path) -> None:
    (zoe / ".git/HEAD").unlink()
    refused = project.run("teamctl", "delete", "other", "--force")
    assert refused.status == 1
    folder = zoe.parents[1] / "removed"
    assert refused.complaint.startswith(f"teamctl: what zoe did is in {folder}/zoe-")
    assert refused.complaint.endswith("; move that away, then delete the team")
    assert len(list(folder.iterdir())) == 1


def test_queued_work_that_waits_for_teamd_is_reported_as_waiting(project: Project) -> None:
    yard = Yard(project, "ann")
    yard.commit("ann", a="mine\n")
    said = project.do("teamctl", "queue", "add", "ann")
    assert said.endswith(
        "is in the queue: 1; it waits there for teamd, which `teamd start` starts\n"
    )
    shown = project.run("teamctl", "queue").complaint
    assert shown == "warning: no teamd runs, so nothing is merged; `teamd start` starts it"


def test_a_branch_that_blocks_the_queue_s_branch_is_named(project: Project) -> None:
    yard = Yard(project, "ann")
    yard.git("branch", "team")
    with pytest.raises(TeamError) as refused:
        move_branch.find_tip(Source.of(yard.folder), "team/main")
    said = "the branch team/main cannot be made; rename the one that is in its way, or set [merge] "
    assert str(refused.value).startswith(
        f"{said}into in team.toml to another: git update-ref failed"
    )
    assert "'refs/heads/team' exists" in str(refused.value)
