"""`teamctl help`: plain Markdown in a pipe, styled and paged on a terminal."""

from __future__ import annotations

import json
import sys
from contextlib import closing

import pytest

from teamctl.commands.help import read_topic, title_of, topics
from tests.e2e.harness import Project
from tests.e2e.terminal import Terminal

HEAVY = ("rich", "anthropic", "pydantic", "psutil", "prompt_toolkit", "asyncio")
LOADED = f"""
import sys
from teamctl.main import cli
cli.main(["help", "limits"], standalone_mode=False)
sys.exit(", ".join(name for name in {HEAVY} if name in sys.modules) or 0)
"""
BOLD, COLOUR = b"\x1b[1", b"\x1b[1;36m"


def shown_on_terminal(project: Project, **variables: str) -> tuple[str, bytes]:
    """Read a topic in a terminal; return its text without escapes, and its raw output."""
    pager = project.root / "bin" / "less"
    pager.parent.mkdir(exist_ok=True)
    pager.write_text("#!/bin/sh\necho paged\nexec cat\n")
    pager.chmod(0o755)
    project.environment.update({"TERM": "xterm-256color", "PAGER": "less", **variables})
    with closing(Terminal(project, "teamctl", "help", "limits")) as terminal:
        terminal.sees("concurrent_calls")
        assert terminal.process.wait(20) == 0
        return terminal.shown, terminal._raw


def test_help_without_a_topic_lists_each_topic_on_one_line(project: Project) -> None:
    *lines, blank, hint = project.do("teamctl", "help").splitlines()
    assert [line.split()[0] for line in lines] == topics()
    assert [line.split(maxsplit=1)[1] for line in lines] == list(map(title_of, topics()))
    assert (blank, "`teamctl --help`" in hint) == ("", True)
    assert "help TOPIC" in project.do("teamctl", "--help")


def test_a_topic_in_a_pipe_is_printed_as_markdown(project: Project) -> None:
    assert project.do("teamctl", "help", "limits") == read_topic("limits")


def test_help_for_a_command_is_its_own_help_text(project: Project) -> None:
    assert project.do("teamctl", "help", "resume") == project.do("teamctl", "resume", "--help")


def test_any_other_word_is_searched_for_and_refused_if_nothing_is_found(project: Project) -> None:
    assert "FROM python:" in project.do("teamctl", "help", "docker")
    ended = project.run("teamctl", "help", "limts")
    assert (ended.status, ended.stdout) == (1, "")
    nothing = "teamctl: nothing about 'limts' in the topics and commands"
    assert ended.complaint == f"{nothing}; did you mean `teamctl help limits`?"


def test_json_holds_the_list_of_topics_or_the_text_of_one(project: Project) -> None:
    listed = json.loads(project.do("teamctl", "help", "--json"))["topics"]
    assert [topic["name"] for topic in listed] == topics()
    told = json.loads(project.do("teamctl", "help", "limits", "--json"))
    assert told == {"name": "limits", "text": read_topic("limits")}


def test_help_in_a_pipe_loads_no_heavy_module(project: Project) -> None:
    ended = project.run(sys.executable, "-c", LOADED)
    assert (ended.status, ended.stderr) == (0, "")


def test_on_a_terminal_a_topic_is_paged_and_styled(project: Project) -> None:
    text, raw = shown_on_terminal(project)
    assert text.startswith("paged")
    assert "## Set limits" not in text
    assert "Set limits" in text
    assert COLOUR in raw


def test_without_colour_a_topic_is_still_formatted(project: Project) -> None:
    text, raw = shown_on_terminal(project, NO_COLOR="1")
    assert "## Set limits" not in text
    assert BOLD in raw
    assert COLOUR not in raw


def test_a_dumb_terminal_gets_the_markdown(project: Project) -> None:
    text, raw = shown_on_terminal(project, TERM="dumb")
    assert text.replace("\r\n", "\n") == read_topic("limits")
    assert b"\x1b" not in raw


@pytest.mark.parametrize(("begun", "completed"), [("lim", "limits"), ("resu", "resume")])
def test_topics_and_commands_are_completed(project: Project, begun: str, completed: str) -> None:
    project.environment.update(
        _TEAMCTL_COMPLETE="bash_complete", COMP_WORDS=f"teamctl help {begun}", COMP_CWORD="2"
    )
    assert project.do("teamctl") == f"plain,{completed}\n"


def test_manual_pages_are_written(project: Project) -> None:
    folder = project.folder / "share" / "man1"
    said = project.do("teamctl", "help", "--man", str(folder))
    pages = sorted(file.name for file in folder.iterdir())
    assert said == f"wrote {len(pages)} pages; `man -l {folder}/teamctl.1` shows the first\n"
    assert {"teamctl.1", "teamctl-send.1", "teamctl-task-add.1"} <= set(pages)
    assert {"teamd.1", "teamd-start.1", "teamd-reload.1"} <= set(pages)
    listed = json.loads(project.do("teamctl", "help", "--man", str(folder), "--json"))["pages"]
    assert sorted(listed) == [str(folder / page) for page in pages]


def test_manual_pages_require_a_folder_and_accept_no_topic(project: Project) -> None:
    refused = project.run("teamctl", "help", "limits", "--man", "man")
    assert refused.status == 2
    assert "--man writes all pages; leave out the TOPIC" in refused.stderr
    project.write("taken", "")
    refused = project.run("teamctl", "help", "--man", "taken")
    assert (refused.status, refused.stdout) == (1, "")
    assert "taken" in refused.complaint
