"""A teammate gets its instructions again only if they have changed."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from teamd.agent import build
from teamd.journal import Journal
from teamd.settings.schema import TeamSettings
from tests.unit.life import Life


def test_a_workspace_whose_name_is_not_utf8_leaves_the_instructions_as_they_are(
    tmp_path: Path,
) -> None:
    workspace = tmp_path / os.fsdecode(b"nu\xff")
    workspace.mkdir()
    life = Life(tmp_path)
    life.settings = replace(life.settings, team=TeamSettings(workspace=workspace))
    with closing(Journal(life.paths.log("alice"), "alice")) as journal:
        env = life._environment(-1, journal)
        opening = partial(build._opening, env, ())
        env.conversation.open(opening())
        assert not list(build._find_new_instructions(env.conversation, opening))
        (workspace / "AGENTS.md").write_text("Use tabs.")
        (news,) = build._find_new_instructions(env.conversation, opening)
        env.conversation.record(news)
        assert env.conversation.instructions == news.text
        assert not list(build._find_new_instructions(env.conversation, opening))
