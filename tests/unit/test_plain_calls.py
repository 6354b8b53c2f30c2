"""Calls that are understood without click: as click understands them, or left to it."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from teamctl import output, plain_table
from teamctl.commands import COMMANDS, load
from teamd import terminal
from teamd.__main__ import program
from teamd.cli import Choice
from teamd.click_commands import to_click
from teamd.commandline import (
    TEAM_NAMES,
    Command,
    ValueType,
    argument,
    command,
    option,
    team_options,
)

DECLARED = {
    **{name: found for name in COMMANDS if isinstance(found := load(name), Command)},
    **{f"teamd {name}": found for name, found in program.commands.items()},
}
WORDS = st.sampled_from(
    ["", "-", "--", "alice", "3", "-3", "007", "1e3", "9999999999", "--help", "-h", "--version",
     "--timeout=3", "-fn", "-n3", "\u0663", "a b", "--team", "x", "\udcff", "--no-such"]
)  # fmt: skip


def by_click(declared: Command, words: list[str]) -> dict[str, Any] | None:
    """What click makes of a call; `None` where it has something to say."""
    try:
        with to_click(declared).make_context("it", [*words]) as context:
            return dict(context.params)
    except (click.ClickException, click.exceptions.Exit):
        return None


@pytest.mark.parametrize("name", DECLARED)
@settings(max_examples=settings().max_examples // 4)  # of each of sixty commands
@given(data=st.data())
def test_a_plain_call_means_what_click_says(name: str, data: st.DataObject) -> None:
    """The one definition is click's; a call that is read otherwise would do another thing."""
    declared = DECLARED[name]
    names = [one for parameter in declared.parameters for one in parameter.names]
    words = data.draw(st.lists(WORDS | st.sampled_from(names or ["x"]), max_size=6))
    with redirect_stdout(io.StringIO()):  # of --help
        said = by_click(declared, words)
    found = declared.read(words)
    if found is not None:
        assert found == said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("team", []), ("team", ["--json"]), ("team", ["--team", "x"]), ("send", ["bob", "Hello."]),
        ("send", ["bob", "-", "--from", "ann"]), ("inbox", []), ("inbox", ["bob"]),
        ("inbox", ["--peek"]), ("tasks", ["--all"]), ("usage", []), ("transcript", ["bob"]),
        ("logs", ["bob", "--lines", "3"]), ("logs", ["bob", "-n", "0"]), ("requests", []),
        ("teams", []), ("trace", ["0123"]), ("teamd status", []), ("teamd start", []),
        ("teamd start", ["--foreground", "--ready-fd", "3"]),
    ],
)  # fmt: skip
def test_what_people_type_is_understood_without_click(name: str, words: list[str]) -> None:
    assert DECLARED[name].read(words) is not None


@pytest.mark.parametrize(
    "words", [["--help"], ["bob", "--lines", "x"], ["bob", "--lines=3"], [], ["bob", "ann"], ["--"]]
)
def test_what_is_not_plain_is_left_to_click(words: list[str]) -> None:
    assert DECLARED["logs"].read(words) is None


def test_settings_of_parameters_that_are_not_known_here_leave_the_command_to_click() -> None:
    """Whoever declares something new need not know of plain calls."""

    @command()
    @option("--many", multiple=True)
    def many() -> None: ...

    @command()
    @option("--yes/--no")
    def pair() -> None: ...

    assert (many.read([]), pair.read([])) == (None, None)


def test_values_are_handed_on_as_click_does() -> None:
    @command()
    @argument("first")
    @argument("second", required=False)
    @option("--most", type=ValueType("IntRange", min=1), default=5)
    @option("--seconds", callback=lambda _, __, given: math.inf if given is None else given)
    @option("--needed", required=True)
    @team_options
    def made() -> None: ...

    words = ["a", "--needed", "x", "--most", "7"]
    found = made.read(words)
    assert found == by_click(made, words)
    assert found is not None
    assert (found["second"], found["most"], found["seconds"]) == (None, 7, math.inf)
    assert made.read(["a"]) is None


def test_two_teams_are_taken_by_no_choice() -> None:
    choice = Choice(team="a")
    assert not choice.take(dict.fromkeys(TEAM_NAMES) | {"team_dir": "b"})
    assert choice == Choice(team="a")


@given(
    st.text(), st.sampled_from([None, *terminal.COLOURS, "bright_red"]), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_styles_are_clicks(text: str, fg: str | None, bold: bool, dim: bool) -> None:
    expected = click.style(text, fg=fg, bold=bold or None, dim=dim or None)
    assert terminal.style(text, fg=fg, bold=bold, dim=dim) == expected


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_a_line_is_printed_as_click_prints_it(text: str, styled: bool) -> None:
    if styled:
        text = terminal.style(text, fg="red", bold=True)
    assert printed(terminal.echo, text) == printed(click.echo, text)


def printed(echo: Any, text: str) -> bytes:
    written = io.BytesIO()
    with (
        io.TextIOWrapper(written, encoding="utf-8", newline="") as stream,
        redirect_stdout(stream),
    ):
        echo(text)
        return written.getvalue()


CELLS = st.text(st.characters(max_codepoint=0x2FF), max_size=8)


@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4),
    st.sets(st.sampled_from(["A", "BB", "C"])),
)
def test_a_table_without_rich_is_the_one_that_rich_draws(
    rows: list[tuple[str, str, str]], numbers: set[str]
) -> None:
    headings = ("A", "BB", "C")
    styled = [[(text, "red") for text in row] for row in rows]
    lines = plain_table.render(headings, styled, [*numbers], widest=10_000)
    if lines is not None:
        assert "\n".join([*lines, ""]) == by_rich(headings, styled, [*numbers])


def by_rich(
    headings: tuple[str, ...], rows: list[list[tuple[str, str]]], numbers: list[str]
) -> str:
    drawn = output.table(headings, numbers=numbers)
    for row in rows:
        drawn.add_row(*(output.cell(*one) for one in row))
    out = io.StringIO()
    Console(file=out, width=10_000, highlight=False, soft_wrap=True).print(drawn)
    return out.getvalue()


def test_a_table_that_is_too_wide_is_left_to_rich() -> None:
    assert plain_table.render(("A", "B"), [[("x" * 8, ""), ("y", "")]], (), widest=10) is None
    assert plain_table.render(("A", "B"), [[("x" * 7, ""), ("y", "")]], (), widest=10) is not None


ROOT = Path(__file__).parents[2]
HEAVY = {
    "ast", "anthropic", "asyncio", "click", "copy", "dataclasses", "email", "hashlib",
    "importlib.metadata", "inspect", "logging", "portalocker", "psutil", "pydantic", "rich",
    "shutil", "socket", "subprocess", "tempfile", "threading", "tomllib", "typing", "unittest",
    "uuid", "teamd.settings", "teamd.supervisor", "teamd.programs",
}  # fmt: skip
LEDGER = {"datetime", "decimal", "teamd.budget.ledger", "teamd.budget.accounts"}
MAIL = {"teamd.mail.mailbox", "teamd.approvals", "teamd.transcript"}
LIGHT = {
    ("team",): {*MAIL, *LEDGER, "teamd.masking"},
    ("team", "--json"): MAIL | LEDGER,
    ("send", "bob", "Hello."): {"teamd.budget", "teamd.approvals", "teamd.transcript"},
    ("inbox", "--peek"): {"teamd.budget", "teamd.approvals", "teamd.transcript", "teamd.masking"},
    ("inbox", "bob"): {"teamd.budget", "teamd.approvals", "teamd.transcript"},
    ("tasks",): {"teamd.budget", "teamd.mail", "teamd.approvals", "teamd.team"},
    ("usage",): {"teamd.mail", "teamd.approvals", "teamd.transcript"},
    ("requests",): {"teamd.budget", "teamd.transcript"},
    ("logs", "bob", "--lines", "3"): {"teamd.budget", "teamd.mail", "teamd.approvals"},
}


@pytest.mark.parametrize("argv", LIGHT, ids=" ".join)
def test_a_short_command_loads_nothing_that_it_does_not_use(
    argv: tuple[str, ...], tmp_path: Path
) -> None:
    """Times cannot be tested, but what takes them can: each of these is worth milliseconds."""
    team = tmp_path / ".team"
    for folder in (team, team / "inbox", team / "logs", team / "requests", team / "tasks"):
        folder.mkdir(mode=0o700)
    (team / "config.json").write_text('{"members": [{"name": "bob", "role": "coder"}]}')
    say = "import sys; from teamctl.main import main\n"
    say += f"sys.argv[1:] = {argv}\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", say],
        cwd=tmp_path, capture_output=True, text=True, check=True, env={"HOME": str(tmp_path)},
    )  # fmt: skip
    loaded = set(done.stderr.split())
    assert loaded & (HEAVY | LIGHT[argv]) == set()


def test_a_supervisor_loads_nothing_slow_before_it_takes_requests() -> None:
    """What it needs later is loaded behind that. `ast` comes with `inspect`."""
    say = "import teamd.__main__, teamd.daemon, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", say], capture_output=True, text=True, check=True, env={}
    )
    slow = {"ast", "asyncio", "pydantic", "anthropic", "teamd.agent.child", "teamd.tools"}
    slow |= {"teamd.merges.queue", "teamd.models.prices", "teamd.transcript.records"}
    assert set(done.stdout.split()) & slow == set()


def test_a_module_that_is_loaded_late_is_the_module() -> None:
    say = """
import sys
from teamd.late import load_late
load_late("ipaddress")
import ipaddress, urllib.parse
assert vars(ipaddress).get("IPv4Address") is None
from ipaddress import ip_address
import ipaddress as again
assert again.ip_address is ipaddress.ip_address is ip_address
assert sys.modules["ipaddress"] is again is not ipaddress
load_late("ipaddress")
assert sys.modules["ipaddress"] is again
assert urllib.parse.urlsplit("http://[::1]:8/").port == 8
"""
    subprocess.run([sys.executable, "-S", "-c", say], check=True, env={"PYTHONPATH": str(ROOT)})


def test_a_command_that_ends_looks_for_no_garbage(tmp_path: Path) -> None:
    """A tenth of its time would be spent on that; whatever is to be done at an exit is done."""
    say = "import atexit, gc, sys; from teamctl.main import main\n"
    say += "atexit.register(lambda: print(len(gc.get_objects())))\n"
    say += "sys.argv[1:] = ['teams']\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", say],
        cwd=tmp_path, capture_output=True, text=True, check=True, env={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert int(done.stdout.splitlines()[-1]) < 1000
