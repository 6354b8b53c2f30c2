"""Options that both programs share, and modules that a command does not load."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from teamctl.commands import COMMANDS, load
from teamctl.main import cli
from teamd.__main__ import program
from teamd.command_line import terminal
from teamd.command_line.run import TeamOptions

# SDKs, UI toolkits, and packages that only some commands use.
HEAVY = {
    "anthropic", "nats", "prompt_toolkit", "psutil", "pydantic", "textual", "uvicorn",
    "yaml", "teamd.supervisor", "teamd.agent", "teamd.tools",
}  # fmt: skip
SHORT = ["team", "team --json", "send bob Hello.", "inbox --peek", "inbox bob", "tasks", "usage",
         "requests", "logs bob --lines 3"]  # fmt: skip


def test_two_teams_are_refused_and_the_choice_is_unchanged() -> None:
    choice = TeamOptions(team="a")
    with pytest.raises(click.UsageError, match="--team and --team-dir each name a team"):
        choice.take(team=None, team_dir="b", config=None)
    assert choice == TeamOptions(team="a")


def test_help_lists_the_options_of_a_team_from_its_name_to_its_settings() -> None:
    shown = cli.get_help(click.Context(cli))
    assert shown.index("--team NAME") < shown.index("--team-dir") < shown.index("--config")


@pytest.mark.parametrize(
    "word",
    [
        "list",
        "run",
        "kill",
        "attach",
        "message",
        "cost",
        "agents",
        "remove",
        "board",
        "up",
        "down",
        "ls",
        "version",
    ],
)
def test_a_word_that_people_guess_is_answered_with_the_right_command(word: str) -> None:
    with pytest.raises(click.UsageError, match=rf"no command '{word}'; `teamctl [a-z-]+"):
        cli.main([word], standalone_mode=False)


@pytest.mark.parametrize("words", ["task list", "task done 1", "task rm 1", "queue list"])
def test_a_wrong_word_after_a_command_group_is_answered_with_the_right_command(words: str) -> None:
    with pytest.raises(click.UsageError, match=r"; `teamctl (tasks|task update ID|queue)"):
        cli.main(words.split(), standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("tasks add x", "`teamctl task add x`"),
        ("tasks add 'two words' -d more", "`teamctl task add 'two words' -d more`"),
        ("tasks 3", "`teamctl task show 3`"),
        ("task 3", "`teamctl task show 3`"),
        ("task '#3' --status completed", "`teamctl task show '#3'`"),
        ("team alice", "`teamctl show alice`"),
        ("team list", "`teamctl team`"),
    ],
)
def test_words_after_a_similar_command_are_answered_with_the_whole_command(
    words: str, meant: str
) -> None:
    with pytest.raises(click.UsageError, match=re.escape(meant)):
        cli.main(shlex.split(words), prog_name="teamctl", standalone_mode=False)


@pytest.mark.parametrize("words", ["rmm", "r", "delet", "prun", "discrad", "queue remov", "rn"])
def test_a_command_that_deletes_is_never_suggested_for_a_mistyped_word(words: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        cli.main(words.split(), standalone_mode=False)
    suggested = refused.value.message.partition("did you mean ")[2]
    assert suggested.strip("'?") not in {"rm", "delete", "prune", "discard", "remove"}


def test_the_commands_of_teamd_are_commands_of_teamctl() -> None:
    for name, command in program.commands.items():
        assert (load(name).callback, name in COMMANDS) == (command.callback, True)


def test_no_color_removes_colors_and_keeps_other_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.style("x", fg="red", bold=True) == click.style("x", bold=True)
    monkeypatch.delenv("NO_COLOR")
    assert terminal.style("x", fg="red", bold=True) == click.style("x", fg="red", bold=True)


def test_a_short_command_loads_no_sdk_and_no_ui_toolkit(tmp_path: Path) -> None:
    """One process runs all of them: importing what they share takes most of the time."""
    team = tmp_path / ".team"
    for folder in (team, team / "inbox", team / "logs", team / "requests", team / "tasks"):
        folder.mkdir(mode=0o700)
    (team / "config.json").write_text('{"members": [{"name": "bob", "role": "coder"}]}')
    script = f"""
import sys
from teamctl.main import main
for call in {SHORT}:
    sys.argv[1:] = call.split()
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, call
    print("loaded by", repr(call), *sorted(sys.modules.keys() & {HEAVY}), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path, capture_output=True, text=True, check=True, env={"HOME": str(tmp_path)},
    )  # fmt: skip
    loaded = [line for line in done.stderr.splitlines() if line.startswith("loaded by")]
    assert loaded == [f"loaded by {call!r}" for call in SHORT]


def test_the_daemon_reads_its_settings_before_it_loads_the_sdk() -> None:
    """Otherwise a mistyped setting is reported seconds later."""
    script = "import teamd.__main__, teamd.daemon, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={}
    )
    later = {"pydantic", "anthropic", "teamd.agent.child", "teamd.tools"}
    assert set(done.stdout.split()) & later == set()
