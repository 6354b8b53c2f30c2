"""A task of days: clearings, a summary, a restart, an upgrade and an edited role, without a 400."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import teamd
from tests.e2e.harness import Project, opened
from tests.e2e.stories import TASK, demands
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say, use
from tests.waiting import wait_until

OUTPUT_BYTES: Final = 49_000
STEPS: Final = 50  # 612,500 tokens of output
STEP: Final = re.compile(r"(?:step|through) (\d+)\b")
TOKENS_PER_STEP: Final = OUTPUT_BYTES // 4
NEW: Final = "Runs a command in the next version of this program. "
# Runs the commands of another tree, even when teamd re-executes itself to hide its memory.
PROGRAM: Final = """
import os, sys
sys.path.insert(0, {tree!r})
execve, program = os.execve, sys.orig_argv[2]
def start_again(path, argv, env):
    execve(path, [sys.executable, "-c", program, *argv[argv.index("start"):]], env)
os.execve = start_again
from teamd.__main__ import main
main()
"""


class Stepper:
    """A model that follows the steps in its conversation, and records its mail."""

    def __init__(self) -> None:
        self.done = 0
        self.roles: set[str] = set()

    def __call__(self, asked: Asked) -> Answer:
        self.done = max((int(number) for number in STEP.findall(asked.heard)), default=0)
        self.roles |= set(re.findall(r"Mark (\w+)", asked.heard + asked.system))
        if demands(asked):
            return say(f"I have come through {self.done}.")
        if "sent to lead" in asked.heard:
            return say("All is done.")
        if self.done >= STEPS:
            found = re.search(r"The password is (\w+)", asked.heard)
            told = f"It is {found[1] if found else 'forgotten'}."
            return use(("send_message", {"to": "lead", "content": told}))
        command = f"echo {self.done + 1} >> steps; head -c {OUTPUT_BYTES} /dev/zero | tr '\\0' x"
        calls = ("bash", {"command": f"{command}; echo; echo step {self.done + 1}"})
        return use(calls, thinking=f"Hm {self.done}.")


def upgrade(project: Project) -> None:
    """Restart teamd as a later version whose `bash` has another description."""
    tree = project.root / "next"
    shutil.copytree(Path(teamd.__file__).parent, tree / "teamd")
    shell = tree / "teamd/tools/shell.py"
    source = shell.read_text()
    changed = re.sub(r'(\n    description[^"]*")', rf"\g<1>{NEW}", source, count=1)
    assert changed != source
    shell.write_text(changed)
    project.do("teamd", "stop")
    program = PROGRAM.format(tree=str(tree))
    project.begin(sys.executable, "-c", program, "start", "--foreground", installed=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "terms",
    [{}, pytest.param({"no_page_status": 404}, marks=pytest.mark.long)],
    ids=["API", "plain server"],
)
def test_a_task_of_600_000_tokens_is_done_without_a_refused_request(
    tmp_path: Path, terms: dict[str, Any]
) -> None:
    stepper = Stepper()
    with opened(tmp_path, **terms) as project:
        project.write(
            "team.toml",
            "[model]\ncontext_tokens = 200000\n[limits]\ncalls_per_wake = 1000\n"
            "[mail]\ndurability = 'os'\n[tools]\noutput_bytes = 50000\n",
        )
        role = project.write(".team/agents/stepper.md", "Mark first.")
        project.stage.act("alice", stepper)
        project.start()
        project.do("teamctl", "spawn", "alice", "stepper", TASK)

        def come(step: int) -> None:
            wait_until(lambda: stepper.done >= step, timeout_seconds=90, what=f"step {step}")

        come(12)
        project.restart()
        come(20)
        role.write_text("Mark second.")
        come(28)
        upgrade(project)
        come(35)
        project.do("teamctl", "send", "alice", "Sum up.", "--type", "compact")
        wait_until(
            lambda: "It is XYZZY." in project.mail("lead"), timeout_seconds=90, what="the password"
        )
        project.wait_for("alice", "idle")
        assert project.refusals() == []
        done = [int(line) for line in (project.folder / "steps").read_text().split()]
        assert sorted(set(done)) == list(range(1, STEPS + 1))
        assert len(done) * TOKENS_PER_STEP > 600_000
        assert len(project.records("alice", "cleared")) >= 2
        assert len(project.records("alice", "summary")) == 1
        sent = json.dumps([asked.body for asked in project.asked("alice")])
        assert NEW in sent, "the upgrade has changed a tool"
        assert '"signature"' in sent
        assert stepper.roles == ({"first"} if terms else {"first", "second"})
        assert project.mail("lead").count("It is XYZZY.") == 1
