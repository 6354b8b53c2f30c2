"""A team whose model has a small context, and work that outgrows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from teamd.agent.conversation.summary import DEMAND
from tests.e2e.harness import Project, opened
from tests.strict.asked import Asked, Model
from tests.strict.exchange import Accepted
from tests.strict.replies import Answer, say, use

CONTEXT = 6000  # tokens; tools and system prompt take a good third of them
TASK = "Do every step, one command each. The password is XYZZY; mail it to lead in the end."
STEP = re.compile(r"(?:step|through) (\d+)\b")
OUTPUT_BYTES = 3000


@contextmanager
def small(
    root: Path,
    settings: str = f"context_tokens = {CONTEXT}",
    *,
    context_tokens: int = CONTEXT,
    no_page_status: int | None = None,
) -> Iterator[Project]:
    """A project whose model has a small context, and whose settings say so."""
    with opened(root, context_tokens=context_tokens, no_page_status=no_page_status) as project:
        project.write(
            "team.toml",
            f"[model]\n{settings}\n[limits]\ncalls_per_wake = 1000\n"
            "[supervision]\ncrashes = 1000\n[mail]\ndurability = 'os'\n",
        )
        yield project


def demands(asked: Asked) -> bool:
    return asked.last_text.endswith(DEMAND)


def steps(last: int) -> Model:
    """Do the steps by what the conversation tells of those done, and by nothing else."""

    def answer(asked: Asked) -> Answer:
        heard = asked.heard
        done = max((int(number) for number in STEP.findall(heard)), default=0)
        if demands(asked):
            return say(f"I have come through {done}.")
        if "sent to lead" in heard:
            return say("All is done.")
        if done >= last:
            found = re.search(r"The password is (\w+)", heard)
            password = found[1] if found else "forgotten"
            return use(("send_message", {"to": "lead", "content": f"It is {password}."}))
        command = f"echo {done + 1} >> steps; head -c {OUTPUT_BYTES} /dev/zero | tr '\\0' x; "
        return use(("bash", {"command": f"{command} echo; echo step {done + 1}"}), thinking="Hm.")

    return answer


def first_text(accepted: Accepted) -> str:
    return str(accepted.asked.messages[0]["content"][0]["text"])


def summarised(project: Project) -> list[Accepted]:
    """Alice's requests that begin with a summary."""
    return [one for one in project.asked("alice") if "<summary>" in first_text(one)]
