"""The changes that `teamd reload` reports."""

from __future__ import annotations

from dataclasses import replace

from teamd.settings import Settings, Teammate, changes
from teamd.settings.schema import Limits, ModelSettings, Permission, PriceSettings, ToolSettings


def test_changes_are_dotted_keys() -> None:
    alice = Teammate(name="alice", role="coder", prompt="work")
    bob = Teammate(name="bob", role="coder", prompt="work")
    carol = Teammate(name="carol", role="coder", prompt="work")
    old = Settings(teammates=(alice, bob))
    new = Settings(
        limits=Limits(team_usd=5.0),
        prices={"small": PriceSettings(input=1.0, output=2.0)},
        model=ModelSettings(cache=False, max_tokens=5),
        tools=ToolSettings(env=()),
        teammates=(carol, replace(alice, prompt="rest", model="small")),
        permissions=(Permission(tool="bash", then="deny"),),
    )
    assert changes(old, old) == []
    assert changes(old, Settings(teammates=(bob, alice))) == []
    assert changes(old, new) == [
        "model.max_tokens",
        "model.cache",
        "limits.team_usd",
        "tools.env",
        "prices.small",
        "teammate.alice.prompt",
        "teammate.alice.model",
        "teammate.bob",
        "teammate.carol",
        "permission",
    ]
