"""Options that both programs share, and modules that a command does not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from teamctl.main import cli
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
    with pytest.raises(click.UsageError, match="--team and --team-dir name a team each"):
        choice.take(team=None, team_dir="b", config=None)
    assert choice == TeamOptions(team="a")


def test_help_lists_the_options_of_a_team_from_its_name_to_its_settings() -> None:
    shown = cli.get_help(click.Context(cli))
    assert shown.index("--team NAME") < shown.index("--team-dir") < shown.index("--config")


def test_no_color_removes_colors_and_keeps_other_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.style("x", fg="red", bold=True) == click.style("x", bold=True)
    monkeypatch.delenv("NO_COLOR")
    assert terminal.style("x", fg="red", bold=True) == click.style("x", fg="red", bold=True)


@pytest.mark.parametrize("call", SHORT)
def test_a_short_command_loads_no_sdk_and_no_ui_toolkit(call: str, tmp_path: Path) -> None:
    team = tmp_path / ".team"
    for folder in (team, team / "inbox", team / "logs", team / "requests", team / "tasks"):
        folder.mkdir(mode=0o700)
    (team / "config.json").write_text('{"members": [{"name": "bob", "role": "coder"}]}')
    script = "import sys; from teamctl.main import main\n"
    script += f"sys.argv[1:] = {call.split()}\n"
    script += "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path, capture_output=True, text=True, check=True, env={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert set(done.stderr.split()) & HEAVY == set()


def test_the_daemon_reads_its_settings_before_it_loads_the_sdk() -> None:
    """Otherwise a mistyped setting is reported seconds later."""
    script = "import teamd.__main__, teamd.daemon, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={}
    )
    later = {"pydantic", "anthropic", "teamd.agent.child", "teamd.tools"}
    assert set(done.stdout.split()) & later == set()
