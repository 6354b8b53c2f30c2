"""Hard limits: a team that plays ping-pong for ever never exceeds one, and reports the stop."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from teamd.budget.ledger import Ledger
from teamd.files import files
from tests.e2e.harness import Project
from tests.strict.asked import Asked, Model
from tests.strict.faults import Cut, Status
from tests.strict.replies import Answer, say, use
from tests.strict.server import MODELS
from tests.waiting import wait_until

MAX_TOKENS = 300
# A first call fits under the limit; after an expensive first call, a second does not.
ROOM_FOR_ONE: Final[Mapping[str, float]] = {"teammate_tokens": 20_000}
# A price that ends the game after a few calls, however much the cache saves.
DEAR = '[prices."claude-sonnet-5-5"]\ninput = 0.1\noutput = 100.0\n'
RATES = {
    "input_tokens": 0.1,
    "cache_creation_input_tokens": 0.125,
    "cache_read_input_tokens": 0.01,
    "output_tokens": 100.0,
}


def play_for_ever(project: Project) -> None:
    """Have alice and bob answer each other's mail with mail."""

    def towards(other: str) -> Model:
        def answer(asked: Asked) -> Answer:
            # Mail that arrives while the last reply is being sent is answered, too.
            if asked.last_results and "<inbox>" not in str(asked.messages[-1]):
                return say("Sent.")
            ball = {"to": other, "content": f"ball {len(asked.messages)}"}
            return say("Back to you. " * 20, calls=[("send_message", ball)])

        return answer

    project.stage.act("alice", towards("bob"))
    project.stage.act("bob", towards("alice"))


def configure(project: Project, limits: Mapping[str, float], more: str = "") -> None:
    lines = "".join(f"{key} = {most}\n" for key, most in limits.items())
    project.write("team.toml", f"[model]\nmax_tokens = {MAX_TOKENS}\n[limits]\n{lines}{more}")


def spawn_both(project: Project) -> None:
    project.do("teamctl", "spawn", "bob", "player", "Wait for the ball.")
    project.do("teamctl", "spawn", "alice", "player", "Serve.")


def billed(project: Project, unit: str, name: str | None = None) -> float:
    """Return the tokens or USD of the server's answers, which ledgers must match."""
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
    """Wait until one teammate is paused and the other idle; return the paused one."""

    def stopped() -> bool:
        done = paused(project)
        resting = [name for name in ("alice", "bob") if name not in done]
        return bool(done) and all(rests(project, name) for name in resting)

    wait_until(stopped, timeout_seconds=60, what="the game has ended")
    return paused(project)[0]


def rests(project: Project, name: str) -> bool:
    """Return whether a teammate is at rest; files are checked in the order in which mail moves."""
    if project.mail(name) or files.size(project.paths.taken(name)):
        return False
    records = project.records(name)
    return bool(records) and records[-1]["record"] == "ended"


def last_refusal(project: Project, name: str) -> Any:
    return Ledger(project.paths.ledger).read().refused[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("teammate_tokens", 16_000),
        pytest.param("team_usd", 0.15, marks=pytest.mark.long),
    ],
)
def test_an_endless_exchange_ends_within_one_call_of_its_limit(
    key: str, most: float, project: Project
) -> None:
    """The limit must never be exceeded, and allow every call that fits.

    tests/unit/test_ledger.py covers each limit in each unit.
    """
    who, unit = key.split("_")
    configure(project, {key: most, "talk_wakes": 0}, DEAR)
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
    why = f"the next call does not fit into what is left of limits.{key}: "
    assert reason.startswith(why)
    assert f" in team.toml, then `teamctl resume {name}`" in reason
    assert f"{name} is paused: {why}" in project.mail("lead")

    refused = project.run("teamctl", "resume", name)
    assert refused.status == 1
    assert f"{name} stays paused: {why}" in refused.complaint
    assert len(project.server.requests) == calls

    more = type(most)(most * 1.5)
    configure(project, {key: more, "talk_wakes": 0}, DEAR)
    assert project.do("teamctl", "resume", name) == f"{name} goes on\n"
    wait_until(lambda: len(project.server.requests) > calls, what="the game goes on")
    again = wait_for_the_stop(project)
    assert billed(project, unit, again if who == "teammate" else None) <= more


@pytest.mark.slow
def test_a_limit_below_the_cost_of_one_call_is_refused_with_the_figures(project: Project) -> None:
    """Otherwise every teammate would pause before its first call."""
    configure(project, {"team_usd": 0.001})
    words = (
        "limits.team_usd allows $0.001, less than one call: its longest reply alone, "
        "model.max_tokens = "
    )
    started = project.run("teamd", "start")
    assert started.status == 1
    assert words in started.complaint
    doctor = project.run("teamctl", "doctor")
    assert (doctor.status, doctor.stdout.count(words)) == (1, 1)
    configure(project, {"team_usd": 9.0})
    project.start()
    configure(project, {"team_usd": 0.001})
    reloaded = project.run("teamd", "reload")
    assert reloaded.status == 1
    assert words in reloaded.complaint


def limited(project: Project, limits: Mapping[str, float], more: str = "") -> None:
    """Start a team in which ann is paused at her limit after one call."""
    configure(project, limits, more)
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.wait_for("ann", "idle")
    project.do("teamctl", "send", "ann", "Go on.")
    project.wait_for("ann", "paused")


@pytest.mark.slow
def test_a_teammate_paused_at_a_limit_stays_paused_and_the_lead_is_told_once(
    project: Project,
) -> None:
    """Neither mail nor a restart causes a call or another notice to the lead; no mail is lost."""
    use_up(project, "ann")
    limited(project, ROOM_FOR_ONE)
    calls = len(project.server.requests)
    sent = project.run("teamctl", "send", "ann", "Are you there?")
    assert "ann is paused; the message waits until it goes on" in sent.complaint
    before = pauses(project, "ann")
    project.restart()
    wait_until(lambda: pauses(project, "ann") > before, what="the new process has tried")
    pid = project.wait_for("ann", "paused")["pid"]
    project.run("teamctl", "send", "ann", "And now?")
    wait_until(lambda: "And now?" in project.mail("ann"), what="it waits in the inbox")

    before = pauses(project, "ann")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pauses(project, "ann") > before, what="the next process has tried as well")
    project.wait_for("ann", "paused")
    assert len(project.server.requests) == calls
    assert project.mail("lead").count("ann is paused") == 1

    again = project.run("teamctl", "spawn", "ann", "coder", "Something else.")
    assert again.status == 1
    assert "ann stays paused: the next call does not fit" in again.complaint
    assert "Something else." not in project.mail("ann")

    configure(project, {"teammate_tokens": 90_000})
    project.stage.play("ann", say("I go on."))
    project.do("teamctl", "resume", "ann")
    project.wait_for("ann", "idle")
    last = project.asked("ann", least=1)[-1].asked.last_text
    for words in ("Go on.", "Are you there?", "And now?"):
        assert words in last


@pytest.mark.slow
def test_a_team_limit_that_stops_several_teammates_needs_to_be_raised_only_once(
    project: Project,
) -> None:
    use_up(project, "ann")
    limited(project, {"team_tokens": ROOM_FOR_ONE["teammate_tokens"]})
    project.run("teamctl", "spawn", "bob", "coder", "Go.", "--wait")
    project.wait_for("bob", "paused")
    said = project.do("teamctl", "resume", "ann", "bob", "--tokens", "100000").splitlines()
    assert [line.partition(" ")[0] for line in said] == ["ann", "bob"]
    project.wait_for("bob", "idle")
    again = project.run("teamctl", "resume", "bob", "--tokens", "1")
    assert again.complaint == "teamctl: bob is not paused, it is idle; `teamctl team` shows all"


def use_up(project: Project, name: str) -> None:
    """Have a teammate's first reply use many tokens."""
    project.stage.play(name, say("x" * 40_000))


def figure_in(reason: str) -> int:
    """Return the token limit that a paused teammate asks for."""
    found = re.search(r"raise limits\.\w+_tokens to at least (\d+) in team\.toml", reason)
    assert found is not None, reason
    return int(found[1])


def kill(project: Project, name: str) -> None:
    """Kill a teammate's process, and wait for the next one."""
    pid = project.member(name)["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: project.member(name).get("pid") not in (pid, None), what="a new process")


def pauses(project: Project, name: str) -> int:
    """Return how often a teammate has been paused."""
    return [one["outcome"] for one in project.records(name, "ended")].count("paused")


@pytest.mark.slow
@pytest.mark.parametrize("meanwhile", ["kill", "restart_when_raised"])
def test_the_limit_suggested_to_the_person_is_enough(meanwhile: str, project: Project) -> None:
    """A new process must not reserve more than the process that printed the figure."""
    use_up(project, "ann")
    limited(project, ROOM_FOR_ONE)
    told = project.member("ann")["reason"]
    before = pauses(project, "ann")
    if meanwhile == "kill":
        kill(project, "ann")
        wait_until(lambda: pauses(project, "ann") > before, what="the new process has tried")
        wait_until(lambda: project.member("ann").get("reason") == told, what="it says the same")

    figure = figure_in(told)
    configure(project, {"teammate_tokens": figure - 1})
    refused = project.run("teamctl", "resume", "ann")
    assert (refused.status, figure_in(refused.complaint)) == (1, figure)
    configure(project, {"teammate_tokens": figure})
    if meanwhile == "restart_when_raised":
        project.restart()
    else:
        project.do("teamctl", "resume", "ann")
    project.wait_for("ann", "idle", turns=2)
    assert "Go on." in project.asked("ann", least=1)[-1].asked.last_text
    assert billed(project, "tokens", "ann") <= figure


@pytest.mark.slow
def test_a_teammate_with_budget_for_another_call_keeps_it_after_a_crash_and_a_restart(
    project: Project,
) -> None:
    """A conversation has four times as many bytes as tokens: an estimate by bytes would not fit."""
    most = 32_000
    configure(project, {"teammate_tokens": most})
    use_up(project, "ann")
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.wait_for("ann", "idle")
    kill(project, "ann")
    project.restart()
    project.do("teamctl", "spawn", "ann", "coder", "Go on.", "--wait")
    assert "Go on." in project.asked("ann", least=1)[-1].asked.last_text
    assert most > billed(project, "tokens", "ann") > most / 2


@pytest.mark.slow
def test_the_calls_of_a_subagent_do_not_change_the_estimate_for_its_teammate(
    project: Project,
) -> None:
    """Otherwise each would reset the lead's estimate to its bytes, and stop it far too early."""
    most = 70_000
    configure(project, {"teammate_tokens": most})
    looks = [use(("bash", {"command": f"true {number}"})) for number in range(5)]
    use_up(project, "lead")
    project.start()
    project.do("teamctl", "chat", "Go.")
    project.stage.play("subagent", *looks, say("It is done."))
    project.stage.play("lead", use(("task", {"prompt": "Look."})), say("So it is."))
    assert project.do("teamctl", "chat", "Have it looked at.") == "So it is.\n"
    assert len(project.asked("subagent")) == 6
    last = project.asked("lead", least=1)[-1].asked.body
    in_bytes = len(json.dumps([last["tools"], last["messages"]]))
    assert in_bytes + billed(project, "tokens") / 2 > most, "its bytes would have fitted as well"


def test_a_spawn_works_after_a_reload_has_raised_the_limit(project: Project) -> None:
    """The paused process never resumes; without a new one the status would stay `working`."""
    use_up(project, "ann")
    limited(project, ROOM_FOR_ONE)
    configure(project, {"teammate_tokens": 90_000})
    reloaded = project.do("teamd", "reload")
    assert "limits.teammate_tokens has changed: counts from the next model call on" in reloaded
    project.do("teamctl", "spawn", "ann", "coder", "Something else.", "--wait")
    assert "Something else." in project.asked("ann", least=1)[-1].asked.last_text


def test_raising_a_team_limit_for_one_teammate_raises_it_for_all(project: Project) -> None:
    """Even for processes forked under the old limit."""
    configure(project, {"team_tokens": 22_000})
    project.start()
    project.do("teamctl", "spawn", "bob", "coder", "Go.", "--wait")
    use_up(project, "ann")
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.wait_for("ann", "idle")
    project.do("teamctl", "send", "ann", "Go on.")
    project.wait_for("ann", "paused")
    pid = project.wait_for("bob", "idle")["pid"]
    configure(project, {"team_tokens": 300_000})
    project.do("teamctl", "resume", "ann")
    project.wait_for("ann", "idle", turns=2)
    project.do("teamctl", "send", "bob", "Go on.")
    assert project.wait_for("bob", "idle", turns=2)["pid"] == pid


def test_resume_names_the_teammates_that_cannot_be_resumed(project: Project) -> None:
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    project.wait_for("ann", "idle")
    idle = project.run("teamctl", "resume", "ann")
    assert (idle.status, idle.complaint) == (
        1,
        "teamctl: ann is not paused, it is idle; `teamctl team` shows all",
    )
    unknown = project.run("teamctl", "resume", "bbo")
    assert unknown.status == 1
    assert "no teammate named 'bbo'; the team is: ann" in unknown.complaint
    project.write("team.toml", "[limits]\nteam_usd = nan\n")
    mistaken = project.run("teamctl", "resume", "ann")
    assert mistaken.status == 1
    assert "limits.team_usd must be a number of USD from 0, for no limit" in mistaken.complaint
    project.write("team.toml", "")
    project.do("teamd", "stop")
    alone = project.run("teamctl", "resume", "ann")
    assert alone.status == 3
    assert alone.complaint.endswith("; start it with `teamd start`")


@pytest.mark.slow
def test_an_interrupted_call_counts_in_full_and_an_error_costs_nothing(project: Project) -> None:
    configure(project, {})
    project.server.faults.push(Status(529), Cut(after=4), None)
    project.start()
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--wait")
    row = used(project, "ann")
    assert (row["calls"], row["assumed_calls"]) == (2, 1)
    assert row["output_tokens"] > MAX_TOKENS
    assert row["tokens"] > billed(project, "tokens", "ann")
    shown = project.do("teamctl", "usage")
    assert "1 calls were cut off, or their server did not tell what they took" in shown


@pytest.mark.slow
def test_usage_shows_each_teammate_and_the_total_with_and_without_limits(project: Project) -> None:
    empty = project.run("teamctl", "usage")
    assert empty.status == 1
    assert empty.complaint.endswith("or above it; `teamd start` makes one here")
    configure(project, {"teammate_tokens": 100_000, "team_usd": 2.0}, DEAR)
    project.start()
    for name in ("ann", "bob"):
        project.do("teamctl", "spawn", name, "coder", "Go.", "--wait")
    project.do("teamd", "stop")
    heading, *lines = [line.split() for line in project.do("teamctl", "usage").splitlines()]
    assert heading == ["NAME", "CALLS", "IN", "READ", "WRITTEN", "OUT", "COST", "LIMIT", "USED"]
    assert [line[0] for line in lines] == ["ann", "bob", "total"]
    assert lines[0][7:9] == ["100k", "tokens"]
    assert lines[2][7] == "$2.00"
    assert all(line[6].startswith("$0.0") and line[-1].endswith("%") for line in lines)
    document = json.loads(project.do("teamctl", "usage", "--json"))
    assert list(document) == ["members", "total"]
    total = document["total"]
    assert total["tokens"] == billed(project, "tokens")
    assert total["usd"] == pytest.approx(billed(project, "usd"))
    assert total["share"] == pytest.approx(total["usd"] / 2.0)
    row = document["members"][0]
    assert row["input_tokens"] >= row["cache_read_tokens"] + row["cache_write_tokens"] > 0
    shown = json.loads(project.do("teamctl", "team", "--json"))["members"]
    assert [member["usd"] for member in shown] == [m["usd"] for m in document["members"]]


def test_an_unknown_price_is_shown_as_unknown_and_not_as_zero(
    project: Project,
) -> None:
    configure(project, {}, '[prices."claude-haiku-5-5"]\ninput = 0\noutput = 0\n')
    project.start()
    project.server._terms = replace(project.server._terms, models=("homemade", *MODELS))
    project.do("teamctl", "spawn", "ann", "coder", "Go.", "--model", "homemade", "--wait")
    project.do("teamctl", "spawn", "bob", "coder", "Go.", "--model", "claude-haiku-5-5", "--wait")
    assert used(project, "ann")["usd"] is None
    assert used(project, "bob")["usd"] == 0
    lines = project.do("teamctl", "usage").splitlines()
    assert lines[1].split()[6] == "?"
    assert lines[2].split()[6] == "$0.00"
    assert "the price of 1 calls is not known" in lines[-1]
    assert project.do("teamctl", "team").splitlines()[1].split()[-1] == "?"
