"""Limits with a stop: a team that plays ping-pong for ever never exceeds one, and says so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from teamd.store.ledger import Ledger
from tests.strict.replies import say
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.harness import Project
    from tests.strict.asked import Asked, Model
    from tests.strict.replies import Answer

MAX_TOKENS = 300
# What `prices.toml` says of the default model, in USD per million tokens.
RATES = {
    "input_tokens": 2.0,
    "cache_creation_input_tokens": 2.5,
    "cache_read_input_tokens": 0.1,
    "output_tokens": 10.0,
}


def play_for_ever(project: Project) -> None:
    """Have alice and bob answer each other's mail by mail."""

    def towards(other: str) -> Model:
        def answer(asked: Asked) -> Answer:
            if asked.last_results:
                return say("Sent.")
            ball = {"to": other, "content": f"ball {len(asked.messages)}"}
            return say("Back to you.", calls=[("send_message", ball)])

        return answer

    project.stage.act("alice", towards("bob"))
    project.stage.act("bob", towards("alice"))


def configure(project: Project, limits: dict[str, float], more: str = "") -> None:
    lines = "".join(f"{key} = {most}\n" for key, most in limits.items())
    project.write("team.toml", f"[model]\nmax_tokens = {MAX_TOKENS}\n[limits]\n{lines}{more}")


def spawn_both(project: Project) -> None:
    project.do("teamctl", "spawn", "bob", "player", "Wait for the ball.")
    project.do("teamctl", "spawn", "alice", "player", "Serve.")


def billed(project: Project, unit: str, name: str | None = None) -> float:
    """What the server has answered, in tokens or USD: the truth that no ledger can bend."""
    usages: list[dict[str, Any]] = [
        one.message["usage"]
        for one in project.server.requests
        if one.message is not None and name in (None, one.asked.name)
    ]
    if unit == "tokens":
        return float(sum(usage[key] for usage in usages for key in RATES))
    return float(sum(usage[key] * rate for usage in usages for key, rate in RATES.items())) / 1e6


def used(project: Project, name: str) -> dict[str, Any]:
    document = json.loads(project.do("teamctl", "usage", "--json"))
    rows = {row["name"]: row for row in document["members"]}
    return dict(document["total"] if name == "total" else rows[name])


def paused(project: Project) -> list[str]:
    return [name for name in ("alice", "bob") if project.member(name).get("status") == "paused"]


def wait_for_the_stop(project: Project) -> str:
    """Wait until one is paused and the other has nothing to do; who is paused."""

    def stopped() -> bool:
        states = {project.member(name).get("status") for name in ("alice", "bob")}
        return states in ({"paused"}, {"paused", "idle"})

    wait_until(stopped, timeout_seconds=60, what="the game has ended")
    return paused(project)[0]


def last_refusal(project: Project, name: str) -> Any:
    return Ledger(project.paths.ledger).read().refused[name]


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("teammate_tokens", 30_000),
        ("team_tokens", 60_000),
        ("teammate_usd", 0.06),
        ("team_usd", 0.1),
    ],
)
def test_a_game_for_ever_ends_within_the_limit_and_less_than_one_call_short_of_it(
    key: str, most: float, project: Project
) -> None:
    """It must never be exceeded, and be of use up to the last call that fits."""
    who, unit = key.split("_")
    configure(project, {key: most})
    play_for_ever(project)
    project.start()
    spawn_both(project)
    name = wait_for_the_stop(project)
    spender = name if who == "teammate" else "total"
    truth = billed(project, unit, name if who == "teammate" else None)
    assert truth <= most
    assert used(project, spender)[unit] == pytest.approx(truth)
    wanted = getattr(last_refusal(project, name), unit)
    assert truth + float(wanted) > most, "another call would have fitted"
    calls = len(project.server.requests)
    assert calls > 4, "no game was played"

    reason = project.member(name)["reason"]
    assert reason.startswith(f"limits.{key} is reached: ")
    assert reason.endswith(f" in team.toml, then `teamctl resume {name}`")
    assert f"{name} is paused: limits.{key} is reached" in project.mail("lead")

    refused = project.run("teamctl", "resume", name)
    assert refused.status == 1
    assert f"{name} stays paused: limits.{key} is reached" in refused.complaint
    assert len(project.server.requests) == calls

    configure(project, {key: most * 2})
    assert project.do("teamctl", "resume", name) == f"{name} goes on\n"
    wait_until(lambda: len(project.server.requests) > calls, what="the game goes on")
    again = wait_for_the_stop(project)
    truth = billed(project, unit, again if who == "teammate" else None)
    assert truth <= most * 2
