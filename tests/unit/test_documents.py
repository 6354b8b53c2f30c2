"""JSON documents of commands: times as text, and errors that a program can read."""

from __future__ import annotations

import json
import sys

import psutil
import pytest

from teamctl.main import cli
from teamd.command_line.documents import json_is_asked, with_iso_times
from teamd.command_line.run import run
from teamd.files.paths import TeamPaths
from teamd.overview.members import look_at
from teamd.process_id import Identity
from teamd.team.member import Member
from teamd.team.states import Status


def test_times_are_iso_text_with_the_number_beside_it() -> None:
    assert with_iso_times({"members": [{"since": 1_711_234_567.89, "until": None}]}) == {
        "members": [
            {
                "since": "2024-03-23T22:56:07.890+00:00",
                "since_unix": 1_711_234_567.89,
                "until": None,
            }
        ]
    }


def test_the_start_of_a_teammates_process_is_a_calendar_time(paths: TeamPaths) -> None:
    """The roster has the clock ticks of the kernel, which name a process beyond doubt."""
    me = Identity.own()
    member = Member(
        name="ann", agent_id="ann@x", role="", status=Status.IDLE, pid=me.pid, started=me.started
    )
    found = look_at(paths, member, None, None, served=True).to_json()
    assert abs(found["started"] - psutil.Process().create_time()) < 1


@pytest.mark.parametrize(
    "document",
    [
        {"time": "2026-03-24"},
        {"content": {"time": 5.0}, "input": {"since": 7}},
        {"time": True, "since": None, "seconds": 5.0},
    ],
)
def test_values_that_are_not_our_times_are_left_unchanged(document: object) -> None:
    assert with_iso_times(document) == document


@pytest.mark.parametrize("seconds", [1e300, float("nan"), float("-inf")])
def test_a_time_outside_the_calendar_is_null(seconds: float) -> None:
    assert with_iso_times({"time": seconds})["time"] is None


@pytest.mark.parametrize(
    ("words", "asked"),
    [("team --json", True), ("send bob -- --json", False), ("team", False)],
)
def test_json_is_requested_by_an_option_and_not_by_a_word_in_the_text(
    words: str, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["teamctl", *words.split()])
    assert json_is_asked() is asked


@pytest.mark.parametrize(
    ("call", "sentence", "command"),
    [
        (("--team-dir nowhere team --json", 1), "there is no team directory ", "teamd start"),
        (("list --json", 2), "no command 'list'; ", "teamctl team"),
        (("team --json --watch", 2), "--watch never ends and --json is one document: ", None),
        (("--config no.toml tasks --json", 1), "no.toml: there is no such file; ", "teamctl init"),
    ],
)
def test_with_json_an_error_is_one_object_with_the_next_command(
    call: tuple[str, int],
    sentence: str,
    command: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, status = call
    monkeypatch.setattr(sys, "argv", ["teamctl", *words.split()])
    with pytest.raises(SystemExit) as ended:
        run("teamctl", cli)
    shown = capsys.readouterr()
    error = json.loads(shown.err)
    assert (ended.value.code, shown.out, error.keys()) == (status, "", {"error", "command"})
    assert sentence in error["error"]
    assert error["command"] == command or error["command"].startswith(f"{command} ")
