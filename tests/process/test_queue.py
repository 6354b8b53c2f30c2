"""The merge queue over real processes: what is merged, what is not, and who hears of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.queues import CHECK, Yard
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.harness import Project


def test_work_is_merged_in_its_order_and_a_conflict_or_a_failure_goes_back(
    project: Project,
) -> None:
    yard = Yard(project, "ann", "bob", "cay")
    first = yard.commit("ann", "left", a="left\n")
    yard.commit("bob", "conflict", a="mine\n")
    yard.commit("cay", "right", c="right\n")
    project.start()
    ids = [yard.add(name) for name in ("ann", "bob", "cay")]
    merged = yard.wait(ids[0], "merged")
    assert merged["commit"] == first
    assert yard.wait(ids[1], "conflict")["why"] == "conflicts in a.txt"
    assert "`sh check.sh` ended with exit status 1" in yard.wait(ids[2], "failed")["why"]
    assert yard.merges() == ["Merge team/ann: left"]
    body = yard.git("log", "-1", "--format=%an %ae%n%(trailers:unfold)", "team/main")
    assert body == f"teamd teamd@default\nTeammate: ann\nCheck: {CHECK}"
    assert yard.git("rev-parse", "team/main^2") == first
    tip = yard.git("rev-parse", "team/main")
    for name, words in (("bob", "conflicts with what is there in: 'a.txt'"), ("cay", "both")):
        wait_until(lambda name=name, words=words: words in yard.heard(name), what="it hears of it")
        assert "git merge origin/team/main" in yard.heard(name)
        assert yard.git("-C", str(yard.copy(name)), "rev-parse", "origin/team/main") == tip
    assert "- Merge team/ann: left" in yard.heard("cay"), "what it does not go with"
    assert yard.git("for-each-ref", "refs/teamd/queue") == ""
    assert yard.git("status", "--porcelain") == "?? team.toml\n?? turns.json"


def test_proven_work_joins_by_itself_and_comes_back_when_it_is_not_merged(
    project: Project,
) -> None:
    """Its task is open again, so that its teammate can complete it once more."""
    settings = f'[merge]\ncheck = "{CHECK}"\nauto = true\n'
    yard = Yard(project, "ann", "bob", settings=settings)
    yard.commit("ann", a="left\n")
    yard.commit("bob", b="right\n")
    project.start()
    for name in ("ann", "bob"):
        project.do("teamctl", "task", "add", f"By {name}", "--check", "true", "--owner", name)
    project.do("teamctl", "task", "update", "1", "--status", "completed")
    merged = yard.wait("1", "merged")
    assert (merged["task"], merged["teammate"]) == ("1", "ann")
    assert "Task: 1" in yard.git("log", "-1", "--format=%(trailers)", "team/main")
    project.do("teamctl", "task", "update", "2", "--status", "completed")
    yard.wait("2", "failed")
    task = json.loads(project.do("teamctl", "task", "show", "2", "--json"))
    assert (task["status"], task["owner"], task["proven"]) == ("in_progress", "bob", False)
    wait_until(lambda: "set task 2 to completed again" in yard.heard("bob"), what="it hears of it")
    yard.commit("bob", b="fine\n")
    project.do("teamctl", "task", "update", "2", "--status", "completed")
    yard.wait("3", "merged")
    assert yard.merges() == ["Merge team/ann: By ann", "Merge team/bob: By bob"]
