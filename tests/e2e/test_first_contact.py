"""First contact: missing files are created or named, and waiting work is reported."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest

from teamd.team import teams
from tests.children import holding
from tests.e2e.harness import Project
from tests.e2e.terminal import Terminal


@pytest.mark.parametrize("command", [("spawn", "ada", "coder", "Work.", "--wait"), ("chat", "Hi.")])
def test_spawn_and_chat_start_teamd_and_say_so(project: Project, command: tuple[str, ...]) -> None:
    project.ask_no_service()
    done = project.run("teamctl", *command)
    assert (done.status, done.stdout) == (0, "Nothing to do.\n")
    first, *_, last = done.stderr.splitlines()
    assert first == f"teamctl: no teamd runs for {project.paths.root}; starting it"
    assert last == f"teamctl: teamd (pid {project.supervisor}) runs; `teamd stop` ends it"
    again = project.run("teamctl", *command, "--fresh")
    assert (again.status, again.stderr) == (0, "")


def test_a_mistake_in_the_settings_is_reported_before_anything_starts(project: Project) -> None:
    project.write("team.toml", "[model]\nnam = 1\n")
    refused = project.run("teamctl", "spawn", "ada", "coder", "Work.")
    assert refused.status == 1
    assert "nam" in refused.complaint
    assert not project.paths.root.exists()


def test_mail_that_cannot_be_delivered_now_is_reported_as_waiting(project: Project) -> None:
    project.enlist("bob")
    why = "warning: no teamd runs, so the message waits; `teamd start` delivers it\n"
    sent = project.run("teamctl", "send", "bob", "Hello.")
    assert (sent.status, sent.stdout, sent.stderr) == (0, "sent to bob\n", why)
    assert project.run("teamctl", "broadcast", "Hello.").stderr == why
    assert project.run("teamctl", "send", "lead", "Hello.").stderr == ""


@pytest.mark.parametrize("text", ["", " \n"])
def test_empty_mail_is_refused(project: Project, text: str) -> None:
    project.enlist("bob")
    for command in (("send", "bob", text), ("broadcast", text), ("send", "bob", "-")):
        refused = project.run("teamctl", *command, stdin=text)
        assert refused.status == 1
        assert refused.complaint == (
            "teamctl: the text is empty; a message needs one, such as `teamctl send bob Hello`"
        )
    assert project.mail("bob") == ""


def test_an_empty_task_is_refused(project: Project) -> None:
    refused = project.run("teamctl", "spawn", "bob", "coder", "")
    assert refused.status == 1
    assert refused.complaint == "teamctl: a prompt is needed and must not be empty"
    assert not project.paths.root.exists()


@pytest.mark.parametrize(
    ("words", "better"),
    [
        (("spawn", "bob", "coder", "Fix", "the", "bug"), "spawn bob coder 'Fix the bug'"),
        (("send", "bob", "Are", "you there?"), "send bob 'Are you there?'"),
        (("broadcast", "Stop", "now"), "broadcast 'Stop now'"),
        (("chat", "Fix", "it", "--fresh"), "chat 'Fix it' --fresh"),
        (("task", "add", "Fix", "it"), "task add 'Fix it'"),
    ],
)
def test_a_call_without_quotes_is_refused_with_the_quoted_call(
    project: Project, words: tuple[str, ...], better: str
) -> None:
    refused = project.run("teamctl", *words)
    assert refused.status == 2
    last = refused.stderr.splitlines()[-1]
    assert last.endswith(f"put a text of more than one word in quotes: teamctl {better}"), last


def test_init_in_a_subfolder_names_the_scope_of_its_file(project: Project) -> None:
    project.enlist("bob")
    below = project.folder / "below"
    below.mkdir()
    written = project.run("teamctl", "init", cwd=below)
    assert written.status == 0
    assert written.complaint == (
        f"warning: this file does not count: the team here is {project.paths.root}, and its "
        f"settings are {project.folder}/team.toml; move the file there, or run `teamd start "
        f"--team-dir {below}/.team`"
    )
    assert project.run("teamctl", "init").stderr == ""


def test_delete_asks_for_confirmation_on_a_terminal(project: Project) -> None:
    project.ask_no_service()
    for answer, there in (("n", True), ("y", False)):
        if not project.paths.home.joinpath(".teams", "web").exists():
            teams.make(project.folder, "web")
        terminal = Terminal(project, "teamctl", "delete", "web")
        terminal.sees("delete the team web with all its mail and conversations? [y/N]")
        terminal.type(f"{answer}\n".encode())
        terminal.sees("is deleted" if answer == "y" else "nothing was done")
        terminal.close()
        assert project.paths.home.joinpath(".teams", "web").exists() is there


def test_a_slow_start_says_so(project: Project) -> None:
    project.ask_no_service()
    project.paths.create()
    with holding(project.paths.supervisor):
        terminal = Terminal(project, "teamd", "start")
        terminal.sees("teamd: starting …")
    terminal.sees("`teamctl team` shows the team")
    terminal.close()


def test_a_slow_answer_to_a_spawn_is_explained(project: Project) -> None:
    """As the first spawn after a start, which waits until the model's client is loaded."""
    project.ask_no_service()
    supervisor = project.start()
    os.kill(supervisor, signal.SIGSTOP)
    with closing(Terminal(project, "teamctl", "spawn", "ada", "coder", "Work.")) as terminal:
        terminal.sees("waiting for teamd: after its start it loads the model's client …")
        os.kill(supervisor, signal.SIGCONT)
        terminal.sees("ada (coder) is at work")


def test_a_team_with_a_misspelt_name_is_not_created(project: Project) -> None:
    teams.make(project.folder, "web")
    refused = project.run("teamctl", "--team", "wbe", "spawn", "ada", "coder", "Work.")
    assert refused.status == 1
    assert [path.name for path in (project.folder / ".teams").iterdir() if path.is_dir()] == ["web"]
