"""The lessons' lines, run for real: installed commands, real processes, a strict server."""

from __future__ import annotations

import fcntl
import tomllib

from tests.e2e.harness import Project
from tests.strict.replies import say, use
from tests.waiting import wait_until


def test_fresh_starts_a_new_conversation_and_keeps_the_old_on_disk(team: Project) -> None:
    team.do("teamctl", "spawn", "nora", "clerk", "An old task.", "--wait")
    team.wait_for("nora", "idle")
    team.do("teamctl", "spawn", "nora", "tester", "A new task.", "--fresh", "--wait")
    last = team.asked("nora", least=1)[-1]
    assert len(last.body["messages"]) == 1
    assert "An old task." not in last.asked.last_text
    assert "A new task." in last.asked.last_text
    assert last.asked.role == "tester"
    assert "An old task." in team.paths.transcript("nora").read_text()


def test_the_server_gets_the_model_given_to_spawn(team: Project) -> None:
    """Ignored models are a frequent complaint about the nearest product."""
    team.do("teamctl", "spawn", "olga", "clerk", "Go.", "--model", "claude-haiku-5-5", "--wait")
    team.do("teamctl", "spawn", "otto", "clerk", "Go.", "--wait")
    team.wait_for("olga", "idle")
    team.do("teamctl", "spawn", "olga", "clerk", "Go.", "--model", "claude-opus-5-5", "--wait")
    assert [one.body["model"] for one in team.asked("olga")] == [
        "claude-haiku-5-5",
        "claude-opus-5-5",
    ]
    assert [one.body["model"] for one in team.asked("otto")] == ["claude-sonnet-5-5"]


def test_waiting_for_a_spawn_prints_its_final_text_and_nothing_else(team: Project) -> None:
    team.stage.play("pia", say("Let me see.", calls=[("bash", {"command": "echo hi"})]), say("42."))
    assert team.do("teamctl", "spawn", "pia", "clerk", "Compute.", "--wait") == "42.\n"


def test_a_dash_reads_the_text_from_standard_input(team: Project) -> None:
    prompt, mail = "First line.\n\nÜber <b> & co.", "A\nletter."
    team.do("teamctl", "spawn", "quin", "clerk", "-", "--wait", stdin=prompt)
    team.do("teamctl", "send", "quin", "-", stdin=mail)
    wait_until(lambda: len(team.asked("quin")) == 2)
    assert (
        "First line.\n\nÜber &lt;b&gt; &amp; co." in team.asked("quin", least=1)[0].asked.last_text
    )
    assert "A\nletter." in team.asked("quin", least=2)[1].asked.last_text


def test_inbox_drains_only_the_persons_own_mail_and_keeps_what_was_read(team: Project) -> None:
    """The lessons' `/inbox` takes the lead's mail, and would take a teammate's."""
    team.do("teamctl", "send", "lead", "The disk is full.", "--from", "rita")
    for _ in range(2):
        assert "The disk is full." in team.do("teamctl", "inbox", "--peek")
    assert "The disk is full." in team.do("teamctl", "inbox")
    assert "The disk is full." not in team.do("teamctl", "inbox")
    assert "The disk is full." in team.paths.transcript("user").read_text()
    assert "rita → user" in team.do("teamctl", "transcript", "user")

    team.do("teamctl", "spawn", "rita", "clerk", "Go.", "--wait")
    team.do("teamctl", "shutdown", "rita")
    sent = team.run("teamctl", "send", "rita", "For later.")
    assert sent.status == 0
    assert "rita is shut down" in sent.complaint
    for _ in range(2):
        assert "For later." in team.do("teamctl", "inbox", "rita")
    team.do("teamctl", "spawn", "rita", "clerk", "Read your mail.", "--wait")
    assert "For later." in team.asked("rita", least=1)[-1].asked.last_text


def test_a_foreign_program_that_appends_under_flock_wakes_an_idle_teammate(team: Project) -> None:
    """As `flock .team/inbox/tina.jsonl -c 'echo … >> …'` does; id and time are left out."""
    team.do("teamctl", "spawn", "tina", "clerk", "Go.", "--wait")
    team.wait_for("tina", "idle")
    with team.paths.inbox("tina").open("ab", buffering=0) as inbox:
        fcntl.flock(inbox, fcntl.LOCK_EX)
        inbox.write(b'{"from": "cron", "type": "alarm", "content": "It is noon."}\n')
    wait_until(lambda: len(team.asked("tina")) == 2, what="tina wakes")
    told = '<teammate-message teammate_id="cron" type="alarm">\nIt is noon.\n'
    assert told in team.asked("tina", least=1)[-1].asked.last_text


def test_a_declared_teammate_is_spawned_at_start_and_limited_to_the_calls_of_one_wake(
    project: Project,
) -> None:
    """A model that never ends its turn costs no more than the limit, and the lead is notified."""
    project.write(
        "team.toml",
        '[limits]\ncalls_per_wake = 3\n[[teammate]]\nname = "vera"\nrole = "runner"\n'
        'prompt = "Run for ever."\nmodel = "claude-haiku-5-5"\n',
    )
    project.stage.act("vera", lambda _: use(("read_inbox", {})))
    project.start()
    project.wait_for("vera", "idle", turns=3)
    wait_until(lambda: project.mail("lead"), what="the lead is told")
    assert "vera stopped after 3 model calls" in project.do("teamctl", "inbox")
    assert [one.body["model"] for one in project.asked("vera")] == ["claude-haiku-5-5"] * 3
    assert "Run for ever." in project.asked("vera", least=1)[0].asked.last_text

    project.do("teamctl", "send", "vera", "Go on.")
    project.wait_for("vera", "idle", turns=6)
    assert len(project.asked("vera")) == 6


def test_the_calls_of_one_wake_include_those_of_its_foreground_subagents(
    project: Project,
) -> None:
    """Otherwise each subagent would get the full limit of a wake."""
    project.write("team.toml", "[limits]\ncalls_per_wake = 3\n")
    tasks = [("task", {"prompt": f"Look around for ever, {number}."}) for number in range(6)]
    project.stage.act("lead", lambda _: use(*tasks))
    project.stage.act("subagent", lambda _: use(("bash", {"command": "true"})))
    project.start()
    chat = project.run("teamctl", "chat", "Look around.")
    assert chat.status == 1
    assert "lead used up the model calls of one wake" in chat.complaint
    assert [one.asked.name for one in project.server.requests] == ["lead", "subagent", "subagent"]
    sentence = (
        "the subagent had not finished after {} model calls, and none is left of the 3 of "
        "calls_per_wake; its last text: (none)"
    )
    told = [(r["content"], r["is_error"]) for r in project.records("lead", "result")]
    assert told == [(sentence.format(made), True) for made in (2, 0, 0, 0, 0, 0)]
    why = "lead stopped after 3 model calls"  # the chat may already have shown and taken it
    wait_until(lambda: why in f"{chat}{project.mail('user')}", what="the person is told")
    assert project.records("lead", "ended")[-1]["outcome"] == "limit"


def test_a_background_subagent_has_its_own_limit_of_calls_per_wake(project: Project) -> None:
    """It outlasts the wake that started it, whose own limit stays the same."""
    project.write("team.toml", "[limits]\ncalls_per_wake = 2\n")
    task = ("task", {"prompt": "Look around for ever.", "background": True})
    project.stage.play("lead", use(task), say("It looks around."), say("So be it."))
    project.stage.act("subagent", lambda _: use(("bash", {"command": "true"})))
    project.start()
    assert project.do("teamctl", "chat", "Look around.") == "So be it.\n"
    project.wait_for("lead", "idle", turns=3)
    assert len(project.asked("subagent")) == 2
    told = project.asked("lead", least=1)[-1].asked.last_text
    assert 'state="failed: the subagent had not finished after 2 model calls' in told


def test_save_appends_to_the_settings_and_reload_spawns_new_teammates(
    project: Project,
) -> None:
    old = '# mine\n[limits]   # odd  spacing\ncalls_per_wake=9\n[team]\nname="x" # no end'
    file = project.write("team.toml", old)
    project.start()
    said = project.do(
        "teamctl", "spawn", "wim", "coder", "-", "--save", "--wait", stdin='Say\n"hi".'
    )
    assert said == "Nothing to do.\n"
    assert file.read_bytes().startswith(old.encode())
    saved = tomllib.loads(file.read_text())
    assert saved["teammate"] == [{"name": "wim", "role": "coder", "prompt": 'Say\n"hi".'}]

    added = '\n[[teammate]]\nname = "xaver"\nrole = "tester"\nprompt = "Test."\n'
    file.write_text(file.read_text().replace("=9", "=8") + added)
    lines = project.do("teamd", "reload").splitlines()
    assert any(line.startswith("limits.calls_per_wake has changed: ") for line in lines)
    assert "xaver (tester) is at work" in lines
    wait_until(lambda: project.asked("xaver"), what="the newcomer works")
    assert len(project.asked("wim")) == 1
    assert project.do("teamd", "reload") == "nothing has changed\n"
    assert file.stat().st_mode & 0o777 == 0o644
