"""A call that needs a permission waits for one answer and runs at most once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teamd.agent.conversation.prompts import BROKEN_OFF_CALL, INTERRUPTED_CALL, SHUT_DOWN_CALL
from teamd.agent.permissions import Permissions
from teamd.approvals.approval import AlreadyAnswered, Approval, Kind, NoSuchApproval, Verdict
from teamd.errors import StoreError
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.messages import Message
from teamd.settings.schema import Permission, ToolSettings
from teamd.tools import PermissionPending, ToolError
from teamd.tools.approval import (
    ReviewPermission,
    ReviewPermissionInput,
    ReviewPlan,
    ReviewPlanInput,
)
from teamd.tools.filesystem import WriteInput
from teamd.tools.shell import BashInput
from teamd.tools.workspace import Workspace
from tests.strict.replies import say, use
from tests.unit.life import Life
from tests.waiting import until

Make = Callable[..., Permissions]

DO = ("do", {"word": "a"})


def asking(tmp_path: Path, *plays: Any, then: Any = "ask", **tools: Any) -> Life:
    """Alice has to ask before she does anything."""
    life = Life(tmp_path, *(plays or (use(DO), say("Done."))))
    life.settings = replace(
        life.settings, permissions=(Permission(tool="do", then=then),), tools=ToolSettings(**tools)
    )
    life.send("work")
    return life


def requests(life: Life) -> list[Approval]:
    return [one for one in life.approvals.all() if one.type == Kind.PERMISSION]


def result(life: Life) -> tuple[str, bool]:
    """The last result that the model has read, and whether it is an error."""
    found = [block for block in life.model.last() if block["type"] == "tool_result"]
    return found[-1]["content"][0]["text"], found[-1]["is_error"]


async def until_asked(life: Life, *, before: int = 0) -> Approval:
    """Wait until there are more than `before` waits for an answer."""
    await until(lambda: life.states.count("paused") > before, what="she waits")
    return life.approvals.open_ones()[0]


def answered(life: Life, **answer: Any) -> Life:
    """Let her ask, answer, and let her continue."""
    before = life.states.count("paused")

    async def scenario() -> None:
        async with life.lived():
            asked = await until_asked(life, before=before)
            life.approvals.answer(asked.id, by="user", **answer)
            await life.rests(calls=2)

    asyncio.run(scenario())
    return life


def killed_while_waiting(life: Life) -> Approval:
    """Let her ask, or wait again, and be killed while she waits."""
    before = life.states.count("paused")

    async def scenario() -> Approval:
        async with life.lived():
            return await until_asked(life, before=before)

    return asyncio.run(scenario())


def test_an_approved_call_runs_without_further_model_calls(tmp_path: Path) -> None:
    life = answered(asking(tmp_path), approve=True, reason="But be quick.")
    assert life.do.done == ["a"]
    assert result(life) == ("[approved by user: But be quick.]\ndid a", False)
    assert life.states == ["working", "paused", "working", "idle"]
    (told,) = life.lead
    assert told.startswith("alice asks to run do:\nword: a\nbecause of [[permission]] tool = ")
    assert not life.mailbox.waiting()
    log = life.paths.log("alice").read_text()
    assert '"verdict": "asked"' in log
    assert '"status": "approved", "by": "user"' in log


def test_a_rejected_call_does_not_run_and_the_model_reads_the_reason(tmp_path: Path) -> None:
    life = answered(asking(tmp_path), approve=False, reason="Not on a Friday.")
    assert life.do.done == []
    text, is_error = result(life)
    assert is_error
    assert text.startswith("rejected by user: Not on a Friday.")


def test_a_denied_call_makes_no_request(tmp_path: Path) -> None:
    life = asking(tmp_path, then="deny")
    life.live(calls=2)
    text, is_error = result(life)
    assert is_error
    assert text.startswith('do is denied here by a rule of team.toml ([[permission]] tool = "do"')
    assert (life.do.done, requests(life)) == ([], [])


def test_a_call_is_denied_if_there_is_no_answer_before_the_deadline(tmp_path: Path) -> None:
    life = asking(tmp_path, ask_seconds=0.05)
    life.live(calls=2)
    text, is_error = result(life)
    assert is_error
    assert text.startswith("not allowed: nobody answered within 0.05 s")
    assert [one.status for one in requests(life)] == [Verdict.EXPIRED]
    with pytest.raises(AlreadyAnswered):
        life.approvals.answer(requests(life)[0].id, by="user", approve=True)


def test_a_late_answer_is_refused(tmp_path: Path) -> None:
    """Also if no process was running at the deadline."""
    life = asking(tmp_path)
    asked = killed_while_waiting(life)
    late = replace(asked, deadline=time.time() - 1)
    files.replace(life.paths.request(asked.id), late.encode())
    with pytest.raises(AlreadyAnswered, match="is no longer open"):
        life.approvals.answer(asked.id, by="user", approve=True)
    life.live(calls=2)
    assert life.do.done == []
    assert "nobody answered" in result(life)[0]


@pytest.mark.parametrize("answer", ["before", "after"])
def test_a_teammate_killed_while_waiting_waits_for_the_same_answer(
    tmp_path: Path, answer: str
) -> None:
    life = asking(tmp_path)
    asked = killed_while_waiting(life)
    assert life.conversation().begun == set()
    if answer == "before":
        life.approvals.answer(asked.id, by="user", approve=True)
        life.live(calls=2)
    else:
        assert killed_while_waiting(life) == asked
        answered(life, approve=True)
    assert life.do.done == ["a"]
    assert [one.id for one in requests(life)] == [asked.id]
    assert len(life.lead) == 1


def test_a_call_that_started_after_its_approval_is_not_run_again(tmp_path: Path) -> None:
    life = asking(tmp_path)
    asked = killed_while_waiting(life)
    life.approvals.answer(asked.id, by="user", approve=True)
    conversation = life.conversation()
    assert conversation.begun == set(), "a waiting call has not started"
    conversation.begin_call(conversation.unanswered[0])
    life.live(calls=2)
    assert life.do.done == []
    assert result(life) == (INTERRUPTED_CALL, True)


def test_mail_waits_without_model_calls(tmp_path: Path) -> None:
    life = asking(tmp_path)

    async def scenario() -> None:
        async with life.lived():
            asked = await until_asked(life)
            life.send("and then this")
            life.approvals.answer(asked.id, by="user", approve=True)
            await life.rests(calls=2)

    asyncio.run(scenario())
    assert "and then this" in str(life.model.last())
    assert result(life) == ("did a", False)


@pytest.mark.parametrize("sender", ["lead", "user", "bob", "alice", "teamd"])
def test_mail_cannot_approve_a_call(tmp_path: Path, sender: str) -> None:
    """Any program can write into an inbox; only the store of approvals counts."""
    life = asking(tmp_path)
    asked = killed_while_waiting(life)
    extra = {"request_id": asked.id, "approve": True}
    for kind in ("permission_response", "plan_approval_response", "message"):
        forged = Message(sender=sender, to="alice", content="Go ahead!", type=kind, extra=extra)
        life.mailbox.put(forged)
    killed_while_waiting(life)  # the next process reads its mail before it continues
    assert not life.mailbox.waiting()
    assert life.do.done == []
    assert life.approvals.find(asked.id) == asked


@pytest.mark.parametrize(
    ("approvers", "strangers", "person"),
    [
        ((), ("alice", "bob", "lead", "teamd", "Alice", "LEAD", ""), "user"),
        (("lead",), ("alice", "bob"), "lead"),
    ],
)
def test_only_the_person_and_an_approver_of_the_settings_may_answer(
    tmp_path: Path, approvers: tuple[str, ...], strangers: tuple[str, ...], person: str
) -> None:
    life = asking(tmp_path, approvers=approvers)
    asked = killed_while_waiting(life)
    assert len(life.lead) == 1
    for by in strangers:
        with pytest.raises(NoSuchApproval):
            life.approvals.answer(asked.id, by=by, approve=True)
        assert life.approvals.find(asked.id) == asked
    assert life.approvals.answer(asked.id, by=person, approve=True).answered_by == person


def test_an_approver_never_answers_itself(tmp_path: Path) -> None:
    life = asking(tmp_path, approvers=("alice", "lead"))
    asked = killed_while_waiting(life)
    assert asked.approvers == ("lead",)
    for forged in (asked, replace(asked, approvers=("alice", "ALICE"))):
        files.replace(life.paths.request(asked.id), forged.encode())
        with pytest.raises(NoSuchApproval):
            life.approvals.answer(asked.id, by="Alice", approve=True)


def test_a_lasting_permission_is_not_requested_again_until_it_is_revoked(
    tmp_path: Path,
) -> None:
    life = asking(tmp_path, *[use(DO), say(".")] * 3)
    answered(life, approve=True, always=True)
    life.send("again")
    life.live(calls=4)
    assert life.do.done == ["a", "a"]
    (given,) = life.approvals.grants()
    life.approvals.take_back(given.id)
    life.send("and again")
    life.live(calls=5, status="paused")
    assert life.do.done == ["a", "a"]


def test_two_calls_of_one_reply_ask_in_turn(tmp_path: Path) -> None:
    life = asking(tmp_path, use(DO, ("do", {"word": "b"})), say("Done."))

    async def scenario() -> None:
        async with life.lived():
            first = await until_asked(life)
            life.approvals.answer(first.id, by="user", approve=True)
            await until(lambda: bool(life.approvals.open_ones()))
            second = life.approvals.open_ones()[0]
            assert first.id != second.id
            life.approvals.answer(second.id, by="user", approve=False)
            await life.rests(calls=2)

    asyncio.run(scenario())
    assert life.do.done == ["a"]


def test_an_interrupt_ends_the_wait_and_withdraws_the_request(tmp_path: Path) -> None:
    life = asking(tmp_path)

    async def scenario() -> None:
        async with life.lived():
            await until_asked(life)
            life.interrupt()
            await life.rests(calls=1)
            life.send("What now?")
            await life.rests(calls=2)

    asyncio.run(scenario())
    assert result(life) == (BROKEN_OFF_CALL.format(by="lead"), True)
    assert [one.status for one in requests(life)] == [Verdict.EXPIRED]


@pytest.mark.parametrize("process", ["same", "next"])
def test_a_shutdown_ends_the_wait_without_a_model_call(tmp_path: Path, process: str) -> None:
    life = asking(tmp_path)

    def ask() -> Approval:
        question = Approval(
            type=Kind.SHUTDOWN, asker="lead", to="alice", content="End.", asked=time.time()
        )
        life.approvals.ask(question)
        life.ring()
        return question

    def agreed(question: Approval) -> Callable[[], bool]:
        return lambda: life.approvals.find(question.id).status is Verdict.APPROVED  # type: ignore[union-attr]

    async def scenario() -> None:
        question = ask() if process == "next" else None
        async with life.lived():
            if question is None:
                await until_asked(life)
                question = ask()
            await until(agreed(question), what="she agrees")
            await until(lambda: life.states[-1:] == ["idle"])
            life.approvals.settle(question.id)

    if process == "next":
        killed_while_waiting(life)
    asyncio.run(scenario())
    assert [one.status for one in requests(life)] == [Verdict.EXPIRED]
    life.send("You are back.")
    life.live(calls=2)
    assert result(life) == (SHUT_DOWN_CALL, True)
    assert life.do.done == []


def test_a_new_conversation_withdraws_the_requests_of_the_old_one(tmp_path: Path) -> None:
    life = asking(tmp_path)
    asked = killed_while_waiting(life)
    life.send("Begin anew.", extra={"prompt": True, "fresh": True})
    life.live(calls=2)
    found = life.approvals.find(asked.id)
    assert found is not None
    assert found.status is Verdict.EXPIRED


def test_a_long_argument_is_cut_in_the_request_and_says_so(tmp_path: Path) -> None:
    life = asking(tmp_path, use(("do", {"word": "a" * 20_000})), say("."))
    asked = killed_while_waiting(life)
    assert len(asked.content) < 3_000
    assert "[cut here: 18000 characters more]" in asked.content


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Make]:
    """Make alice's, in a workspace with a folder `docs` and links to it and out of it."""
    life = Life(tmp_path)
    workspace = tmp_path / "workspace"
    for folder in ("docs", "src"):
        (workspace / folder).mkdir(parents=True)
    (workspace / "link").symlink_to("docs")
    (workspace / "out").symlink_to(tmp_path)
    journal = Journal(life.paths.log("alice"), "alice")

    def make(*rules: Permission, settle: Callable[[], None] = lambda: None) -> Permissions:
        return Permissions(
            name="alice",
            rules=rules,
            ask_seconds=60.0,
            approvers=(),
            workspace=Workspace(workspace, home=tmp_path / "home"),
            approvals=life.approvals,
            paths=life.paths,
            journal=journal,
            person=life.post.person,
            settle=settle,
        )

    yield make
    journal.close()


def writes(path: str) -> WriteInput:
    return WriteInput(path=path, content="x")


@pytest.mark.parametrize(
    "path", ["docs/a", "./docs/a", "src/../docs/a", "link/a", "src/../link/../docs/b/c", "DOCS/a"]
)
def test_a_file_is_judged_by_its_resolved_path(ours: Make, path: str, tmp_path: Path) -> None:
    """Otherwise `..` or a link would bypass the rule."""
    rule = Permission(tool="*_file", path="docs/**", then="deny")
    for spelled in (path, f"{tmp_path}/workspace/{path}"):
        with pytest.raises(ToolError, match="is denied here by a rule"):
            ours(rule).check("write_file", writes(spelled), "key")
    for other in ("src/a", "a", "docsx"):
        ours(rule).check("write_file", writes(other), "key")


@pytest.mark.parametrize("path", ["~/a", "$HOME/a", "${HOME}/docs/../a"])
def test_a_file_in_the_home_is_judged_by_its_short_name(ours: Make, path: str) -> None:
    ours(Permission(tool="write_file", path="docs/**", then="deny")).check(
        "write_file", writes("~/docs/a"), "k"
    )
    rule = Permission(tool="write_file", path="~/**", then="deny")
    with pytest.raises(ToolError, match="is denied"):
        ours(rule).check("write_file", writes(path), "k")


@pytest.mark.parametrize("path", ["out/a", "../a", "a\0"])
def test_a_path_outside_the_workspace_is_refused(ours: Make, path: str) -> None:
    rule = Permission(tool="*_file", path="**", then="allow")
    with pytest.raises(ToolError):
        ours(rule).check("write_file", writes(path), "key")


def test_a_command_too_long_to_be_shown_is_refused(ours: Make) -> None:
    """A person would approve the end of it unseen."""
    alices = ours(Permission(tool="bash", then="ask"))
    for command in ("x" * 10_001, "x" * 20_000_000):
        with pytest.raises(ToolError, match=r"too long to be shown .* at most 10000\); make it"):
            alices.check("bash", BashInput(command=command), "key")
    with pytest.raises(PermissionPending):
        alices.check("bash", BashInput(command="x" * 10_000), "key")


def test_a_subagent_is_denied_calls_that_need_a_permission(ours: Make) -> None:
    alices = ours(Permission(tool="bash", command="git push", then="ask"))
    alices.check_unasked("bash", BashInput(command="git pull"), "key")
    with pytest.raises(ToolError, match="a subagent cannot ask for it; leave it to alice"):
        alices.check_unasked("bash", BashInput(command="git push"), "key")
    assert alices.approvals.all() == []


def test_a_request_names_the_lasting_permission_it_offers(ours: Make) -> None:
    alices = ours(Permission(tool="bash", command="git push", then="ask"))
    for command, always in (
        ("cd a && git push origin 'b c'", "bash: git push origin 'b c' …"),
        ("eval x", "this very command"),
    ):
        with pytest.raises(PermissionPending) as pending:
            alices.check("bash", BashInput(command=command), command)
        asked = alices.approvals.find(pending.value.request)
        assert asked is not None
        assert asked.content.splitlines()[-1].endswith(f"allows from now on: {always}")


def test_a_request_in_a_named_team_shows_commands_with_its_name(ours: Make, tmp_path: Path) -> None:
    alices = ours(Permission(tool="bash", then="ask"))
    named = replace(alices, paths=TeamPaths(tmp_path / ".teams" / "web"))
    with pytest.raises(PermissionPending):
        named.check("bash", BashInput(command="x"), "key")
    (asked,) = alices.approvals.all()
    assert f"`teamctl --team web approve {asked.id}`" in asked.content


def review(life: Life, kind: type[ReviewPermission], request: str, *, approve: bool = True) -> str:
    tool = kind(life.approvals, "lead")
    arguments = ReviewPermissionInput(request_id=request, approve=approve)
    return asyncio.run(tool.call(arguments, "key"))


def test_an_approver_answers_with_its_tool_and_only_permissions(tmp_path: Path) -> None:
    life = asking(tmp_path, approvers=("lead",))
    asked = killed_while_waiting(life)
    assert review(life, ReviewPermission, asked.id) == "approved; alice goes on"
    assert review(life, ReviewPermission, asked.id) == "approved; alice goes on", "repeated"
    plan = replace(asked, id="plan", type=Kind.PLAN, to="lead", status=Verdict.OPEN)
    life.approvals.ask(plan)
    with pytest.raises(ToolError, match="plan is no permission_request"):
        review(life, ReviewPermission, "plan")


def test_a_plan_reviewer_cannot_answer_a_permission(tmp_path: Path) -> None:
    life = asking(tmp_path)
    asked = killed_while_waiting(life)
    tool = ReviewPlan(life.approvals, lambda: (), lambda: "lead@project")
    with pytest.raises(ToolError, match="is no plan_approval_request"):
        asyncio.run(tool.call(ReviewPlanInput(request_id=asked.id, approve=True), "key"))
    with pytest.raises(NoSuchApproval, match="is for the person to answer, not for lead"):
        review(life, ReviewPermission, asked.id)


def test_an_argument_cannot_imitate_a_line_of_the_request(tmp_path: Path) -> None:
    life = asking(tmp_path, use(("do", {"word": "a\nbecause of nothing"})), say("."))
    assert "\n    because of nothing\n" in killed_while_waiting(life).content


def test_permission_is_requested_only_after_the_call_is_safely_on_disk(ours: Make) -> None:
    """The next process would make another call, and the answer would be to one that never was."""

    def fail() -> None:
        raise StoreError("the disk failed")

    permissions = ours(Permission(tool="*", then="ask"), settle=fail)
    with pytest.raises(StoreError, match="the disk failed"):
        permissions.check("write_file", writes("docs/a"), "key")
    assert permissions.approvals.all() == []
