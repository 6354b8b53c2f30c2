"""Power cuts in short scenes, at every moment and by every model; every sync is needed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

import teamctl
import teamd
from tests.e2e.harness import opened
from tests.process.powercut.disk import Record, Recording, State
from tests.process.powercut.preload.sitecustomize import SYNCS, WRITES
from tests.process.powercut.scenes import SCENES, Scene
from tests.process.powercut.starts import Facts, cuts, cuts_without, judge_all, sites

pytestmark = pytest.mark.slow


# The number of mixed states at each moment, and the share of moments besides the decisive ones.
_SOME: Final = (1, 0.08)
_ALL: Final = (3, 1.0)


class Recorded:
    """All scenes, each recorded once at its first use."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._known: dict[str, tuple[list[Record], State]] = {}

    def __call__(self, scene: Callable[[Scene], None]) -> tuple[list[Record], State]:
        if scene.__name__ not in self._known:
            with opened(self._folders.mktemp("scene")) as project:
                recording = Recording(project)
                scene(Scene(recording))
                recording.check()
                self._known[scene.__name__] = (recording.records(), recording.before)
        return self._known[scene.__name__]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
@pytest.mark.parametrize(
    ("mixed", "share"), [_SOME, pytest.param(*_ALL, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_a_power_cut_during_a_scene_does_not_lose_acknowledged_data(
    recorded: Recorded, scene: Callable[[Scene], None], mixed: int, share: float
) -> None:
    records, before = recorded(scene)
    facts = Facts()
    found = cuts(records, before, facts, chance=Random(1), mixed=mixed, share=share, decisive=True)
    tally = judge_all(found, facts)
    assert tally.states.total() > 20 * share
    assert tally.complaints == [], tally


@pytest.mark.timeout(600)  # it may have to record every scene first
@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def test_each_sync_of_the_program_is_needed(recorded: Recorded, step: int) -> None:
    """Without any one of the syncs, something acknowledged is lost."""
    open_ones = set(sorted(_places())[::step])
    for decisive in (True, False):  # only a few are left for the check of every moment
        for scene in SCENES:
            if not open_ones:
                return
            records, before = recorded(scene)
            # One scene that needs the sync is enough.
            asked = open_ones.intersection(sites(records))
            open_ones -= {site for site in asked if _loses(site, records, before, decisive)}
    assert not open_ones, "\n".join(sorted(open_ones))


def _loses(site: str, records: list[Record], before: State, decisive: bool) -> bool:
    """Return whether something is lost without the syncs of one line."""
    facts = Facts()
    found = cuts_without(site, records, before, facts, decisive=decisive)
    return bool(judge_all(found, facts, most_complaints=1).complaints)


def _places() -> Iterator[str]:
    """Yield the lines of the program that sync something."""
    names = re.compile(rf"files\.(?:{'|'.join(WRITES)})\b|\b(?:{'|'.join(SYNCS)})\(")
    for package in (teamd, teamctl):
        [folder] = package.__path__
        for path in Path(folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if not names.search(text):  # true for most files, which are not parsed
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and _syncs(node):
                    yield f"{path.relative_to(Path(folder).parent)}:{node.lineno}"


def _syncs(call: ast.Call) -> bool:
    """Return whether a call syncs something, directly or in a function of `files`."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="files"), attr=name) if name in WRITES:
            return not any(
                isinstance(given.value, ast.Constant) and given.arg == "durable"
                for given in call.keywords
            )
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in SYNCS
    return False
