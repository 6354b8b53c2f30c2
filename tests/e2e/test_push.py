"""`git push` of a teammate: asked for, approved or refused, and exactly what was shown leaves."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from teamd.copies.clone import make_copy
from tests.e2e.harness import Project
from tests.repositories import commit, git, make_repository
from tests.strict.replies import Call, say, use
from tests.waiting import wait_until


def bash(command: str) -> Call:
    return "bash", {"command": command}


COMMIT = bash("echo mine > a.txt && git commit -qam 'by alice'")


@pytest.fixture
def bare(project: Project) -> Path:
    """A remote `origin` of the project's repository, with its branch main."""
    repository, bare = make_repository(project.folder), project.folder.parent / "bare.git"
    git(repository, "init", "-q", "--bare", "-b", "main", str(bare))
    git(repository, "remote", "add", "origin", str(bare))
    git(repository, "push", "-q", "origin", "main")
    return bare


def asked(project: Project, *calls: Call, place: str = "--worktree") -> str:
    """Let alice make calls, of which the last needs an answer; return the id of the request."""
    project.stage.play("alice", *map(use, calls), say("Done."))
    project.do("teamctl", "spawn", "alice", "coder", "Go.", place)
    project.wait_for("alice", "paused")
    (request,) = json.loads(project.do("teamctl", "requests", "--json"))["requests"]
    return str(request["id"])


def test_an_approved_push_reaches_the_remote_with_the_commits_that_were_shown(
    project: Project, bare: Path
) -> None:
    project.start()
    request = asked(project, COMMIT, bash("git push"))
    copy = project.paths.copy("alice")
    tip = git(copy, "rev-parse", "team/alice")
    (row,) = json.loads(project.do("teamctl", "requests", "--json"))["requests"]
    assert (row["type"], row["remote"], row["branch"]) == ("push", "origin", "team/alice")
    assert row["commits"] == [{"commit": tip, "subject": "by alice"}]
    assert "a.txt | 2 +-" in row["stat"]
    assert f"alice asks to push 1 commit to team/alice of origin ({bare}):" in project.do(
        "teamctl", "requests"
    )
    team = project.do("teamctl", "team")
    assert f"alice asks to push: 1 commit to team/alice of origin: {tip[:12]} by alice" in team
    assert git(bare, "for-each-ref", "--format=%(refname)") == "refs/heads/main"

    elsewhere = bare.with_name("elsewhere.git")
    git(bare, "init", "-q", "--bare", str(elsewhere))
    for key in ("remote.origin.pushurl", f"url.{elsewhere}.insteadOf"):  # as if alice could
        git(copy, "config", key, str(bare if key.endswith("insteadOf") else elsewhere))
    commit(copy, "not shown", b="later\n")
    said = project.do("teamctl", "approve", request)
    assert said == f"approved the push of alice ({request})\n"
    project.wait_for("alice", "idle", turns=2)
    result = project.asked("alice", least=3)[2].asked.last_results[0]
    assert (result.text, result.is_error) == (
        f"pushed 1 commit to team/alice of origin: {tip[:12]}",
        False,
    )
    assert git(bare, "rev-parse", "team/alice") == tip
    assert git(elsewhere, "for-each-ref") == ""
    assert f"alice: pushed 1 commit to team/alice of origin: {tip[:12]}" in project.mail("lead")


def test_of_a_refused_push_nothing_leaves(project: Project, bare: Path) -> None:
    """From the shared folder, in which alice has committed to the person's branch."""
    before = git(bare, "rev-parse", "main")
    project.start()
    request = asked(project, COMMIT, bash("git push -u origin HEAD"), place="--no-worktree")
    assert "1 commit to main of origin" in project.do("teamctl", "requests")
    project.do("teamctl", "reject", request, "--reason", "Not yet.")
    project.wait_for("alice", "idle", turns=2)
    result = project.asked("alice", least=3)[2].asked.last_results[0]
    assert result.is_error
    assert result.text.startswith("rejected by user: Not yet.")
    assert git(bare, "for-each-ref", "--format=%(objectname)") == before


def test_what_a_killed_teammate_asked_for_is_pushed_when_it_runs_again(
    project: Project, bare: Path
) -> None:
    project.start()
    request = asked(project, COMMIT, bash("git push"))
    tip = git(project.paths.copy("alice"), "rev-parse", "team/alice")
    assert project.run("teamctl", "shutdown", "--force", "alice").stderr == "alice was killed\n"
    project.do("teamctl", "rm", "alice")
    assert project.do("teamctl", "approve", request) == (
        f"approved the push of alice ({request}); alice does not run now, and goes on with it when "
        "it runs again\n"
    )
    project.do("teamctl", "spawn", "alice", "coder", "Go on.", "--worktree")
    wait_until(
        lambda: f"{tip}\trefs/heads/team/alice" in git(bare, "ls-remote", "."), what="pushed"
    )


NO_GH = (
    "gh is not installed (https://cli.github.com); without it `teamctl push alice` pushes the "
    "branch, and the page of your server opens the pull request"
)
GH = """#!/bin/sh
printf '%s\\n' "$@" > "$0.asked"
echo 'Creating pull request' >&2
echo https://git.example/pull/7
"""


def test_the_person_pushes_a_branch_and_opens_a_pull_request(project: Project, bare: Path) -> None:
    """The commands need no teamd, and run gh if it is installed."""
    project.paths.create()
    make_copy(project.paths, "alice", "project", project.folder)
    project.enlist("alice", worktree=True)
    copy = project.paths.copy("alice")
    tip = commit(copy, "by alice", a="mine\n")
    (copy / "b.txt").write_text("not committed\n")
    missing = project.run("teamctl", "pr", "alice")
    assert (missing.status, missing.complaint) == (1, f"teamctl: {NO_GH}")
    done = project.run("teamctl", "push", "alice")
    assert (done.status, done.stdout) == (
        0,
        f"pushed 1 commit to team/alice of origin: {tip[:12]}\n",
    )
    assert done.complaint == "warning: not committed, so not pushed: b.txt"
    assert git(bare, "rev-parse", "team/alice") == tip
    unknown = project.run("teamctl", "push", "bob")
    assert (unknown.status, unknown.complaint) == (
        1,
        "teamctl: no teammate named 'bob'; the team is: alice, team/main (the queue's branch)",
    )
    gh = project.root / "bin/gh"
    gh.parent.mkdir()
    gh.write_text(GH)
    gh.chmod(0o755)
    (copy / "b.txt").write_text("two\n")
    git(project.folder, "remote", "set-head", "origin", "main")
    commit(copy, "and more", a="more\n")
    # An agent in the shared folder can write such refs.
    git(
        project.folder, "replace", tip, git(project.folder, "commit-tree", "-m", "x", "main^{tree}")
    )
    assert project.do("teamctl", "pr", "alice", "--base", "main") == (
        "team/alice of origin has a pull request: https://git.example/pull/7\n"
    )
    assert gh.with_name("gh.asked").read_text().splitlines() == [
        *("pr", "create", "--head", "team/alice", "--title", "and more"),
        *("--body", "- by alice", "- and more", "--base", "main"),
    ]
    gh.write_text("#!/bin/sh\necho 'a pull request already exists:\nhttps://x/8' >&2; exit 1\n")
    assert project.do("teamctl", "pr", "alice").endswith("request: https://x/8\n")
    gh.write_text("#!/bin/sh\necho 'not logged in' >&2; exit 4\n")
    failed = project.run("teamctl", "pr", "alice")
    assert (failed.status, failed.complaint) == (
        1,
        "teamctl: team/alice is pushed, but gh failed: not logged in",
    )


@pytest.mark.slow
def test_after_a_kill_during_the_push_the_teammate_reads_that_it_was_done(
    project: Project, bare: Path
) -> None:
    project.start()
    hook, reached = bare / "hooks/post-receive", bare / "reached"
    hook.write_text(f"#!/bin/sh\ntouch {reached}\nsleep 60\n")
    hook.chmod(0o755)
    request = asked(project, COMMIT, bash("git push"))
    tip = git(project.paths.copy("alice"), "rev-parse", "team/alice")
    project.do("teamctl", "approve", request)
    wait_until(reached.exists, what="the remote has the commit")
    os.kill(project.member("alice")["pid"], signal.SIGKILL)
    project.wait_for("alice", "idle", turns=2)
    result = project.asked("alice", least=3)[2].asked.last_results[0]
    assert result.text == (
        "teamd was stopped during the push, but it was done: "
        f"team/alice of origin has {tip[:12]} already"
    )
    assert project.log("alice", "push") == []
