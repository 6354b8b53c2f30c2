"""A command in a sentence is given with the team that the sentence is about."""

from __future__ import annotations

import pytest

from teamd.messages import add_team_option


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("start it with `teamd start`", "start it with `teamd --team web start`"),
        ("`teamctl spawn bob …` or `teamctl team`",
         "`teamctl --team web spawn bob …` or `teamctl --team web team`"),
        ("`teamctl tasks` shows all", "`teamctl --team web tasks` shows all"),
        ("use `teamctl --team ops …`", "use `teamctl --team ops …`"),
        ("`teamctl create ops`, `teamctl teams`", "`teamctl create ops`, `teamctl teams`"),
        ("teamctl resume bob, or `fuser x`", "teamctl resume bob, or `fuser x`"),
    ],
)  # fmt: skip
def test_commands_between_backticks_name_the_team_once(sentence: str, shown: str) -> None:
    assert add_team_option(sentence, "web") == shown
    assert add_team_option(shown, "web") == shown
    assert add_team_option(sentence, None) == sentence
