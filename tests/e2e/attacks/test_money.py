"""Agents that waste money: a default team stops at its daily limit, and idle talk is held."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from teamd import control
from teamd.budget import days
from teamd.budget.ledger import Ledger
from teamd.control import ControlRequest
from teamd.errors import ExitCode
from teamd.files import files
from teamd.settings import Settings
from tests.e2e.harness import Project
from tests.strict.asked import Asked, Model
from tests.strict.replies import Answer, say, use
from tests.strict.server import MODELS
from tests.waiting import wait_until

LIMIT: Final = Settings().limits.team_usd_per_day
MOST: Final = Settings().limits.talk_wakes
# At these prices the default limit lasts for some twenty calls.
RATES: Final = {
    "input_tokens": 0.1,
    "cache_creation_input_tokens": 0.125,
    "cache_read_input_tokens": 0.01,
    "output_tokens": 10_000.0,
}
DEAR: Final = """
[model]
max_tokens = 100
[prices."claude-sonnet-5-5"]
input = 0.1
output = 10000.0
"""
HELD: Final = "did nothing but write mail"


def towards(other: str) -> Model:
    """Answer each mail with mail, and end the turn once it is sent.

    A teammate that was killed may get mail together with the result of its call.
    """

    def answer(asked: Asked) -> Answer:
        if "Wait for mail." in asked.last_text:
            return say("I wait.")
        results = [result.name for result in asked.last_results]
        if results == ["send_message"] and "Thanks" not in asked.last_text:
            return say("Sent.")
        return use(("send_message", {"to": other, "content": f"Thanks {len(asked.messages)}!"}))

    return answer


def play(project: Project, first: str, second: str) -> None:
    """Have two teammates answer each other's mail; the first one begins."""
    project.stage.act(first, towards(second))
    project.stage.act(second, towards(first))
    project.do("teamctl", "spawn", second, "player", "Wait for mail.", "--wait")
    project.do("teamctl", "spawn", first, "player", "Begin.")


def wakes(project: Project, name: str) -> int:
    """Return how often mail has woken a teammate."""
    return len(project.records(name, "ended")) - 1  # its prompt woke it as well


def resting(project: Project, *names: str) -> bool:
    """Return whether all these teammates are at rest."""
    kinds = [[record["record"] for record in project.records(name)][-1:] for name in names]
    quiet = all(kind in (["ended"], ["noticed"]) for kind in kinds)
    return quiet and not any(
        files.size(project.paths.taken(name)) or (project.mail(name) and not held(project, name))
        for name in names
    )


def held(project: Project, name: str) -> bool:
    """Return whether a teammate's mail is held: its count is full, even if another was told."""
    return wakes(project, name) >= MOST


def test_two_teammates_that_thank_each_other_stop_and_the_lead_is_told_once(team: Project) -> None:
    """One of them is killed meanwhile; held mail is read once a person wakes the teammate."""
    play(team, "alice", "bob")
    wait_until(lambda: wakes(team, "bob") >= MOST // 2, what="they talk")
    os.kill(team.wait_for_process("alice"), signal.SIGKILL)
    wait_until(lambda: HELD in team.mail("lead"), timeout_seconds=60, what="the lead is told")
    wait_until(lambda: resting(team, "alice", "bob"), what="both rest")
    assert max(wakes(team, "alice"), wakes(team, "bob")) <= 15
    assert team.mail("lead").count(HELD) == 1
    (name,) = [one for one in ("alice", "bob") if team.records(one, "held")]
    other = "alice" if name == "bob" else "bob"
    # It was already idle without a reason; the roster is updated shortly after the transcript.
    wait_until(lambda: HELD in (team.member(name)["reason"] or ""), what="the roster tells why")
    assert HELD in team.do("teamctl", "team")
    assert team.mail(other).count('"mail_held"') <= 1, "its sender is told once"

    thanks = len(team.asked(name))
    team.stage.act(name, lambda _: say("I stop."))
    team.do("teamctl", "send", name, "No more thanks.")
    last = team.asked(name, least=thanks + 1)[-1].asked.last_text
    assert last.index("Thanks") < last.index("No more thanks.")
    wait_until(lambda: not team.mail(name), what="all of it is read")


@pytest.mark.parametrize("sender", ["alice", "lead", "lead@other", "teamd", "root"])
def test_no_agent_can_raise_a_limit(sender: str, team: Project) -> None:
    """The request names its sender; only a request from the person's command is accepted."""
    team.do("teamctl", "spawn", "gus", "coder", "Go.", "--wait")
    before = Ledger(team.paths.ledger).read().raised
    request = ControlRequest.within(
        30, "resume", arguments={"name": "gus", "usd": 5}, sender=sender
    )
    control.submit(team.paths, request)
    reply = None

    def answered() -> bool:
        nonlocal reply
        reply = control.collect(team.paths, request.id)
        return reply is not None

    wait_until(answered, what="it is answered")
    assert reply is not None
    assert reply.exit_code is ExitCode.REFUSED
    assert reply.text == "only the person can raise a limit; ask for `teamctl resume gus --usd 1`"
    assert Ledger(team.paths.ledger).read().raised == before


@pytest.mark.parametrize(
    "arguments", [{"usd": 0}, {"usd": -1}, {"usd": "1"}, {"usd": True}, {"tokens": 1.5}], ids=str
)
def test_raising_a_limit_by_zero_or_by_no_number_is_refused(
    arguments: dict[str, Any], team: Project
) -> None:
    team.do("teamctl", "spawn", "gus", "coder", "Go.", "--wait")
    asked = {"name": "gus", **arguments}
    reply = control.ask(team.paths, "resume", asked, timeout_seconds=30)
    assert reply.exit_code is ExitCode.REFUSED
    assert re.fullmatch(
        r"(usd must be a number|tokens must be a whole number) above 0.*", reply.text
    )


@pytest.mark.parametrize("option", ["--usd=0", "--usd=-1", "--usd=x", "--tokens=0", "--tokens=1.5"])
def test_raising_a_limit_by_an_invalid_amount_is_wrong_usage(option: str, team: Project) -> None:
    assert team.run("teamctl", "resume", "gus", option).status == 2


def billed(project: Project) -> float:
    """Return the cost in USD by the server's own count, independent of the ledger."""
    usages: list[dict[str, Any]] = [
        one.message["usage"] for one in project.server.requests if one.message is not None
    ]
    return float(sum(usage[key] * rate for usage in usages for key, rate in RATES.items())) / 1e6


def stopped(project: Project) -> bool:
    """Return whether both teammates are paused."""
    return all(project.member(name).get("status") == "paused" for name in ("alice", "bob"))


def has_asked(project: Project, calls: int) -> bool:
    """Return whether the server has received more requests than `calls`."""
    return len(project.server.requests) > calls


def work_for_ever(asked: Asked) -> Answer:
    """Call a tool again and again, never with the same input, at a dollar or less per reply."""
    call = ("task_get", {"task_id": str(len(asked.turns))})
    return say(calls=[call], usage={"output_tokens": random.randint(20, 90)})


@pytest.mark.slow
def test_a_default_team_stays_within_its_daily_limit_even_if_processes_are_killed(
    project: Project,
) -> None:
    """The server counts. The team continues at midnight, or when a person raises the limit."""
    project.write("team.toml", DEAR)
    project.start()
    for name in ("alice", "bob"):
        project.stage.act(name, work_for_ever)
        project.do("teamctl", "spawn", name, "coder", "Work.")
    for calls in (3, 6, 9):
        wait_until(partial(has_asked, project, calls), what="calls are made")
        with suppress(ProcessLookupError):  # it ended on its own meanwhile
            os.kill(project.wait_for_process(random.choice(["alice", "bob"])), signal.SIGKILL)
    wait_until(lambda: stopped(project), timeout_seconds=60, what="the limit stops them")
    assert LIMIT - 6 < billed(project) <= LIMIT
    calls = len(project.server.requests)
    member = project.wait_for("alice", "paused")
    assert member["until"] == days.end_of(days.today())
    assert "limits.team_usd_per_day" in member["reason"]
    assert "; otherwise alice goes on at 00:00 on " in member["reason"]

    for options in ((), ("--tokens", "1000")):
        refused = project.run("teamctl", "resume", "alice", *options)
        assert refused.status == 1
        assert refused.complaint.startswith("teamctl: alice stays paused: ")
    raised = raise_as_told(project, "alice", member["reason"])
    wait_until(partial(has_asked, project, calls), what="it goes on")
    wait_until(lambda: stopped(project), timeout_seconds=60, what="the limit stops it again")
    assert billed(project) <= LIMIT + raised
    project.restart()
    check_usage(project, raised)


def raise_as_told(project: Project, name: str, reason: str) -> float:
    """Run the command that the limit's message suggests; return the amount of the raise."""
    command = re.search(rf"`(teamctl resume {name} --usd (\d+))` raises it for today", reason)
    assert command is not None, reason
    raised = float(command[2])
    assert project.do(*shlex.split(command[1])) == (
        f"{name} goes on; limits.team_usd_per_day is raised by ${raised:.2f} for {days.today()}\n"
    )
    return raised


def check_usage(project: Project, raised: float) -> None:
    """Check that a raise outlived the restart and is shown."""
    total = json.loads(project.do("teamctl", "usage", "--json"))["total"]
    assert (total["usd_per_day_limit"], total["usd_per_day_raised"]) == (LIMIT + raised, raised)
    assert total["usd_today"] >= billed(project) - 0.01
    shown = project.do("teamctl", "usage")
    assert f"${LIMIT + raised:.2f} a day" in shown
    assert f"of the limit of total, `teamctl resume` added ${raised:.2f} a day" in shown


def test_a_model_with_an_unknown_price_is_refused_under_a_limit_on_money(
    project: Project,
) -> None:
    """`spawn` refuses it, mail reports a declared teammate's, until tokens are limited too."""
    declared = '[[teammate]]\nname = "bob"\nrole = "coder"\nprompt = "Go."\nmodel = "homemade"\n'
    project.server._terms = replace(project.server._terms, models=("homemade", *MODELS))
    project.write("team.toml", f"[limits]\nteam_usd_per_month = 5.0\n{declared}")
    project.start()
    why = (
        "limits.team_usd_per_month is set, and the price of homemade is not known; write "
        '[prices."homemade"] with input and output, in USD per million tokens, or set '
        "limits.team_tokens_per_day, in team.toml, then try again"
    )
    refused = project.run("teamctl", "spawn", "ann", "coder", "Go.", "--model", "homemade")
    assert (refused.status, refused.complaint) == (ExitCode.REFUSED, f"teamctl: {why}")
    assert json.dumps(why)[1:-1] in project.mail("lead")
    usage = json.loads(project.do("teamctl", "usage", "--json"))["total"]
    assert (usage["usd_per_month_limit"], usage["usd_this_month"]) == (5, 0)
    limits = "[limits]\nteam_usd_per_month = 5.0\nteam_tokens_per_day = 90000\n"
    project.write("team.toml", limits + declared)
    project.do("teamd", "reload")
    assert project.run("teamctl", "spawn", "ann", "coder", "Go.", "--model", "homemade").status == 0
    project.wait_for("ann", "idle", turns=1)


def test_a_default_team_starts_a_model_with_an_unknown_price_and_warns(
    project: Project,
) -> None:
    """Local models have no price; the warning names the limit to set."""
    declared = '[[teammate]]\nname = "bob"\nrole = "coder"\nprompt = "Go."\nmodel = "homemade"\n'
    project.write("team.toml", declared)
    project.server._terms = replace(project.server._terms, models=("homemade", *MODELS))
    project.start()
    told = (
        "what homemade costs is not known, so limits.team_usd_per_day does not count the calls of "
        "{}; set limits.team_tokens_per_day in team.toml to bound them"
    )
    spawned = project.run("teamctl", "spawn", "ann", "coder", "Go.", "--model", "homemade")
    assert (spawned.status, spawned.complaint) == (0, f"warning: {told.format('ann')}")
    for name in ("ann", "bob"):
        project.wait_for(name, "idle", turns=1)
    assert told.format("bob") in project.mail("lead")
    assert "[limits] team_tokens_per_day bounds them without it" in project.do("teamctl", "usage")
    project.write("team.toml", f"[limits]\nteam_tokens_per_day = 90000\n{declared}")
    project.do("teamd", "reload")
    assert project.run("teamctl", "spawn", "ann", "coder", "Go on.").stderr == ""
