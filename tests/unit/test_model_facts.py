"""The facts of a model: read from any server's answer, kept for a day, and its retirement."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.files.paths import TeamPaths
from teamd.model_server.facts import EFFORTS, UNKNOWN, ModelFacts
from teamd.model_server.pages import KEPT_SECONDS, keep, read_kept, warn_of_retirements
from tests.strict.rules import Terms, entry

NOW = datetime(2026, 11, 28, tzinfo=UTC)
SERVER, MODEL = "http://localhost:1", "claude-sonnet-5-5"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


def page(model: str = MODEL, **more: Any) -> dict[str, Any]:
    """The page of a model, as the strict server has it."""
    terms = Terms(keys=(), models=(model,), context_tokens=1_000_000, output_tokens=128_000)
    return {**entry(model, terms), **more}


def test_a_complete_page_of_the_newest_generation_is_read() -> None:
    assert ModelFacts.read(MODEL, page()) == ModelFacts(
        name=MODEL,
        context_tokens=1_000_000,
        output_tokens=128_000,
        efforts=frozenset(EFFORTS),
        adaptive_thinking=True,
        system_messages=True,
        lifecycle="active",
    )


@pytest.mark.parametrize(
    ("model", "efforts", "adaptive", "system"),
    [
        ("claude-opus-5-5", 5, True, True),
        ("claude-fable-5-1", 5, True, True),
        ("claude-sonnet-5", 5, True, True),
        ("claude-opus-4-8", 5, True, True),
        ("claude-opus-4-7", 5, True, False),
        ("claude-sonnet-4-6", 4, True, False),
        ("claude-opus-4-5-20251101", 3, False, False),
        ("claude-haiku-4-5-20251001", 0, False, False),
        ("qwen3-coder", 0, False, False),
    ],
)
def test_each_generation_has_its_own_facts(
    model: str, efforts: int, adaptive: bool, system: bool
) -> None:
    found = ModelFacts.read(model, page(model))
    assert (len(found.efforts), found.adaptive_thinking) == (efforts, adaptive)
    assert found.system_messages == system


def test_an_alias_has_the_generation_of_its_model() -> None:
    found = ModelFacts.read("sonnet-latest", page())
    assert (found.name, found.system_messages) == ("sonnet-latest", True)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "<html>",
        {},
        {"id": MODEL, "object": "model", "owned_by": "anthropic"},
        {"id": 5, "capabilities": None},
        {"id": MODEL, "capabilities": "all"},
        {"id": MODEL, "capabilities": {"effort": True, "thinking": {"types": ["adaptive"]}}},
        {"id": "claude-5", "capabilities": {"effort": {"low": {"supported": "true"}}}},
        {"max_input_tokens": "200000", "max_tokens": True, "lifecycle": 3},
        {"max_input_tokens": 999, "max_tokens": 0, "retires_at": 1_800_000_000},
        {"max_input_tokens": 10**30, "max_tokens": -1, "retires_at": "soon"},
    ],
)
def test_an_invalid_page_has_no_facts(answer: Any) -> None:
    assert ModelFacts.read(MODEL, answer) == ModelFacts(name=MODEL)


@given(JSON)
def test_a_missing_answer_means_unknown_and_is_not_an_error(answer: Any) -> None:
    ModelFacts.read(MODEL, answer)
    ModelFacts.read(MODEL, {**page(), "capabilities": answer, "retires_at": answer})


def test_a_page_may_be_incomplete() -> None:
    found = ModelFacts.read("local", {"max_input_tokens": 32_768})
    assert found == ModelFacts(name="local", context_tokens=32_768)


@pytest.mark.parametrize(
    ("lifecycle", "days", "said"),
    [
        ("active", None, None),
        ("active", 61, None),
        ("active", 60, "retires on 2027-01-27"),
        ("deprecated", None, "is deprecated and will retire"),
        ("deprecated", 300, "retires on 2027-09-24"),
        ("deprecated", -1, "was due to retire on 2026-11-27"),
        ("retired", -1, "has retired, and its server refuses requests"),
        ("", 3, "retires on 2026-12-01"),
    ],
)
def test_a_retirement_is_announced_sixty_days_before(
    lifecycle: str, days: int | None, said: str | None
) -> None:
    at = None if days is None else (NOW + timedelta(days)).isoformat()
    facts = ModelFacts.read("old", {"lifecycle": lifecycle, "retires_at": at})
    sentence = said and f"the model old {said}; choose another one, see `teamctl help models`"
    assert facts.warn_of_retirement(NOW) == sentence


def test_a_time_without_a_zone_is_taken_as_utc() -> None:
    facts = ModelFacts.read("old", {"retires_at": "2026-12-01T00:00:00"})
    assert facts.retires_at == datetime(2026, 12, 1, tzinfo=UTC)


def test_a_page_is_stored_for_its_model_and_server(tmp_path: Path) -> None:
    paths = TeamPaths(tmp_path / ".team")
    assert read_kept(paths, SERVER, MODEL) is None
    assert keep(paths, SERVER, MODEL, page()) == read_kept(paths, SERVER, MODEL)
    assert read_kept(paths, SERVER, MODEL) == ModelFacts.read(MODEL, page())
    assert read_kept(paths, "http://localhost:2", MODEL) is None
    assert read_kept(paths, SERVER, "claude-opus-5-5") is None


def test_a_server_without_pages_is_not_asked_again_at_once(tmp_path: Path) -> None:
    paths = TeamPaths(tmp_path / ".team")
    keep(paths, SERVER, "qwen", {})
    assert read_kept(paths, SERVER, "qwen") == ModelFacts(name="qwen") != UNKNOWN


@pytest.mark.parametrize("age", [KEPT_SECONDS + 1, -3600])
def test_a_page_is_asked_for_again_after_a_day(tmp_path: Path, age: float) -> None:
    """Also a page with a future date, since the clock was set back."""
    paths = TeamPaths(tmp_path / ".team")
    keep(paths, SERVER, MODEL, page())
    (file,) = paths.models.iterdir()
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "asked": time.time() - age}))
    assert read_kept(paths, SERVER, MODEL) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"server": 1}', b"\xff", b"[" * 100_000])
def test_a_damaged_page_is_asked_for_again(tmp_path: Path, data: bytes) -> None:
    paths = TeamPaths(tmp_path / ".team")
    keep(paths, SERVER, MODEL, page())
    (file,) = paths.models.iterdir()
    file.write_bytes(data)
    assert read_kept(paths, SERVER, MODEL) is None


def test_an_overlong_page_is_not_stored(tmp_path: Path) -> None:
    paths = TeamPaths(tmp_path / ".team")
    assert keep(paths, SERVER, MODEL, page(more="x" * 100_000)) == ModelFacts(name=MODEL)
    (file,) = paths.models.iterdir()
    assert json.loads(file.read_bytes())["page"] == {}


def test_each_model_that_retires_is_named_once(tmp_path: Path) -> None:
    paths = TeamPaths(tmp_path / ".team")
    keep(paths, SERVER, MODEL, page())
    keep(paths, SERVER, "old", {"lifecycle": "deprecated"})
    said = warn_of_retirements(paths, SERVER, [MODEL, "old", "never asked for"])
    assert [one.partition(";")[0] for one in said] == [
        "the model old is deprecated and will retire"
    ]
