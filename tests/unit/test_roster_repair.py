"""A rebuilt roster takes a member's facts from the opening record of its conversation."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamd.agent.conversation.conversation import Conversation
from teamd.agent.conversation.prompts import system_prompt
from teamd.files.paths import TeamPaths
from teamd.recovery import rebuild_team
from teamd.transcript.file import Transcript
from teamd.transcript.records import Opened


@pytest.mark.parametrize("plan", [True, False])
@pytest.mark.parametrize("above", ["lead", "lead@project"])
def test_role_plan_and_lead_are_restored(tmp_path: Path, above: str, *, plan: bool) -> None:
    paths = TeamPaths(tmp_path / ".teams" / "web")
    paths.create()
    described = Opened(name="bob", role="coder", team="web", plan=plan)
    prompt = system_prompt(described, workspace=tmp_path, above=above)
    Conversation(Transcript(paths.transcript("bob"), durable=False)).open(Opened(system=prompt))
    (bob,) = rebuild_team(paths).members
    assert (bob.role, bob.plan) == ("coder", plan)
    assert bob.spawned_by == (None if above == "lead" else above)


def test_facts_in_the_record_are_restored_without_the_prompt(tmp_path: Path) -> None:
    """The wording of the prompt does not matter."""
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    opened = Opened(system="Hello.", role="coder", plan=True, spawned_by="lead@project")
    Conversation(Transcript(paths.transcript("bob"), durable=False)).open(opened)
    (bob,) = rebuild_team(paths).members
    assert (bob.role, bob.plan, bob.spawned_by) == ("coder", True, "lead@project")
