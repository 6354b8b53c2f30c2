"""Files that an agent plants in its working copy never run unsandboxed, even in the merge queue."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from teamd.board.board import Board
from teamd.checks.merger import Merger
from teamd.errors import TeamError
from teamd.mail.routing import MailRouter
from teamd.masking import Mask
from teamd.merges import enqueue
from teamd.merges.queue import Queue
from teamd.messages import TEAMD
from teamd.sandbox.probe import probe
from teamd.settings import Settings
from tests.children import survived
from tests.process.test_copies_hostile import PLANTS, Scene, scene
from tests.repositories import commit, git
from tests.waiting import wait_until

__all__ = ["scene"]

# The kinds of plants; the others of a kind are planted for the person's commands.
PLANTED = ("hooks", "settings", "include", "submodule", "link_elsewhere", "commondir", "links")


def queue_of(scene: Scene) -> tuple[Queue, Merger]:
    """Return the queue of a team whose check passes, and its merger."""
    post = MailRouter(scene.paths, durable=False, max_bytes=10**6)
    queue = Queue(Board(scene.paths, post, TEAMD, durable=False))
    plain = Settings()
    settings = replace(
        plain,
        team=replace(plain.team, workspace=scene.source),
        merge=replace(plain.merge, check="git log -1; test -e a.txt"),
    )
    return queue, Merger(queue=queue, settings=settings, probe=probe(), mask=Mask())


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED)
def test_code_planted_in_a_copy_does_not_run_in_the_queue(plant: str, scene: Scene) -> None:
    """A conflict comes first, after which the copy fetches the tip; then a merge."""
    queue, merger = queue_of(scene)
    scene._commit()
    first = git(scene.source, "rev-parse", "HEAD")
    tip = commit(scene.source, "other", a="other\n")
    git(scene.source, "branch", "team/main")
    git(scene.source, "reset", "-q", "--hard", first)
    PLANTS[plant](scene)
    for base in (tip, first):
        git(scene.source, "update-ref", "refs/heads/team/main", base)
        with suppress(TeamError):
            enqueue.add(queue, "alice", merger.settings)
        assert survived(10**6, lambda _: merger.run()), "in a process of its own"
    assert not list(scene.source.parent.rglob(scene.mark.name)), queue.read()
    assert (scene.source / "a.txt").read_text() == "one\n"
    git(scene.source, "merge-base", "--is-ancestor", first, "team/main")
    assert all(entry.state.finished for entry in queue.read().all)
    wait_until(lambda: not (scene.paths.work / ".merging").exists(), what="nothing is left")


@pytest.mark.slow
def test_merged_attributes_do_not_use_the_person_s_drivers_or_filters(scene: Scene) -> None:
    """These are for the person's own work; git's own drivers apply, as in any merge."""
    queue, merger = queue_of(scene)
    for kind in ("merge.x.driver", "filter.x.smudge", "filter.x.clean", "diff.x.textconv"):
        git(scene.source, "config", kind, scene.trap)
    (scene.source / ".gitattributes").write_text(
        "a.txt merge=x filter=x diff=x\nb.txt merge=union\n"
    )
    first = git(scene.source, "rev-parse", "HEAD")
    git(scene.source, "add", ".gitattributes")
    commit(scene.source, "other", b="other\n")
    git(scene.source, "branch", "team/main")
    git(scene.source, "reset", "-q", "--hard", first)
    scene.mark.unlink()
    scene._commit()
    enqueue.add(queue, "alice", merger.settings)
    assert merger.run() == 0
    (entry,) = queue.read().all
    assert (entry.state, entry.why) == ("merged", "")
    assert not scene.mark.exists()
    assert git(scene.source, "show", "team/main:b.txt") == "other\nnot committed"
