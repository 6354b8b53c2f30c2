"""All views of a running team show the same."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

import pytest

from tests.e2e.browser import Browser, served
from tests.e2e.harness import Project
from tests.unit.screen import Shown, shown

# Each member with its state and turns, and those that wait for the person, the oldest first.
Picture = tuple[dict[str, tuple[str, str]], list[str]]

NAMES: Final = ("ann", "bob", "cid", "dan")
ROLE: Final = "coder"
# Every command of Dan's needs permission. Prompts differ, since a teammate does not get the same
# text twice in a row.
TURNS: Final = {"dan": [{"use": [["bash", {"command": "true"}]]}, {"say": "Done."}] * 200}
RULES: Final = (
    '[[permission]]\ntool = "bash"\nthen = "ask"\n'
    "[supervision]\ncrashes = 1000\n[mail]\ndurability = 'os'\n"
)
ON_THE_PAGE: Final = """
const cell = (row, head) => row.querySelector(`[data-head=${head}]`).innerText.trim()
const rows = [...document.querySelectorAll('main tbody tr')]
const asks = [...document.querySelectorAll('.requests > li p a')].map((one) => one.innerText)
const found = rows.map((row) => [row.dataset.key, [cell(row, 'State'), cell(row, 'Turns')]])
return [Object.fromEntries(found), asks]
"""


def told(project: Project) -> Picture:
    """Return the picture from `team --json`."""
    found = json.loads(project.do("teamctl", "team", "--json"))
    members = {one["name"]: (one["state"], str(one["turns"])) for one in found["members"]}
    return members, [one["from"] for one in found["requests"] if one["yours"]]


def on_top(screen: Shown) -> Picture:
    """Return the picture from `top`."""
    lines = screen.lines
    at = next(n for n, line in enumerate(lines) if line.startswith("NAME"))
    turns = lines[at].index("TURNS")
    rows = [line for line in lines[at + 1 :] if line.split()[1:2] == [ROLE]]
    members = {row.split()[0]: (row.split()[2], row[turns : turns + 5].strip()) for row in rows}
    # The row of a request that has just gone is empty until the next layout: look again.
    asks = [line for line in lines[2:at] if not line.startswith("[Team]")]
    return members, [(line.split() or ["nobody"])[0] for line in asks]


def on_the_page(page: Browser) -> Picture:
    """Return the picture from the page."""
    members, asks = page.run(ON_THE_PAGE)
    return {name: (state, turns) for name, (state, turns) in members.items()}, asks


def step(project: Project, chance: random.Random) -> None:
    """Apply a random change to a teammate; it may be refused."""
    name = chance.choice(NAMES)
    match chance.choice(("spawn", "spawn", "kill", "pause", "resume", "shutdown", "answer")):
        case "spawn":
            project.run("teamctl", "spawn", name, ROLE, f"Go {chance.random()}.")
        case "kill":
            if pid := project.member(name).get("pid"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        case "answer":
            project.run("teamctl", chance.choice(("approve", "reject")), "dan")
        case verb:
            project.run("teamctl", verb, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps", [6, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_no_view_contradicts_another(
    project: Project, steps: int, request: pytest.FixtureRequest
) -> None:
    """Compared while nothing changes: `team --json` says the same before and after."""
    chance = random.Random(steps)
    project.write("turns.json", json.dumps({"turns": TURNS, "pace_seconds": 0.05}))
    project.write("team.toml", f'{RULES}[model]\nscript = "turns.json"\n')
    project.start()
    with ExitStack() as opened:
        looks: list[Callable[[Shown], Picture]] = [on_top]
        if steps > 6:  # a browser takes seconds to start
            page: Browser = request.getfixturevalue("browser")
            page.open(opened.enter_context(served(project)).link)
            page.see("Nobody is in the team yet")
            looks.append(lambda _: on_the_page(page))
        with shown(project.paths, size=(120, 30)) as screen:
            for number in range(steps):
                step(project, chance)
                for look in looks:
                    _agrees(project, screen, look, f"step {number}: {look}")


def _agrees(project: Project, screen: Shown, look: Callable[[Shown], Picture], what: str) -> None:
    for _ in range(100):
        before = told(project)
        screen.rest(0.5)
        seen = look(screen)
        if before == seen == told(project):
            return
    pytest.fail(f"{what}: {seen} is not {before}")
