"""No name, id or address leads out of the team's folders, in any command."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamctl.main import cli
from teamd.command_line.run import TeamOptions
from teamd.errors import BadTeamName, TeamError
from teamd.files.paths import TeamPaths
from teamd.messages import NAME, check_team_name
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.tools import ToolError
from teamd.tools.background import Jobs

CANARY: Final = "the canary sings"
# If a name is part of a path, each of these endings leads to a file with the canary.
ENDINGS: Final = (".json", ".jsonl", ".log", ".lock", ".md", "")
PLACES: Final = {
    "spawn": ("spawn", "{}", "coder", "x", "--no-start"),
    "role": ("spawn", "zoe", "{}", "x", "--no-start"),
    "send": ("send", "{}", "x"),
    "team of an address": ("send", "bob@{}", "x"),
    "inbox": ("inbox", "{}"),
    "logs": ("logs", "{}"),
    "transcript": ("transcript", "{}"),
    "shutdown": ("shutdown", "{}"),
    "interrupt": ("interrupt", "{}"),
    "pause": ("pause", "{}"),
    "rm": ("rm", "{}"),
    "rm --purge": ("rm", "{}", "--purge"),
    "show": ("show", "{}"),
    "wait": ("wait", "{}"),
    "resume": ("resume", "{}"),
    "task show": ("task", "show", "{}"),
    "task update": ("task", "update", "{}", "--subject", "x"),
    "task claim": ("task", "claim", "{}"),
    "owner": ("task", "claim", "1", "--owner", "{}"),
    "blocked by": ("task", "add", "x", "--blocked-by", "{}"),
    "approve": ("approve", "{}"),
    "reject": ("reject", "{}"),
    "trace": ("trace", "{}"),
    "--team": ("--team", "{}", "inbox", "bob"),
    "delete": ("delete", "{}", "--force"),
}
# These may be any text, and name no file.
FREE: Final = {
    "--id": ("send", "bob", "x", "--id", "{}"),
    "--from": ("send", "bob", "x", "--from", "{}"),
    "--type": ("send", "bob", "x", "--type", "{}"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A team two folders down, and the canary at every place that a way up could reach."""
    base = tmp_path_factory.mktemp("base")
    paths = TeamPaths(base / "project" / ".team")
    paths.create()
    Roster(paths).update(lambda team: team.with_new("bob", role="coder", status=Status.IDLE))
    for folder in (base, base / "project", paths.root):
        for ending in ENDINGS:
            (folder / f"evil{ending}").write_text(f'{{"content": "{CANARY}"}}\n')
    before = Path.cwd()
    os.chdir(base / "project")
    yield base
    os.chdir(before)


def words(base: Path) -> st.SearchStrategy[str]:
    ups = st.integers(0, 5).map(lambda number: "../" * number + "evil")
    parts = st.lists(st.sampled_from(["..", ".", "evil", "", "/", "\0", "\\", "~", "%2e%2e"]))
    absolute = st.just(str(base / "evil"))
    return ups | absolute | parts.map("/".join) | st.text() | ups.map(lambda up: f"tasks/{up}")


def call(*argv: str) -> str:
    """Run a command in this process; return its whole output."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            cli.main([*argv], prog_name="teamctl", standalone_mode=False, obj=TeamOptions())
        except (TeamError, click.ClickException) as error:
            said.write(str(error))
    return said.getvalue()


def contents(base: Path) -> dict[Path, bytes]:
    """Return all files except for the empty locks that are created when needed."""
    there = {path: path.read_bytes() for path in base.rglob("*") if path.is_file()}
    return {path: content for path, content in there.items() if path.suffix != ".lock" or content}


@pytest.mark.parametrize("place", PLACES)
def test_no_name_leads_out_of_the_team(place: str, base: Path) -> None:
    before = contents(base)

    @settings(max_examples=25)
    @given(words(base).filter(lambda word: not NAME.fullmatch(word)))
    def lead_out(word: str) -> None:
        assert CANARY not in call(*(part.format(word) for part in PLACES[place]))
        assert contents(base) == before

    lead_out()


@pytest.mark.parametrize("place", FREE)
def test_parameters_that_may_be_any_text_do_not_name_files(place: str, base: Path) -> None:
    inbox = TeamPaths(base / "project" / ".team").inbox("bob")
    before = contents(base)

    @settings(max_examples=25)
    @given(words(base))
    def lead_out(word: str) -> None:
        call(*(part.format(word) for part in FREE[place]))
        assert {path: c for path, c in contents(base).items() if path != inbox} == before

    lead_out()
    inbox.unlink(missing_ok=True)


@settings(max_examples=25)
@given(st.data())
def test_no_name_of_a_new_team_leads_elsewhere(base: Path, data: st.DataObject) -> None:
    """Only the check is called, because without it `create` would start a teamd there."""
    word = data.draw(words(base).filter(lambda word: not NAME.fullmatch(word)))
    with pytest.raises(BadTeamName):
        check_team_name(word)


def test_no_job_id_leads_out_of_the_jobs(base: Path) -> None:
    jobs = Jobs(TeamPaths(base / "project" / ".team").jobs("bob"), ring=print)

    @settings(max_examples=25)
    @given(words(base))
    def lead_out(word: str) -> None:
        with pytest.raises(ToolError):
            jobs.get(word)

    lead_out()
