"""Rows of the lessons' table about tools: the tools of each role, each used for real."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from tests.e2e.harness import Project
from tests.e2e.stories import ALL, LEAD, REQUEST, TEAMMATE, WORK, inputs, told
from tests.strict.asked import Asked
from tests.strict.cache import prompt_tokens
from tests.strict.exchange import Accepted
from tests.strict.replies import Answer, Call, say, use
from tests.waiting import wait_until

FIXED_TOKENS: Final = 2100  # of tools and system prompt, paid with each request
EVERYBODYS: Final[tuple[Call, ...]] = (
    ("bash", {"command": "echo made by bash > made"}),
    ("read_file", {"path": "made"}),
    ("write_file", {"path": "written", "content": "old"}),
    ("edit_file", {"path": "written", "old_text": "old", "new_text": "new"}),
    ("send_message", {"to": "pal", "content": "Hello!", "summary": "a greeting"}),
    ("read_inbox", {}),
    ("task_create", {"subject": "Write it"}),
    ("task_create", {"subject": "Test it", "blocked_by": ["1"]}),
    ("task_get", {"task_id": "2"}),
    ("task_list", {}),
    ("claim_task", {"task_id": "1"}),
    ("task_update", {"task_id": "1", "status": "completed"}),
    ("background_run", {"command": "echo begun; sleep 1000"}),
    ("check_background", {"job_id": "1"}),
    ("stop_background", {"job_id": "1"}),
    ("load_skill", {"name": "release"}),
)
ANSWERS: Final = (
    "(no output)", "made by bash", "written", "written", "sent to pal", "no new mail",
    "task_id: 1", "task_id: 2", '"blocked_by"', "blocked by 1", "task_id: 1 is yours",
    "1 [completed", "job_id: 1", "job_id: 1 [running]", "job_id: 1 [stopped]", "Tag it.",
)  # fmt: skip


def test_teammates_tools(project: Project) -> None:
    """Bash, files, tasks, mail and later additions: each by name, by input, and used for real."""
    project.stage.act(
        "tom",
        told(
            (r"Use them\.", use(*EVERYBODYS, ("submit_plan", {"plan": "As before."}))),
            ("plan .* is with the lead", use(("bash", {"command": WORK.format(name="tom")}))),
            (REQUEST.pattern, _approve),
        ),
    )
    _begin_with_skill_and_pal(project)
    project.do("teamctl", "spawn", "tom", "clerk", "Use them.")
    wait_until((project.folder / "busy-tom").exists, what="he has used them")
    first = project.asked("tom", least=1)[0]
    assert inputs(first) == TEAMMATE
    assert prompt_tokens({**first.body, "messages": []}) <= FIXED_TOKENS
    _assert_used(project, project.asked("tom", least=2)[1])
    _assert_it_leaves(project, "tom")
    assert project.records("tom", "result")[-1]["content"] == "approved; you are shut down now"
    assert used(project, "tom") == set(TEAMMATE)


HOLD: Final = (
    ("pause_teammate", {"teammate": "pal"}),
    ("interrupt_teammate", {"teammate": "pal", "text": "Hi."}),
    ("resume_teammate", {"teammate": "pal"}),
)


@pytest.mark.slow
def test_leads_tools(project: Project) -> None:
    """The teammates' tools and those for leading, used by a lead, a planner and another team."""
    fetch = ("task", {"prompt": "Find the number."})
    later = ("task", {"prompt": "Find the number.", "background": True})
    wes = {"name": "wes", "role": "guard", "prompt": "Wait."}
    tess = {"prompt": "Wait.", "name": "tess", "role": "tester", "team": "web"}
    lines = (
        (r"Lead them\.", use(*EVERYBODYS)),
        ("Tag it", use(("create_team", {"name": "web"}), fetch, later, ("task", tess))),
        (
            "tess .* is at work",
            use(("spawn_teammate", wes), ("list_teammates", {}), ("broadcast", {"content": "Hi"})),
        ),
        (r'type="plan_approval_request" request_id="([^"]+)"', _review),
        ("I have acted", use(*HOLD, ("shutdown_request", {"teammate": "wes"}))),
        (
            'teammate_id="wes" type="shutdown_response" request_id="[^"]+" approve="true"',
            use(("delete_team", {"name": "web"}), ("bash", {"command": WORK.format(name="lead")})),
        ),
        (REQUEST.pattern, _approve),
    )
    project.stage.act("lead", told(*lines))
    project.stage.act("subagent", lambda _: say("It is 42."))
    act = (("write_file", {"path": "acted", "content": "so"}), _mail("I have acted."))
    planner = (
        ("Act by plan", use(("submit_plan", {"plan": "One step."}))),
        ('approve="true" reason="Go ahead."', use(*act)),
    )
    project.stage.act("pat", told(*planner))
    _begin_with_skill_and_pal(project)
    project.do("teamctl", "chat", "Lead them.")
    wait_until(lambda: project.member("wes"), what="wes is there")
    assert inputs(project.asked("lead", least=1)[0]) == LEAD
    _assert_used(project, project.asked("lead", least=2)[1])
    project.do("teamctl", "spawn", "pat", "coder", "Act by plan.", "--plan")
    wait_until((project.folder / "busy-lead").exists, timeout_seconds=60, what="the story")

    assert (project.folder / "acted").read_text() == "so"
    assert project.member("wes")["status"] == "shutdown"
    assert not (project.folder / ".teams" / "web").exists()
    done = [r["content"] for r in project.records("lead", "result")][len(EVERYBODYS) :]
    begun = ("the team web is there", "It is 42.", "job_id: 2", "tess (tester) is at work")
    assert [words in text for words, text in zip(begun, done, strict=False)] == [True] * 4
    assert "pal (friend): idle" in done[5]
    assert (
        '<background-job job_id="2" state="done">' in project.asked("lead", least=1)[-1].asked.heard
    )
    _assert_it_leaves(project, "lead")
    assert used(project, "lead") == set(LEAD)
    assert not [r for r in project.records("lead", "result") if r["is_error"]]


def test_one_task_tool_three_modes(project: Project) -> None:
    """In the foreground, in the background (job id, output, stop), and as a teammate."""

    def subagent(asked: Asked) -> Answer:
        if "Never end." in asked.heard:
            return use(("bash", {"command": "sleep 1000"}))
        if asked.last_results:
            return say(f"The answer is {asked.last_results[0].text}.")
        return use(("bash", {"command": "echo 42"}))

    def started(found: re.Match[str]) -> Answer:
        return use(("check_background", {"job_id": "1"}), ("stop_background", {"job_id": "2"}))

    project.stage.act("subagent", subagent)
    modes = (
        ("task", {"prompt": "Find the answer."}),
        ("task", {"prompt": "Find it meanwhile.", "background": True}),
        ("task", {"prompt": "Never end.", "background": True}),
        ("task", {"prompt": "Keep watch.", "name": "wim", "role": "guard"}),
    )
    lines = ((r"In all ways\.", use(*modes)), ('job_id="1" state="done"', started))
    project.stage.act("lead", told(*lines))
    project.start()
    project.do("teamctl", "chat", "In all ways.")
    wait_until(lambda: len(project.records("lead", "result")) == 6, what="all of it")
    assert [r["content"].splitlines() for r in project.records("lead", "result")] == [
        ["The answer is 42."],
        ["job_id: 1"],
        ["job_id: 2"],
        ["wim (guard) is at work"],
        ["job_id: 1 [done] task: Find it meanwhile.", "The answer is 42."],
        ["job_id: 2 [stopped] task: Never end."],
    ]
    project.wait_for("wim", "idle")
    assert "Keep watch." in project.asked("wim", least=1)[0].asked.last_text
    for one in project.asked("subagent"):
        leading = {"send_message", "submit_plan", "claim_task"} | (set(LEAD) - set(ALL))
        assert not leading & set(one.asked.tools)
    members = json.loads(project.paths.config.read_bytes())["members"]
    assert [m["name"] for m in members] == ["lead", "wim"], "a subagent is gone with its answer"
    wait_until(lambda: "sleep 1000" not in project.survivors().values(), what="it is stopped")


def used(project: Project, name: str) -> set[str]:
    """Return the tools that a teammate has called."""
    replies = project.records(name, "reply")
    return {b["name"] for r in replies for b in r["content"] if b["type"] == "tool_use"}


def _assert_used(project: Project, accepted: Accepted) -> None:
    """Check that each common tool has given the expected result."""
    results = accepted.asked.last_results[: len(EVERYBODYS)]
    assert [r.name for r in results] == [name for name, _ in EVERYBODYS]
    for result, words in zip(results, ANSWERS, strict=True):
        assert not result.is_error, result
        assert words in result.text
    assert (project.folder / "made").read_text() == "made by bash\n"
    assert (project.folder / "written").read_text() == "new"
    wait_until(lambda: "Hello!" in project.asked("pal", least=1)[-1].asked.heard, what="the mail")
    assert 'summary="a greeting"' in project.asked("pal", least=1)[-1].asked.heard


def _assert_it_leaves(project: Project, name: str) -> None:
    """Check that a working teammate approves its shutdown at its next model call."""
    asking = project.begin("teamctl", "shutdown", name, "--timeout", "50")
    wait_until(lambda: "shutdown_request" in project.mail(name), what="the request")
    project.write(f"go-{name}", "")
    assert asking.wait(60) == 0


def _begin_with_skill_and_pal(project: Project) -> None:
    skill = "---\nname: release\ndescription: How to release.\n---\nTag it.\n"
    project.write(".claude/skills/release/SKILL.md", skill)
    project.start()
    project.do("teamctl", "spawn", "pal", "friend", "Wait.", "--wait")
    project.wait_for("pal", "idle")


def _approve(found: re.Match[str]) -> Answer:
    return use(("shutdown_response", {"request_id": found[1], "approve": True}))


def _review(found: re.Match[str]) -> Answer:
    answer: dict[str, Any] = {"request_id": found[1], "approve": True, "feedback": "Go ahead."}
    return use(("review_plan", answer))


def _mail(content: str) -> Call:
    return "send_message", {"to": "lead", "content": content}
