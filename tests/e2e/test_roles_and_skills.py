"""Role files, skills and background jobs as a person uses them: files in the project's folder."""

from __future__ import annotations

import os
import signal
from typing import Final

from tests.e2e.harness import Project
from tests.e2e.stories import TEAMMATE
from tests.strict.replies import say, use
from tests.waiting import wait_until

NO_PLAN: Final = (
    "teamctl: {name} could not submit a plan, since its tools do not include submit_plan; leave "
    "out "
    "--plan, or change the role file or [model] tools"
)


def test_a_role_file_gives_prompt_model_and_tools(team: Project) -> None:
    """`.claude/agents/reviewer.md` is found in its usual folder."""
    team.write(
        ".claude/agents/reviewer.md",
        "---\nname: reviewer\ndescription: Use when: code is done\ntools: Read\nmodel: haiku\n"
        "---\nNever praise.\n",
    )
    team.stage.play("rita", use(("bash", {"command": "touch forbidden"})), say("Then not."))
    team.do("teamctl", "spawn", "rita", "reviewer", "Review it.", "--wait")
    first, second = team.asked("rita")
    assert "Never praise." in first.asked.system
    assert first.asked.system.startswith("You are 'rita', role: reviewer")
    assert first.body["model"] == "claude-haiku-5-5"
    names = {tool["name"] for tool in first.body["tools"]}
    assert "read_file" in names
    assert "send_message" in names
    assert not {"bash", "write_file", "edit_file", "background_run"} & names
    assert "no tool named 'bash'" in second.asked.last_results[0].text
    assert not (team.folder / "forbidden").exists()


def test_a_role_file_drops_tools_of_any_kind(team: Project) -> None:
    front = "disallowedTools: task_create, submit_plan, bash"
    team.write(".team/agents/clerk.md", f"---\n{front}\n---\nBe brief.\n")
    team.do("teamctl", "spawn", "cleo", "clerk", "Go.", "--wait")
    assert set(team.asked("cleo")[0].asked.tools) == TEAMMATE.keys() - {
        "task_create", "submit_plan", "bash",
    }  # fmt: skip
    refused = team.run("teamctl", "spawn", "carl", "clerk", "Go.", "--plan")
    assert (refused.status, refused.complaint) == (1, NO_PLAN.format(name="carl"))
    assert not team.member("carl")


def test_there_are_five_basic_tools_and_a_shutdown_needs_no_answer(project: Project) -> None:
    """A small model cannot answer requests, so teamd approves once the teammate is idle."""
    project.write("team.toml", '[model]\ntools = "basic"\n')
    project.start()
    wait = "touch at-work; until [ -e go ]; do sleep 0.05; done"
    project.stage.play("tina", use(("bash", {"command": wait})), say("Done."))
    project.do("teamctl", "spawn", "tina", "clerk", "Work.")
    wait_until((project.folder / "at-work").exists, what="she works")
    five = {"bash", "read_file", "write_file", "edit_file", "send_message"}
    assert set(project.asked("tina")[0].asked.tools) == five
    asking = project.begin("teamctl", "shutdown", "tina", "--timeout", "50")
    wait_until(lambda: "shutdown_request" in project.mail("tina"), what="the request")
    project.write("go", "")
    assert asking.wait(60) == 0
    assert project.member("tina")["status"] == "shutdown"
    refused = project.run("teamctl", "spawn", "tony", "clerk", "Go.", "--plan")
    assert (refused.status, refused.complaint) == (1, NO_PLAN.format(name="tony"))


def test_the_model_given_to_spawn_overrides_that_of_the_role(team: Project) -> None:
    team.write(".team/agents/clerk.md", "---\nmodel: opus\n---\nBe brief.\n")
    team.do("teamctl", "spawn", "c1", "clerk", "Go.", "--model", "claude-haiku-5-5", "--wait")
    assert team.asked("c1")[-1].body["model"] == "claude-haiku-5-5"


def test_a_role_file_that_is_not_text_is_refused_with_its_path(team: Project) -> None:
    path = team.write(".team/agents/odd.md", "")
    path.write_bytes(b"\xff\xfe\x00")
    refused = team.run("teamctl", "spawn", "odette", "odd", "Go.")
    assert refused.status == 1
    assert refused.complaint.endswith(f"{path}: it is not UTF-8; save it as such")
    assert "odette" not in team.do("teamctl", "team")


def test_a_skill_is_listed_and_read_on_demand(team: Project) -> None:
    team.write(
        ".team/skills/release/SKILL.md",
        "---\nname: release\ndescription: How to cut a release.\n---\nTag, then push.\n",
    )
    team.stage.play("sam", use(("load_skill", {"name": "release"})), say("Done."))
    team.do("teamctl", "spawn", "sam", "clerk", "Release.", "--wait")
    first, second = team.asked("sam")
    assert "- release: How to cut a release." in first.asked.system
    assert "Tag, then push." not in first.asked.system
    assert "Tag, then push." in second.asked.last_results[0].text


def test_a_finished_job_wakes_its_teammate_and_is_reported_once(team: Project) -> None:
    """Row "one `task` tool, three modes … background (job id, output, stop)": the commands."""
    team.stage.play(
        "jack",
        use(("background_run", {"command": "echo begun; until [ -e go ]; do sleep 0.05; done"})),
        say("I wait."),
        use(("check_background", {"job_id": "1"})),
        say("It is over."),
    )
    team.do("teamctl", "spawn", "jack", "builder", "Build.", "--wait")
    team.wait_for("jack", "idle", turns=2)
    assert team.asked("jack", least=2)[1].asked.last_results[0].text == "job_id: 1"
    team.write("go", "")
    team.wait_for("jack", "idle", turns=4)
    asked = team.asked("jack")
    assert '<background-job job_id="1" state="exit status 0">' in asked[2].asked.last_text
    assert "begun" in asked[3].asked.last_results[0].text
    assert str(asked[-1].body["messages"]).count("<background-job ") == 1


def test_a_job_that_ended_with_its_teammate_s_process_is_reported_once(team: Project) -> None:
    """Nobody else tells the model that the server it began is gone."""
    team.stage.play("jill", use(("background_run", {"command": "sleep 1000"})), say("It runs."))
    team.do("teamctl", "spawn", "jill", "builder", "Serve.", "--wait")
    os.kill(team.wait_for("jill", "idle", turns=2)["pid"], signal.SIGKILL)
    team.wait_for("jill", "idle", turns=3)
    told = team.asked("jill")[2].asked.last_text
    state = "ended with the process of its teammate"
    assert f'<background-job job_id="1" state="{state}">\nsleep 1000\n</background-job>' in told
    team.do("teamctl", "send", "jill", "Go on.", "--wait")
    team.wait_for("jill", "idle", turns=4)
    assert str(team.asked("jill")[-1].body["messages"]).count("<background-job ") == 1
