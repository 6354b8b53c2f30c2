"""The key stays in memory: the tests search everything that a team's processes and files show.

A working team reads environments, prints a file that holds the key, mails it, is refused by a
server that repeats it, and crashes. The strict server accepts only this key, so each reply proves
that the key arrived.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from teamd.masking import MASK
from tests.e2e.harness import Project, opened
from tests.strict.blocks import ApiError
from tests.strict.exchange import Exchange
from tests.strict.replies import say, use
from tests.strict.wire import Wire
from tests.waiting import wait_until

KEY: Final = "sk-canary-6f1c0a5e93d24b77"
PROMPT: Final = "canary prompt 81c7"
LOOK: Final = "env; cat /proc/$PPID/environ /proc/*/environ 2>/dev/null | tr '\\0' ';'"


class Repeats:
    """A server that refuses a request, and repeats the key in its sentence."""

    def strike(self, wire: Wire, exchange: Exchange) -> None:
        wire.error(ApiError(401, "authentication_error", f"x-api-key {KEY}, {exchange} is unknown"))


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A team started by `teamd start` with the key in its environment."""
    root = tmp_path_factory.mktemp("secrets")
    with opened(root, keys=(KEY,)) as project:
        project.write("key.txt", f"the key is {KEY}\n")
        project.write("AGENTS.md", f"Use the key {KEY}.\n")
        project.do("teamd", "start")
        yield project


def results(team: Project, name: str) -> list[str]:
    """Return the results of a teammate's tools, from its transcript."""
    return [record["content"] for record in team.records(name, "result")]


def processes(team: Project) -> dict[int, bytes]:
    """Return the environment and the command line of every process, as /proc shows them."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            shown = (folder / "cmdline").read_bytes()
            with suppress(OSError):
                shown += (folder / "environ").read_bytes()
            found[int(folder.name)] = shown
    assert team.supervisor in found
    return found


def written(team: Project) -> dict[Path, str]:
    """Return the contents of the project's files, except model replies and the test's own files."""
    found = {}
    # Not `rglob`: the folders of mount points for commands appear and disappear meanwhile.
    for above, _, names in os.walk(team.root):
        for path in (Path(above, name) for name in {*names} - {"key.txt", "AGENTS.md"}):
            if path.is_file():
                text = path.read_bytes().decode(errors="replace")
                lines = [line for line in text.split("\n") if '{"record": "reply"' not in line]
                found[path] = "\n".join(lines)
    return found


def holds_key(text: str) -> bool:
    """Return whether a text contains the key, plain or encoded."""
    encoded = base64.b64encode(KEY.encode()).decode()[:-4]
    return any(form in text for form in (KEY, encoded, KEY.encode().hex()))


def test_the_key_does_not_appear_in_any_environment_or_command_line(team: Project) -> None:
    """Of teamd, its teammates and their commands; the server receives the key all the same."""
    # Wait until the person's own command has ended, since its environment contains the key.
    command = f"until [ -e look ]; do sleep 0.05; done; {LOOK}"
    team.stage.play("alice", use(("bash", {"command": command})))
    team.do("teamctl", "spawn", "alice", "clerk", "Look.")
    team.write("look", "")
    team.wait_for("alice", "idle", turns=2)
    (shown,) = results(team, "alice")
    assert "PATH=" in shown
    assert not holds_key(shown)
    assert MASK not in shown, "it was nowhere, so that nothing had to be masked"
    shown_by = processes(team)
    assert team.member("alice")["pid"] in shown_by
    assert [pid for pid, text in shown_by.items() if KEY.encode() in text] == []
    if os.geteuid() == 0:  # other users cannot read it
        assert b"ANTHROPIC_BASE_URL" in shown_by[team.supervisor], "the rest of it is there"


def test_prompts_do_not_appear_in_any_command_line(team: Project) -> None:
    """Every user of the machine can read command lines."""
    team.stage.play("ann", use(("bash", {"command": "touch begun; sleep 1000"})))
    team.do("teamctl", "spawn", "ann", "clerk", "-", stdin=f"{PROMPT}, {KEY}")
    wait_until((team.folder / "begun").exists, what="her command runs")
    shown = processes(team).values()
    assert not [text for text in shown if PROMPT.encode() in text or KEY.encode() in text]
    team.run("teamctl", "shutdown", "ann", "--force")


@pytest.mark.slow
def test_the_key_is_masked_in_the_output_of_tools(team: Project) -> None:
    """In a direct result, in a job, at a cut, in an error, encoded, and in mail to others."""
    slowly = "for c in $(fold -w 5 key.txt); do printf %s $c; sleep 0.01; done"
    team.stage.play(
        "bob",
        use(
            ("bash", {"command": "cat key.txt; base64 key.txt; xxd -p key.txt; exit 3"}),
            ("read_file", {"path": "key.txt"}),
            ("bash", {"command": "yes $(cat key.txt) | head -c 200000"}),
            ("edit_file", {"path": KEY, "old_text": "a", "new_text": "b"}),
            ("background_run", {"command": f"cat key.txt; {slowly}"}),
            ("send_message", {"to": "lead", "content": f"It is {KEY}", "summary": KEY}),
            ("task_create", {"subject": "Use the key", "description": KEY}),
        ),
        use(("bash", {"command": "until grep -q ended jobs-end; do sleep 0.05; done"})),
        use(("check_background", {"job_id": "1"})),
    )
    team.do("teamctl", "spawn", "bob", "clerk", "Print it.")
    output = team.paths.jobs("bob") / "1.out"
    wait_until(lambda: b'"ended": 1' in _content(output.with_suffix(".json")), what="the job ends")
    team.write("jobs-end", "ended")
    team.wait_for("bob", "idle")
    said = results(team, "bob")
    assert f"the key is {MASK}" in said[0]
    assert "[exit status 3]" in said[0]
    assert f"the key is {MASK}" in said[1]
    assert said[-1].count(MASK) == 2
    assert output.read_text().count(MASK) == 2
    assert f"It is {MASK}" in team.mail("lead")
    assert [text for text in said if holds_key(text)] == []
    assert [path for path, text in written(team).items() if holds_key(text)] == []


def test_mail_with_the_key_is_masked_before_a_model_reads_it(team: Project) -> None:
    """Mail from a person's command, also from one that does not have the key in its environment."""
    team.stage.play("eve", say("Ready."), say("Read."), say("Read on."))
    team.do("teamctl", "spawn", "eve", "clerk", "Wait.", "--wait")
    line = json.dumps({"content": f"foreign {KEY}", "from": "script", "summary": KEY})
    with team.paths.inbox("eve").open("a") as inbox:
        inbox.write(f"{line}\n")
    send = ("teamctl", "send", "eve", f"personal {KEY}", "--wait")
    assert "delivered" in team.do(*send)
    assert "delivered" in team.run(*send, env={"ANTHROPIC_API_KEY": ""}).stdout

    def last() -> str:
        return json.dumps(team.asked("eve")[-1].body)

    # The second may arrive after the first was taken; then it waits for the next turn.
    wait_until(lambda: last().count(f"personal {MASK}") == 2, what="eve has read both")
    asked = last()
    assert f"foreign {MASK}" in asked
    assert f"Use the key {MASK}." in asked
    assert not holds_key(asked)


def test_a_server_that_repeats_the_key_is_quoted_without_it(team: Project) -> None:
    """Its sentence goes into the roster, a notice, the transcript and the log."""
    team.server.faults.when(lambda asked: asked.name == "fred", Repeats())
    team.do("teamctl", "spawn", "fred", "clerk", "Go.")
    reason = team.wait_for("fred", "paused")["reason"]
    assert f"401: x-api-key {MASK}" in reason
    wait_until(lambda: "fred is paused" in team.mail("lead"), what="the lead is told")
    assert f"x-api-key {MASK}" in team.do("teamctl", "team")
    assert [path for path, text in written(team).items() if holds_key(text)] == []


def test_a_crash_leaves_no_core_file(team: Project) -> None:
    """Not even with a raised limit on core files; the next process has the key again."""
    team.stage.play("gus", say("Ready."), say("Here again."))
    team.do("teamctl", "spawn", "gus", "clerk", "Go.", "--wait")
    pid = team.wait_for("gus", "idle")["pid"]
    _, most = resource.prlimit(pid, resource.RLIMIT_CORE)
    assert resource.prlimit(pid, resource.RLIMIT_CORE)[0] == 0
    resource.prlimit(pid, resource.RLIMIT_CORE, (most, most))
    os.kill(pid, signal.SIGSEGV)
    wait_until(lambda: team.member("gus")["pid"] not in (pid, None), what="gus is back")
    team.do("teamctl", "send", "gus", "Still there?")
    team.wait_for("gus", "idle", turns=2)
    assert not [path for path in team.root.rglob("core*") if path.is_file()]
    assert [pid for pid, text in processes(team).items() if KEY.encode() in text] == []


def test_the_key_survives_a_reload_and_the_masks_follow_the_settings(team: Project) -> None:
    """`teamd reload` passes no key, and reads the list of secrets again."""
    team.write("team.toml", '[model]\nheaders = { X-Gateway = "gateway-pass-5577" }\n')
    team.do("teamd", "reload")
    team.stage.play("hal", use(("bash", {"command": "cat team.toml key.txt"})))
    team.do("teamctl", "spawn", "hal", "clerk", "Go.", "--wait")
    (shown,) = results(team, "hal")
    assert shown.count(MASK) == 2
    assert "gateway-pass-5577" not in shown
    assert team.asked("hal", least=1)[0].headers["x-gateway"] == "gateway-pass-5577"


@pytest.mark.slow
def test_teamd_under_a_service_manager_restarts_without_the_key_in_its_environment(
    project: Project,
) -> None:
    """It keeps its pid, so the service manager still knows it and gets its readiness message."""
    address = str(project.root / "manager")
    secret = {"HTTPS_PROXY": f"http://me:{KEY}@127.0.0.1:9", "NOTIFY_SOCKET": address}
    project.environment |= {**secret, "PLAIN": "seen"}
    project.ask_no_service()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(30)
        serving = project.begin("teamd", "start", "--foreground")
        assert manager.recv(99) == b"READY=1"
    assert project.supervisor == serving.pid
    shown = processes(project)[serving.pid]
    assert b"ANTHROPIC_API_KEY" not in shown
    assert KEY.encode() not in shown
    if os.geteuid() == 0:
        assert b"PLAIN=seen" in shown


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
