"""A team that uses every kind of file on the disk, with kills at critical points.

Acknowledgements are recorded between the recorded calls, see `judge.Told`.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import defaultdict, deque
from contextlib import suppress
from random import Random
from typing import Any, Final

from teamd.budget.ledger import LONGEST_BYTES
from teamd.errors import TeamError
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from tests.e2e.harness import Ended, Project
from tests.process.powercut.disk import Recording
from tests.strict.asked import Asked
from tests.strict.replies import Answer, Call, say, use
from tests.waiting import wait_until

SETTINGS: Final = """
[limits]
team_tokens = 1000000000

[supervision]
crashes = 1000000
within_seconds = 0.05

[[teammate]]
name = "dora"
role = "clerk"
prompt = "dora begins"
"""
# As an old version without format numbers wrote it; its one member has mail.
OLD_ROSTER: Final = {
    "team_name": "project",
    "members": [{"name": "eve", "role": "clerk", "status": "idle"}],
}
WORKERS: Final = ("alice", "bob")
# Places of random kills: a call and a path.
PLACES: Final = (
    ("pwrite", r"transcripts/(alice|bob)"),
    ("sync", r"transcripts/(alice|bob)"),
    ("pwrite", r"inbox/(alice|bob)\.jsonl"),
    ("sync", r"inbox/(alice|bob)\.jsonl"),
    ("rename", r"inbox/(alice|bob)\.taken"),
    ("syncdir", r"inbox$"),
    ("ftruncate", r"inbox/(alice|bob)\.jsonl"),
    ("unlink", r"inbox/(alice|bob)\.taken"),
    ("pwrite", r"rejected"),
    ("sync", r"rejected"),
    ("pwrite", r"ledger"),
    ("sync", r"ledger"),
    ("pwrite", r"user\.jsonl"),
    ("sync", r"user\.jsonl"),
    ("unlink", r"lead\.taken"),
    ("rename", r"tasks/"),
    ("syncdir", r"tasks$"),
    ("rename", r"requests/"),
    ("syncdir", r"requests$"),
    ("rename", r"jobs/"),
)
_OF_TEAMD: Final = (
    ("rename", r"config\.json"),
    ("syncdir", r"^\.team$"),
    ("rename", r"inbox/teamd\.taken"),
    ("unlink", r"inbox/teamd\.taken"),
    ("rename", r"replies/"),
)


class Play:
    """One recorded run of a project.

    Args:
        project: a project without running processes.
        chance: the source of its random choices.
    """

    def __init__(self, project: Project, chance: Random) -> None:
        project.write("team.toml", SETTINGS)
        project.paths.create()
        project.paths.config.write_text(json.dumps(OLD_ROSTER), encoding="utf-8")
        self.project = project
        self.recording = Recording(project)
        self._chance = chance
        self._count = 0
        self._versions: dict[str, int] = {}
        self._turns: defaultdict[str, deque[Answer]] = defaultdict(deque)
        self._lock = threading.Lock()
        for name in (*WORKERS, "carol", "dora", "eve", "lead", "zoe"):
            project.stage.act(name, self._answer)

    def _answer(self, asked: Asked) -> Answer:
        team = "web" if asked.name == "zoe" else ""
        with self._lock:
            self.recording.mark(asked=asked.name, team=team)
            turns = self._turns[asked.name]
            return turns.popleft() if turns else say("Nothing to do.")

    def begin(self) -> None:
        """Start the team over an old roster; one teammate is declared."""
        self.start()
        self.recording.mark(spawned="dora", sent=("dora", "dora begins"))
        for name in WORKERS:
            self.spawn(name)

    def start(self) -> None:
        """Start teamd, unless it runs."""
        if pidfile.supervisor(self.project.paths) is None:
            self.project.start()

    def label(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def run(self, *argv: str, **options: Any) -> Ended:
        """Run a command, which may be killed or find that teamd was killed."""
        ended = self.project.run(*argv, **options)
        assert ended.status in (0, 1, 3, 4, -signal.SIGKILL), (argv, ended)
        return ended

    def spawn(self, name: str, *more: str, team: str = "") -> bool:
        """Spawn a teammate; return whether it worked."""
        prompt = self.label("prompt")
        which = ("--team", team) if team else ()
        self.recording.mark(wanted=name, team=team)
        done = self.run("teamctl", *which, "spawn", name, "clerk", prompt, *more).status == 0
        if done:
            self.recording.mark(spawned=name, sent=(name, prompt), team=team)
        return done

    def send(self, to: str, *, team: str = "") -> None:
        """Send a message; half of the killed commands are repeated with the same id."""
        content = self.label("mail")
        argv = ("teamctl", "send", to, content, "--id", content)
        done = self.run(*argv).status == 0
        if not done and self._chance.random() < 0.5:
            done = self.run(*argv).status == 0
        if done:
            self.recording.mark(sent=(to.partition("@")[0], content), team=team)

    def send_as_a_stranger(self, to: str) -> None:
        """Have another program append an invalid line and a message without an id."""
        content, garbage = self.label("stranger"), self.label("garbage")
        line = json.dumps({"from": "script", "content": content})
        self.recording.append(self.project.paths.inbox(to), f"{garbage}\n{line}\n")
        self.recording.mark(sent=(to, content), garbage=(to, garbage))

    def read(self) -> None:
        self.run("teamctl", "inbox")

    def work(self, name: str, *calls: Call) -> None:
        """Have a teammate do something at its next wake, and wake it."""
        usual: list[Call] = [
            ("bash", {"command": self.recording.command_that_marks(self.label("command"))}),
            ("send_message", {"to": self._fellow(name), "content": self.label("word")}),
            ("task_create", {"subject": self.label("task")}),
        ]
        with self._lock:
            self._turns[name] += [use(*(calls or usual)), say("Done.")]
        self.send(name)

    def _fellow(self, name: str) -> str:
        return self._chance.choice([other for other in (*WORKERS, "lead") if other != name])

    def add_task(self) -> None:
        subject = self.label("task")
        ended = self.run("teamctl", "task", "add", subject, "--json")
        if ended.status == 0:
            task = json.loads(ended.stdout)["id"]
            self._versions[task] = 0
            self.recording.mark(task={"id": task, "subject": subject})

    def change_task(self) -> None:
        """Change a task; repeat a killed command, since its result is unknown."""
        if not self._versions:
            return
        task = self._chance.choice(list(self._versions))
        self._versions[task] += 1
        version = self._versions[task]
        argv = ("teamctl", "task", "update", task, "--description", f"version {version}")
        if self.run(*argv).status == 0 or self.run(*argv).status == 0:
            self.recording.mark(task={"id": task, "version": version})

    def plan(self) -> None:
        """Have a plan submitted, then approved by a command that is killed; then act on it."""
        self.spawn("carol", "--plan") or self.spawn("carol", "--plan")
        self.work("carol", ("submit_plan", {"plan": self.label("plan")}))
        found: list[str] = []

        def submitted() -> bool:
            shown = self.run("teamctl", "requests", "--json")
            found[:] = [r["id"] for r in json.loads(shown.stdout)["requests"]]
            return bool(found)

        wait_until(submitted, timeout_seconds=30, what="a plan is submitted")
        self.recording.kill_at("syncdir", "requests$")
        for _ in range(3):
            if self.run("teamctl", "approve", found[0]).status == 0:
                self.recording.mark(answered=(found[0], "approved"))
                break
        self.work("carol")
        self.settle()

    def job(self, name: str) -> None:
        """Run a command in the background."""
        command = self.recording.command_that_marks(self.label("job"))
        self.work(name, ("background_run", {"command": command}))

    def shut_down(self, name: str) -> None:
        """Ask a teammate to shut down, which agrees, and spawn it again."""
        asked: list[str] = []

        def agree(asked_now: Asked) -> Answer:
            answer = self._answer(asked_now)
            found = [q for q in self._open("shutdown_request") if q["to"] == name]
            if not found:
                return answer
            asked.append(found[0]["id"])
            return use(("shutdown_response", {"request_id": asked[0], "approve": True}))

        self.project.stage.act(name, agree)
        self.recording.mark(unwanted=name)
        if self.run("teamctl", "shutdown", name, "--timeout", "20").status == 0:
            self.recording.mark(shut=name)
        self.project.stage.act(name, self._answer)
        self.start()
        self.spawn(name)

    def _open(self, kind: str) -> list[dict[str, Any]]:
        found = [json.loads(p.read_bytes()) for p in self.project.paths.requests.glob("*.json")]
        return [q for q in found if q["type"] == kind and q["status"] == "open"]

    def compact(self, name: str) -> None:
        content = self.label("compact")
        if self.run("teamctl", "send", name, content, "--type", "compact").status == 0:
            self.settle()

    def chat(self) -> None:
        """Talk to an agent that leads, then shut it down."""
        words = self.label("words")
        with self._lock:
            self._turns["lead"] += [
                use(("send_message", {"to": "alice", "content": self.label("word")})),
                say("Told."),
            ]
        if self.run("teamctl", "chat", words).status == 0:
            self.recording.mark(sent=("lead", words))
        self.run("teamctl", "shutdown", "lead", "--force")

    def second_team(self) -> None:
        """Create a second team and send mail to it, while it runs and after it has stopped."""
        self.recording.kill_at("mkdir", r"web/inbox", when="after")
        self.run("teamctl", "create", "web")
        self.project.do("teamd", "--team", "web", "start")  # completes the partially created team
        self.spawn("zoe", team="web")
        self.send("zoe@web", team="web")
        self.work("alice", ("send_message", {"to": "zoe@web", "content": self.label("word")}))
        self.settle()
        self.project.do("teamd", "--team", "web", "stop")
        self.send("zoe@web", team="web")

    def long_ledger(self) -> None:
        """Make the ledger so long that it is replaced by its sums."""
        line = b'{"record": "later", "filling": "%s"}\n' % (b"x" * (LONGEST_BYTES // 2))
        self.recording.append(self.project.paths.ledger, (line * 2).decode())
        self.work("alice")
        self.settle()

    def prune(self) -> None:
        self.run("teamctl", "prune")

    def kill_supervisor(self, place: tuple[str, str] | None = None) -> None:
        """Kill teamd at a place, or at once, and start it again."""
        if place is None:
            with suppress(TeamError, ProcessLookupError):
                os.kill(self.project.supervisor, signal.SIGKILL)
        else:
            self.recording.kill_at(*place)
            self.spawn(self._chance.choice(WORKERS))
            self.send("bob")
        wait_until(
            lambda: pidfile.supervisor(self.project.paths) is None or place is not None,
            what="teamd is dead",
        )
        self.recording.let_live()
        self.start()

    def kills_by_chance(self, rounds: int) -> None:
        """Run random actions while processes are killed at random places."""
        deeds = (
            lambda: self.send(self._chance.choice(WORKERS)),
            lambda: self.send_as_a_stranger(self._chance.choice(WORKERS)),
            lambda: self.work(self._chance.choice(WORKERS)),
            lambda: self.job(self._chance.choice(WORKERS)),
            self.read,
            self.add_task,
            self.change_task,
        )
        for _ in range(rounds):
            call, path = self._chance.choice(PLACES)
            when = self._chance.choice(("before", "after"))
            self.recording.kill_at(call, path, when, skip=self._chance.choice((0, 0, 1, 3)))
            for deed in self._chance.sample(deeds, 3):
                deed()
            self.start()
        self.recording.let_live()
        self.settle()

    def kills_of_teamd(self, count: int) -> None:
        """Kill the supervisor in the middle of its own work."""
        for place in self._chance.sample(_OF_TEAMD, count):
            self.kill_supervisor(place)
        self.settle()

    def the_four_cases(self) -> None:
        """Kill a process after a write but before the sync.

        The next process continues from there.
        """
        self.recording.kill_at("sync", "transcripts/alice", holds='"mail"')
        self.send("alice")
        self.recording.wait_for_the_kill("a teammate with a record that is not safe")
        self.settle()
        self.work("bob", ("send_message", {"to": "lead", "content": self.label("word")}))
        self.settle()
        self.recording.kill_at("sync", "user.jsonl")
        self.read()
        self.read()
        self.add_task()
        self.recording.kill_at("syncdir", "tasks$")
        self.change_task()
        for name in WORKERS:
            self.work(name)
        self.settle()

    def steps_of_taking(self) -> None:
        """Kill a reader at each of its steps, while it holds lines without ids."""
        for call, path, when in (
            ("sync", r"inbox/bob\.jsonl", "before"),
            ("rename", r"inbox/bob\.taken", "after"),
            ("syncdir", r"inbox$", "before"),
            ("ftruncate", r"inbox/bob\.jsonl", "after"),
            ("sync", r"inbox/bob\.jsonl", "before"),
            ("pwrite", r"bob\.rejected", "after"),
            ("unlink", r"inbox/bob\.taken", "after"),
        ):
            self.project.wait_for("bob", "idle")
            self.recording.kill_at(call, path, when)
            self.send_as_a_stranger("bob")
            self.settle()
        self.recording.let_live()

    def settle(self) -> None:
        """Wait until all teammates have read their mail and are idle."""
        wait_until(self._rests, timeout_seconds=60, what=f"all rest: {self.project.paths.root}")

    def _rests(self) -> bool:
        teams = [self.project.paths, TeamPaths(self.project.folder / ".teams/web")]
        return all(
            member["status"] == "idle" and not Mailbox(team, member["name"]).waiting()
            for team in teams
            if team.config.exists() and pidfile.supervisor(team) is not None
            for member in json.loads(team.config.read_bytes())["members"]
            if member["status"] not in ("shutdown", "failed")
        )

    def end(self) -> None:
        """Read the last mail and stop."""
        self.recording.let_live()
        self.start()
        self.settle()
        self.read()
        self.project.do("teamd", "stop")
        self.recording.check()


def whole(project: Project, chance: Random) -> Play:
    play = Play(project, chance)
    play.begin()
    play.the_four_cases()
    play.steps_of_taking()
    for name in WORKERS:
        play.job(name)
    play.settle()
    play.plan()
    play.kills_by_chance(25)
    play.kills_of_teamd(3)
    play.spawn("bob", "--fresh")
    play.settle()
    play.shut_down("bob")
    play.compact("alice")
    play.chat()
    play.second_team()
    play.long_ledger()
    play.prune()
    play.kill_supervisor()
    play.kills_by_chance(25)
    play.end()
    return play


def short(project: Project, chance: Random) -> Play:
    """Play the most important parts in about a minute."""
    play = Play(project, chance)
    play.begin()
    play.the_four_cases()
    play.kills_by_chance(2)
    play.end()
    return play
