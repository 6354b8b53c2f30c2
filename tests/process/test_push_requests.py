"""A teammate's `git push` becomes a request to the person, unless a rule decides."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator

import pytest

from teamd.agent.permissions import Permissions
from teamd.approvals.approval import AlreadyAnswered, Approval, Kind
from teamd.approvals.store import Approvals
from teamd.journal import Journal
from teamd.mail.routing import MailRouter
from teamd.settings import Settings
from teamd.settings.schema import Permission
from teamd.tools import PermissionPending, ToolError
from teamd.tools.push import PushCommand, Pushes
from teamd.tools.shell import BashInput
from teamd.tools.workspace import Workspace
from tests.process.test_pushes import Scene, scene  # noqa: F401 -- a fixture
from tests.repositories import commit, git

Make = Callable[..., Permissions]


@pytest.fixture
def told() -> list[str]:
    """The sentences to the person."""
    return []


@pytest.fixture
def ours(scene: Scene, told: list[str]) -> Iterator[Make]:  # noqa: F811 -- the fixture
    """Make alice's permissions by some rules."""
    post = MailRouter(scene.paths, durable=False, max_bytes=1 << 20)
    approvals = Approvals(scene.paths, post)
    journal = Journal(scene.paths.log("alice"), "alice")

    def make(*rules: Permission, shared: bool = False) -> Permissions:
        pushes = Pushes(
            name="alice",
            paths=scene.paths,
            settings=Settings(),
            approvals=approvals,
            journal=journal,
            tell=told.append,
            shared=scene.source if shared else None,
        )
        return Permissions(
            name="alice",
            rules=rules,
            ask_seconds=60.0,
            approvers=("lead",),
            workspace=Workspace(scene.copy, home=scene.copy),
            approvals=approvals,
            paths=scene.paths,
            journal=journal,
            person=lambda: "lead",
            pushes=pushes,
        )

    yield make
    journal.close()


def check(alices: Permissions, command: str = "git push", key: str = "key") -> str:
    return alices.check("bash", BashInput(command=command), key)


def asked(alices: Permissions, command: str = "git push", key: str = "key") -> Approval:
    with pytest.raises(PermissionPending) as pending:
        check(alices, command, key)
    found = alices.approvals.find(pending.value.request)
    assert found is not None
    return found


def carry_out(alices: Permissions, key: str = "key") -> str:
    assert alices.pushes is not None
    return asyncio.run(alices.pushes.carry_out(alices.pushes.ready.pop(key)))


def rule(command: str | None, then: str) -> Permission:
    return Permission(tool="bash", command=command, then=then)  # type: ignore[arg-type]


def test_the_forms_of_a_push_are_read(ours: Make, scene: Scene) -> None:  # noqa: F811
    pushes = ours().pushes
    assert pushes is not None
    for command, read in {
        "git push": PushCommand(),
        f"cd {scene.copy} && git push 2>&1": PushCommand(),
        "git push -u origin HEAD": PushCommand("origin"),
        "git push origin team/alice": PushCommand("origin", "team/alice"),
        "git push origin HEAD:refs/heads/fix": PushCommand("origin", "HEAD", "fix"),
        "git push origin a:b --quiet": PushCommand("origin", "a", "b"),
    }.items():
        assert pushes.read(command) == read, command
    for command in (
        "git push /tmp/bare.git main",
        "git push other",
        "git commit -qm x && git push",
        "cd /tmp && git push",
        "git push > out",
        "GIT_DIR=/tmp/x git push",
        "git push $remote",
        "git -C /tmp push",
        "git pushes",
    ):
        assert pushes.read(command) is None, command


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("git push --force", "`git push --force` is not possible here; teamd pushes one branch"),
        ("git push origin +team/alice", "`[+]team/alice` would force the push; teamd pushes one"),
        ("git push origin :main", "`:main` would delete a branch"),
        ("git push origin --delete main", "`git push --delete` is not possible here"),
        ("git push --mirror", "`git push --mirror` is not possible here"),
        ("git push origin a b", "2 branches cannot be pushed at once"),
        ("git push origin HEAD:refs/tags/v1", "`refs/tags/v1` is not the name of a branch"),
        ("git push --receive-pack=touch origin", "`git push --receive-pack=touch` is not possible"),
        ("git push origin x:", "`x:` names no branch of the remote"),
    ],
)
def test_more_than_a_plain_push_of_one_branch_is_refused(
    ours: Make, command: str, why: str
) -> None:
    with pytest.raises(ToolError, match=why):
        check(ours(rule("git push", "allow")), command)


def test_an_approved_push_sends_what_was_shown_and_is_asked_for_once(
    ours: Make,
    scene: Scene,  # noqa: F811
) -> None:
    alices, tip = ours(), scene.at("HEAD", scene.copy)
    request = asked(alices)
    assert request.type == Kind.PUSH
    assert request.to_json()["commits"] == [{"commit": tip, "subject": "by alice"}]
    assert request.content.startswith(
        f"alice asks to push 1 commit to team/alice of origin ({scene.bare}):\n"
        f"    {tip[:12]} by alice\n"
    )
    assert not request.may_be_answered_by("lead")
    commit(scene.copy, "meanwhile", a="again\n")
    assert asked(alices) == request
    alices.approvals.answer(request.id, by="user", approve=True, reason="But no more today.")
    assert check(alices) == "[approved by user: But no more today.]\n"
    assert carry_out(alices).startswith("pushed 1 commit to team/alice of origin: ")
    assert scene.at("team/alice") == tip
    with pytest.raises(AlreadyAnswered):
        alices.approvals.answer(request.id, by="user", approve=False)


def test_rules_for_git_push_decide_and_others_do_not_allow_it(ours: Make) -> None:
    with pytest.raises(ToolError, match=r'is denied here by a rule of team.toml .*"git push"'):
        check(ours(rule("git push", "deny")))
    with pytest.raises(ToolError, match="is denied"):
        check(ours(rule("git push origin team/alice", "deny")))
    for rules in ((rule(None, "allow"),), (rule("git", "allow"),), (rule("git push", "ask"),)):
        asked(ours(*rules), key=str(rules))
    main = (rule("git push origin main", "ask"), rule("git push", "allow"))
    asked(ours(*main), "git push origin HEAD:main", key="main")
    alices = ours(*main)
    assert check(alices, key="free") == ""
    assert carry_out(alices, "free").startswith("pushed 1 commit")


def test_a_lasting_permission_is_for_one_branch(ours: Make, scene: Scene) -> None:  # noqa: F811
    request = asked(ours())
    assert list(map(str, request.grants)) == ["bash: git push origin team/alice"]
    request_id = request.id
    ours().approvals.answer(request_id, by="user", approve=True, always=True)
    commit(scene.copy, "more", a="again\n")
    assert check(ours(), "git push origin HEAD", key="later") == ""
    asked(ours(), "git push origin HEAD:main", key="other branch")
    ours().approvals.take_back(request_id)
    asked(ours(), key="taken back")


def test_a_subagent_cannot_push_without_a_rule(ours: Make) -> None:
    with pytest.raises(ToolError, match="a subagent cannot ask for it"):
        ours().check_unasked("bash", BashInput(command="git push"), "key")
    allowed = ours(rule("git push", "allow"))
    allowed.check_unasked("bash", BashInput(command="git push"), "key")
    assert carry_out(allowed).startswith("pushed 1 commit")


def test_nothing_to_push_makes_no_request(ours: Make, scene: Scene) -> None:  # noqa: F811
    git(scene.source, "fetch", "-q", str(scene.copy), "team/alice")
    git(scene.source, "push", "-q", "origin", "FETCH_HEAD:refs/heads/team/alice")
    with pytest.raises(ToolError, match="origin has all of team/alice already: nothing to push"):
        check(ours())
    git(scene.source, "remote", "remove", "origin")
    with pytest.raises(ToolError, match="has no remote to push to; `git remote add origin URL`"):
        check(ours())


def test_more_commits_than_a_person_can_look_at_make_no_request(
    ours: Make,
    scene: Scene,  # noqa: F811
) -> None:
    begin = "commit refs/heads/team/alice\ncommitter a <a@x> 1700000000 +0000\ndata 1\nx\n"
    more = f"{begin}from refs/heads/team/alice^0\n{begin * 199}"
    words = ["git", "-C", str(scene.copy), "fast-import", "--quiet"]
    subprocess.run(words, input=more, text=True, check=True)
    with pytest.raises(ToolError, match="these are 201 commits, more than the person can look at"):
        check(ours())


def test_after_a_kill_during_the_push_the_remote_says_whether_it_was_done(
    ours: Make,
    scene: Scene,  # noqa: F811
) -> None:
    alices = ours()
    request = asked(alices)
    pushes = alices.pushes
    assert pushes is not None
    assert asyncio.run(pushes.find_done(request.id)) == "", "nobody has approved it"
    alices.approvals.answer(request.id, by="user", approve=True)
    assert asyncio.run(pushes.find_done(request.id)) == (
        "teamd was stopped before the push was done: nothing was pushed; push again"
    )
    assert scene.refs() == ["refs/heads/main"], "it only looks"
    check(alices)
    carry_out(alices)
    assert asyncio.run(pushes.find_done(request.id)).startswith(
        "teamd was stopped during the push, but it was done: team/alice of origin has "
    )
    git(scene.source, "remote", "set-url", "origin", "/gone")
    for why in ("origin is at /gone now", "git remote failed"):
        assert f"its end is not known: {why}" in asyncio.run(pushes.find_done(request.id))
        git(scene.source, "remote", "remove", "origin", check=False)


def test_a_failed_push_is_reported_to_the_person_with_the_next_step(
    ours: Make,
    scene: Scene,  # noqa: F811
    told: list[str],
) -> None:
    alices = ours()
    request = asked(alices)
    alices.approvals.answer(request.id, by="user", approve=True)
    check(alices)
    scene.bare.rename(scene.bare.with_name("moved.git"))
    with pytest.raises(ToolError, match="nothing was pushed: git could not push to origin: fatal"):
        carry_out(alices)
    (said,) = told
    assert said.startswith(
        "alice could not push 1 commit to team/alice of origin: git could not push to origin: fatal"
    )
    assert said.endswith("; `teamctl push alice` pushes from your terminal")


def test_a_push_from_the_shared_folder_is_asked_for_as_well(
    ours: Make,
    scene: Scene,  # noqa: F811
) -> None:
    alices, tip = ours(shared=True), commit(scene.source, "by the lead", a="shared\n")
    request = asked(alices, f"cd {scene.source} && git push")
    assert request.to_json()["commits"] == [{"commit": tip, "subject": "by the lead"}]
    assert request.extra["branch"] == "main"
    alices.approvals.answer(request.id, by="user", approve=True)
    check(alices)
    carry_out(alices)
    assert scene.at("main") == tip
    git(scene.source, "remote", "remove", "origin")
    assert check(alices, key="again") == "", "git in the sandbox says why"


def test_a_replaced_commit_is_shown_as_it_is_pushed(
    ours: Make,
    scene: Scene,  # noqa: F811
) -> None:
    """An agent in the shared folder can write such refs into the person's repository."""
    real = scene.at("HEAD", scene.copy)
    git(scene.source, "fetch", "-q", str(scene.copy), "team/alice")
    harmless = git(scene.source, "commit-tree", "-m", "harmless", "HEAD^{tree}")
    git(scene.source, "replace", real, harmless)
    (scene.source / ".git/info/grafts").write_text(f"{real}\n")
    assert git(scene.source, "log", "-1", "--format=%s", real) == "harmless"
    request = asked(ours())
    assert request.to_json()["commits"] == [{"commit": real, "subject": "by alice"}]
    assert "a.txt | 2 +-" in request.extra["stat"]
