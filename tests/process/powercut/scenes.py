"""Short scenes without a supervisor, for what a whole play meets too seldom to rely on.

A scene is a few processes, see `deeds`, some of which are killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from teamctl.main import main as teamctl
from teamd.approvals.approval import id_of
from teamd.files.paths import STATE_VARIABLE, TeamPaths
from tests.process.powercut.deeds import DEEDS
from tests.process.powercut.disk import Recording

_ROOT: Final = 0
_NOBODY: Final = 65534


class Scene:
    """The processes of one scene, in the order in which they run.

    Args:
        recording: of the project.
        team: the team directory, below the project's folder.
    """

    def __init__(self, recording: Recording, team: str = ".team") -> None:
        self._recording = recording
        self._root = recording.project.folder / team

    def beside(self, team: str) -> Scene:
        """The same project, and another team directory."""
        return Scene(self._recording, team)

    def do(self, deed: str, *arguments: str, killed: bool = False, **told: Any) -> None:
        """Run a process to its end, or to its death; what is told is what it did."""
        status = self._fork(partial(DEEDS[deed], TeamPaths(self._root), *arguments))
        self._see(deed, status, killed=killed, **told)

    def command(self, *argv: str, killed: bool = False, **told: Any) -> None:
        """Run one of the commands to its end, or to its death.

        `teamctl` is forked, too: what it writes is the same. `teamd` is started, and so are its
        teammates.
        """
        forked = argv[0] == "teamctl"
        status = self._fork(partial(self._be, argv)) if forked else self._start(argv)
        self._see(argv, status, killed=killed, **told)

    def _start(self, argv: Sequence[str]) -> int:
        return self._recording.project.run(*argv).status

    def _be(self, argv: Sequence[str]) -> None:
        os.environ.clear()
        os.environ.update(self._recording.project.environment)
        sys.argv = [*argv]
        teamctl()

    def _fork(self, work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            self._recording.record_this_process()
            os.chdir(self._recording.project.folder)
            code: object = 1
            try:
                work()
                code = os.EX_OK
            except SystemExit as ended:
                code = ended.code
            except BaseException:  # noqa: BLE001 -- the edge of a process
                traceback.print_exc()
            finally:
                os._exit(code if isinstance(code, int) else int(code is not None))
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)

    def append(self, *contents: str, garbage: str = "") -> None:
        """Have another program put messages without ids into bob's inbox, behind a bad line."""
        lines = [json.dumps({"from": "script", "content": content}) for content in contents]
        text = "".join(f"{line}\n" for line in [garbage, *lines] if line)
        self._recording.append(self._root / "inbox/bob.jsonl", text)
        for content in contents:
            self._recording.mark(sent=("bob", content))
        if garbage:
            self._recording.mark(garbage=("bob", garbage))

    def begin(self, name: str, content: str) -> None:
        """Have another program make an inbox with a message in it, which may be lost."""
        line = json.dumps({"from": "script", "content": content})
        self._recording.append(self._root / f"inbox/{name}.jsonl", f"{line}\n")

    def tell(self, **told: Any) -> None:
        """Record an acknowledgement."""
        self._recording.mark(**told)

    def keep_state(self, folder: str) -> None:
        """Keep what the person decides in a folder of the project, which is recorded."""
        project = self._recording.project
        project.environment[STATE_VARIABLE] = str(project.folder / folder)

    @contextmanager
    def given_away(self) -> Iterator[None]:
        """Let the project's folder belong to another user, where this one may do that."""
        folder, user = self._recording.project.folder, os.geteuid()
        if user == _ROOT:
            os.chown(folder, _NOBODY, _NOBODY)
        yield
        os.chown(folder, user, -1)

    def kill_at(self, call: str, path: str, when: str = "before") -> None:
        """Have the next process that comes there die."""
        self._recording.kill_at(call, path, when)

    def _see(self, argv: object, status: int, *, killed: bool, **told: Any) -> None:
        assert status == (-signal.SIGKILL if killed else os.EX_OK), argv
        if told:
            self._recording.mark(**told)


def a_teammate_dies_with_a_record(scene: Scene) -> None:
    """It has written the mail down, and not synced; the next one reads that it stands there."""
    scene.do("create")
    scene.do("put", "bob", "a", sent=("bob", "a"))
    scene.kill_at("sync", "transcripts/bob")
    scene.do("talk", killed=True)
    scene.do("talk")


def mail_comes_while_a_teammate_reads(scene: Scene) -> None:
    """The mail that comes meanwhile is the next batch; no message is read twice."""
    scene.do("create")
    scene.do("put", "bob", "a", sent=("bob", "a"))
    scene.do("talk_meanwhile", "b", sent=("bob", "b"))
    scene.do("talk_meanwhile", "c", sent=("bob", "c"))
    scene.do("talk")
    scene.do("put", "bob", "d", sent=("bob", "d"))
    scene.do("talk")
    steps = (("ftruncate", "inbox/bob.jsonl", "e"), ("unlink", "bob.taken", "g"))
    for call, place, content in steps:
        scene.kill_at(call, place, "after")
        scene.do("put", "bob", content, sent=("bob", content))
        scene.do("talk", killed=True)
    scene.do("put", "bob", "f", sent=("bob", "f"))
    scene.do("talk")


def who_leads_is_shut_down(scene: Scene) -> None:
    """Its inbox is the person's then, whose conversation knows nothing of what it has read."""
    scene.do("create")
    scene.do("put", "lead", "a", sent=("lead", "a"))
    scene.do("lead_for_a_while")
    scene.do("put", "lead", "b", sent=("lead", "b"))


def an_agent_leads_from_now_on(scene: Scene) -> None:
    """The inbox that the person has read is its own then."""
    scene.do("create")
    scene.do("serve")
    scene.do("put", "lead", "a", sent=("lead", "a"))
    scene.command("teamctl", "inbox")
    scene.do("lead_for_a_while")


def a_conversation_goes_on_from_a_checkpoint(scene: Scene) -> None:
    """A process dies with its summary, and one with mail; each next one reads from there on."""
    scene.do("create")
    scene.do("put", "bob", "a", sent=("bob", "a"))
    scene.do("talk")
    scene.kill_at("sync", "transcripts/bob")
    scene.do("sum_up", killed=True)
    scene.do("sum_up")
    scene.do("put", "bob", "b", sent=("bob", "b"))
    scene.kill_at("sync", "transcripts/bob")
    scene.do("talk", killed=True)
    scene.do("talk")


def the_person_stops_reading(scene: Scene) -> None:
    """Ctrl-C comes once the mail is shown and written down, and not synced."""
    scene.do("create")
    scene.do("serve")
    scene.do("put", "lead", "a", sent=("lead", "a"))
    scene.kill_at("sync", "user.jsonl")
    scene.command("teamctl", "inbox", killed=True)
    scene.command("teamctl", "inbox")


def a_change_is_repeated(scene: Scene) -> None:
    """The command died between rename and sync; the same one finds nothing to change."""
    scene.do("create")
    scene.do("serve")
    scene.command("teamctl", "task", "add", "x", task={"id": "1"})
    change = ("teamctl", "task", "update", "1", "--description", "version 1")
    scene.kill_at("syncdir", "tasks$")
    scene.command(*change, killed=True)
    scene.command(*change, task={"id": "1", "version": 1})


def an_answer_is_repeated(scene: Scene) -> None:
    """So did the command that approves a plan."""
    scene.do("create")
    scene.do("serve")
    scene.do("enlist")
    scene.do("ask")
    scene.kill_at("syncdir", "requests$")
    scene.command("teamctl", "approve", "abcdef", killed=True)
    scene.command("teamctl", "approve", "abcdef", answered=("abcdef", "approved"))


def an_answer_is_found(scene: Scene) -> None:
    """Whoever asked acts on an answer whose giver died, and was told nothing."""
    scene.do("create")
    scene.do("enlist")
    scene.do("ask", plans="abcdef")
    scene.do("serve")
    scene.kill_at("syncdir", "requests$")
    scene.command("teamctl", "approve", "abcdef", killed=True)
    scene.do("act", opened="abcdef")


def a_permission_is_found(scene: Scene) -> None:
    """A call runs on an answer whose giver died."""
    permission = id_of("key-permission", "")
    scene.do("create")
    scene.do("enlist")
    scene.do("ask_permission", plans=permission)
    scene.do("serve")
    scene.kill_at("syncdir", "requests$")
    scene.command("teamctl", "approve", permission, killed=True)
    scene.do("permitted", opened=permission)


def an_answer_is_told_by_another(scene: Scene) -> None:
    """Mail goes out about it that a power cut cannot take back."""
    scene.do("create")
    scene.do("enlist")
    scene.do("ask", plans="abcdef")
    scene.do("serve")
    scene.kill_at("syncdir", "requests$")
    scene.command("teamctl", "approve", "abcdef", killed=True)
    scene.do("repeat", answered=("abcdef", "approved"))


def a_question_is_repeated(scene: Scene) -> None:
    """The writer died right after the write."""
    scene.do("create")
    scene.do("enlist")
    scene.kill_at("syncdir", "requests$")
    scene.do("ask", killed=True)
    scene.do("ask", plans="abcdef")


def a_task_is_added_again(scene: Scene) -> None:
    """The call is repeated, and finds the task that it made."""
    scene.do("create")
    scene.kill_at("syncdir", "tasks$")
    scene.do("add_once", killed=True)
    scene.do("add_once", task={"id": "1", "subject": "x"})


def a_task_is_given(scene: Scene) -> None:
    """Its new owner is told by another than who gave it."""
    scene.do("create")
    scene.do("enlist")
    scene.do("serve")
    scene.command("teamctl", "task", "add", "x", task={"id": "1", "subject": "x"})
    scene.kill_at("syncdir", "tasks$")
    scene.command("teamctl", "task", "update", "1", "--owner", "bob", killed=True)
    scene.do("flush", task={"id": "1", "owner": "bob"})


def a_member_is_found(scene: Scene) -> None:
    """The next supervisor goes by a roster that was renamed into place, and not synced."""
    scene.do("create")
    scene.do("enlist", spawned="bob")
    scene.do("reign", unwanted="bob")
    scene.kill_at("syncdir", r"^\.team$")
    scene.do("enlist", "shutdown", killed=True)
    scene.do("reign", shut="bob")


def a_question_is_the_first_of_its_folder(scene: Scene) -> None:
    """The folder was removed while a supervisor runs."""
    scene.do("create")
    scene.do("enlist")
    scene.do("serve")
    scene.do("clear_the_requests")
    scene.do("ask", plans="abcdef")


def an_agent_asks_and_goes_on(scene: Scene) -> None:
    """It has read that it is done, and will not ask again."""
    scene.do("create")
    scene.do("ask_teamd", kept=("inbox/teamd.jsonl", "{"))
    scene.do("enlist")
    scene.do("enlist", "shutdown")
    scene.do("enlist")


def a_roster_is_migrated(scene: Scene) -> None:
    """The one of the earlier version is kept."""
    scene.do("create")
    scene.do("write_old_roster")
    scene.do("reign", kept=("config.format-0.json", "{"))
    scene.do("enlist", spawned="bob")


def a_roster_is_damaged_while_it_is_served(scene: Scene) -> None:
    """What the supervisor knows takes its place; what stood there is kept."""
    scene.do("create")
    scene.do("enlist")
    scene.tell(damaged=True)
    scene.do("damage_roster_and_end_bob", kept=("config.damaged-*.json", "?"))
    scene.tell(spawned="bob", unwanted="bob", shut="bob")


def files_of_the_person_are_written(scene: Scene) -> None:
    """By the person, and by an agent that reports it."""
    scene.do("create")
    scene.command("teamctl", "init", written=("team.toml", "#"))
    scene.do("write_file", written=("deep/file", "done"))
    scene.do("rewrite_file", written=("deep/file", "done again"))
    scene.do("rewrite_linked_file", written=("deep/file", "done again and linked"))
    scene.command("teamd", "start")
    scene.command("teamctl", "spawn", "bob", "clerk", "Go.", "--save", "--wait")
    scene.tell(written=("team.toml", "#"), spawned="bob")
    scene.command("teamd", "stop")


def a_copy_is_made(scene: Scene) -> None:
    """The person was told that a teammate is at work in it: it goes on there in the morning."""
    scene.do("make_repository")
    scene.do("create")
    scene.command("teamd", "start")
    scene.command("teamctl", "spawn", "bob", "clerk", "Go.", "--worktree")
    scene.tell(spawned="bob", copied="bob")
    scene.command("teamd", "stop")


def work_is_queued(scene: Scene) -> None:
    """The folder of the board was removed, and comes anew with the queue in it."""
    scene.do("create")
    scene.do("serve")
    scene.do("clear_the_board")
    scene.do("queue_work", queued=("1", "waiting"))


def work_is_queued_again(scene: Scene) -> None:
    """The writer died right after the write."""
    scene.do("create")
    scene.kill_at("syncdir", "tasks$")
    scene.do("queue_work", killed=True)
    scene.do("queue_work", queued=("1", "waiting"))


def work_is_given_back(scene: Scene) -> None:
    """Its teammate is told by another than who ended it."""
    scene.do("create")
    scene.do("enlist")
    scene.do("queue_work", queued=("1", "waiting"))
    scene.kill_at("syncdir", "tasks$")
    scene.do("give_work_back", killed=True)
    scene.do("flush_queue", queued=("1", "failed"))


def a_file_is_trusted(scene: Scene) -> None:
    """The person was told that its settings count."""
    scene.do("create")
    scene.keep_state("deep")
    scene.command("teamctl", "init", written=("team.toml", "#"))
    scene.command("teamctl", "trust", written=("deep/teamd/trust/*.json", "{"))


def a_broker_is_set_up(scene: Scene) -> None:
    """The person was told where keys, certificates and tokens stand; nobody can make them again."""
    scene.do("create")
    scene.keep_state("deep")
    scene.command("teamctl", "hosts", "init", "--name", "h1", written=("team.toml", "#"))
    for name in ("host.crt", "host.key", "ca.crt", "broker/ca.key", "broker/ca.crt"):
        scene.tell(kept=(f"hosts/keys/{name}", "-----BEGIN"))
    for name in ("server.key", "server.crt"):
        scene.tell(kept=(f"hosts/keys/broker/{name}", "-----BEGIN"))
    scene.tell(kept=("hosts/keys/broker/broker.json", "{"))
    scene.tell(kept=("hosts/keys/broker/nats-server.conf", "#"))
    scene.tell(kept=("hosts/keys/broker/*.service", "#"))
    scene.command("teamctl", "hosts", "add", "h2", kept=("hosts/keys/tokens/h2.token", ""))


def a_host_joins(scene: Scene) -> None:
    """The person deletes the token then."""
    scene.do("create")
    scene.keep_state("deep")
    scene.do("issue_token")
    scene.command("teamctl", "hosts", "join", "h2.token", written=("team.toml", "#"))
    for name in ("host.crt", "host.key", "ca.crt"):
        scene.tell(kept=(f"hosts/keys/{name}", "-----BEGIN"))


def a_file_of_taken_mail_is_damaged(scene: Scene) -> None:
    """By the disk, say; the next start has its mail delivered again."""
    scene.do("create")
    scene.do("put", "bob", "a", sent=("bob", "a"))
    for _ in range(2):  # the second reader has it moved out of the inbox
        scene.do("take_only")
    scene.tell(damaged=True)
    scene.do("damage")
    scene.do("mend")


def a_ledger_is_repaired(scene: Scene) -> None:
    """Whoever repairs it dies in the middle; the limits go on counting what was used."""
    scene.do("create")
    scene.do("limit")
    scene.do("call", asked="bob")
    scene.do("note_call")
    scene.tell(damaged=True)
    scene.do("damage_ledger")
    scene.kill_at("rename", "ledger.jsonl$")
    scene.do("mend", killed=True)
    scene.do("mend", kept=("ledger.jsonl.damaged-*", "?"))


def a_stranger_makes_the_inbox(scene: Scene) -> None:
    """It knows of no directory to be synced; what we send behind it is safe all the same."""
    scene.do("create")
    scene.do("enlist")
    scene.begin("bob", "one")
    scene.command("teamctl", "send", "bob", "hello", sent=("bob", "hello"))
    scene.do("serve")
    scene.begin("lead", "two")
    scene.command("teamctl", "send", "lead", "hi", sent=("lead", "hi"))


def folders_are_made_half(scene: Scene) -> None:
    """Those above the team directory, and that of a teammate's jobs."""
    deep = scene.beside("deep/er/.team")
    scene.kill_at("mkdir", "^deep/er$", "after")
    deep.do("create", killed=True)
    deep.do("create")
    deep.do("go_on", task={"id": "1"}, sent=("lead", "hi"), team="deep")
    scene.do("create")
    scene.kill_at("mkdir", "jobs/bob$", "after")
    scene.do("begin_job", killed=True)
    scene.do("begin_job", jobs=("bob", "1"))


def a_line_is_rejected(scene: Scene) -> None:
    """The line that is none is behind the position of the reader, whose file stays."""
    scene.do("create")
    scene.do("put", "bob")
    scene.append("one", "two", garbage="rubbish")
    scene.do("take", "1")


def a_reader_dies_before_its_file_is_named(scene: Scene) -> None:
    """The next one empties the inbox, and reads that file alone; or new mail waits behind it."""
    scene.do("create")
    scene.do("put", "bob")
    for number, later in enumerate([(), ("two",)]):
        scene.append(f"one-{number}", garbage=f"rubbish-{number}")
        scene.kill_at("rename", "bob.taken", "after")
        scene.do("take", killed=True)
        for content in later:
            scene.append(content)
        scene.do("take")
    scene.do("take")


def a_reader_dies_with_the_inbox_cut_off(scene: Scene) -> None:
    """The next one is done with the mail, which has no id: it may not come back."""
    scene.do("create")
    scene.do("put", "bob")
    scene.append("one", garbage="rubbish")
    scene.kill_at("ftruncate", "inbox/bob", "after")
    scene.do("take", killed=True)
    scene.do("take")


def mail_without_ids_is_named_where_it_stands(scene: Scene) -> None:
    """Readers are killed at each step; the next one recognizes by the ids what was delivered."""
    scene.do("create")
    scene.do("put", "bob")
    steps = (
        ("pwrite", "inbox/bob.jsonl", "after"),  # the marker
        ("sync", "inbox/bob.jsonl", "before"),
        ("sync", "inbox/bob.jsonl", "after"),
        ("rename", "bob.taken", "after"),
        ("ftruncate", "inbox/bob.jsonl", "before"),
        ("ftruncate", "inbox/bob.jsonl", "after"),
        ("sync", "transcripts/bob", "before"),
        ("sync", "transcripts/bob", "after"),
        ("unlink", "bob.taken", "before"),
        ("unlink", "bob.taken", "after"),
    )
    for number, step in enumerate(steps):
        scene.append(f"one-{number}", f"two-{number}")
        scene.kill_at(*step)
        scene.do("talk", killed=True)
        if number % 2:
            scene.append(f"three-{number}")
        scene.do("talk")
    scene.do("talk")


def mail_without_ids_comes_while_a_teammate_reads(scene: Scene) -> None:
    """What it is done with stays before the rest, with a marker between them."""
    scene.do("create")
    scene.do("put", "bob")
    scene.append("one")
    scene.do("talk_meanwhile", "a", sent=("bob", "a"))
    scene.append("two")
    scene.do("talk")
    scene.append("three")
    scene.do("talk_meanwhile", "b", sent=("bob", "b"))
    scene.do("talk")


def a_ledger_is_replaced(scene: Scene) -> None:
    """Whoever replaced it dies before the new one's name is safe; others go on in it."""
    scene.do("create")
    scene.do("limit")
    scene.do("call", asked="bob")
    scene.kill_at("rename", "ledger.jsonl", "after")
    scene.do("call_and_replace", killed=True, asked="bob")
    scene.do("call", asked="bob")


def a_limit_is_raised(scene: Scene) -> None:
    """A person was told so, and goes home: it must be so in the morning."""
    scene.do("create")
    scene.do("raise_limit", raised=5)


def a_team_is_made_half(scene: Scene) -> None:
    """Whoever makes it dies; the person goes on in what stands there, with no supervisor yet."""
    scene.kill_at("mkdir", "/tasks$", "after")
    scene.do("create", killed=True)
    scene.do("go_on", task={"id": "1"}, sent=("lead", "hi"))


def a_team_is_made_without_a_board(scene: Scene) -> None:
    """Whoever makes it dies a moment earlier; the folder is made by who adds the first task."""
    scene.kill_at("mkdir", "/tasks$", "before")
    scene.do("create", killed=True)
    scene.command("teamctl", "task", "add", "x", task={"id": "1", "subject": "x"})
    scene.command("teamctl", "task", "add", "y", task={"id": "2", "subject": "y"})


def a_board_is_begun_anew(scene: Scene) -> None:
    """Its folder was removed while a supervisor runs, who had made the name safe."""
    scene.do("create")
    scene.do("serve")
    scene.do("clear_the_board")
    scene.command("teamctl", "task", "add", "x", task={"id": "1", "subject": "x"})


def a_stranger_writes_to_a_newcomer(scene: Scene) -> None:
    """Its inbox was there before it was a member."""
    scene.do("create")
    scene.do("serve")
    scene.begin("bob", "one")
    scene.do("admit", "bob", "prompt", sent=("bob", "prompt"))


def mail_goes_to_a_half_made_team(scene: Scene) -> None:
    """Whoever made it died before any of its names was safe."""
    scene.do("create")
    scene.do("serve")
    web = scene.beside(".teams/web")
    scene.kill_at("syncdir", "web/inbox$")
    web.do("create", killed=True)
    scene.command("teamctl", "send", "lead@web", "hi", sent=("lead", "hi"), team="web")


def the_project_is_of_another_user(scene: Scene) -> None:
    """As a bind mount is to the root of a container: the name of our folder stands in theirs."""
    with scene.given_away():
        scene.do("create")
        scene.do("serve")
        scene.command("teamctl", "task", "add", "x", task={"id": "1", "subject": "x"})


def a_team_is_made_deep(scene: Scene) -> None:
    """In a folder of folders that are not there yet."""
    deep = scene.beside("deep/er/.team")
    deep.do("create")
    deep.do("go_on", task={"id": "1"}, sent=("lead", "hi"), team="deep")


def a_team_is_removed(scene: Scene) -> None:
    """It is gone, and does not come back."""
    web = scene.beside(".teams/web")
    web.do("create")
    web.do("remove", removed=True, team="web")


def a_job_is_begun(scene: Scene) -> None:
    """Its number is told, and may be no other's."""
    scene.do("create")
    scene.do("begin_job", jobs=("bob", "1"))


def a_call_that_may_not_be_repeated_is_made(scene: Scene) -> None:
    """The conversation knows that it was begun, or its teammate would do it again."""
    scene.do("create")
    scene.do("follow_reply", "once", ran="once")


def a_call_that_may_be_repeated_is_made(scene: Scene) -> None:
    """The conversation knows that it was asked for, or another call would take its place."""
    scene.do("create")
    scene.do("follow_reply", "again", ran="again")


def mail_goes_to_another_host(scene: Scene) -> None:
    """Its sender was told that it is safe, and the next one goes on in the file."""
    scene.do("create")
    scene.do("send_far", "one", crossing=1)
    scene.do("send_far", "two", crossing=2)


def a_sender_dies_and_the_postman_finds_its_mail(scene: Scene) -> None:
    """The far side has it: it must not be another line that has its number one day."""
    scene.do("create")
    scene.do("send_far", "one", crossing=1)
    scene.kill_at("sync", "outbox/h2")
    scene.do("send_far", "two", killed=True)
    scene.do("carry", crossing=2)


def an_outbox_is_emptied(scene: Scene) -> None:
    """Whatever is sent behind that stands in the file that took its place."""
    scene.do("create")
    scene.do("send_far", "one", "two" * 300)
    scene.do("carry_and_confirm")
    scene.do("send_far", "three", crossing=3)


def an_outbox_is_damaged(scene: Scene) -> None:
    """What is left of it goes on, and what it was is kept."""
    scene.do("create")
    scene.do("send_far", "one")
    scene.do("damage_outbox")
    scene.do("send_far", "two", crossing=2)
    scene.tell(kept=("hosts/outbox/h2.damaged-*", "?"))


def a_host_gets_another_name(scene: Scene) -> None:
    """What waited goes on under that name, and what is sent then behind it."""
    scene.do("create")
    scene.do("take_name", "h1")
    scene.do("send_far", "one", crossing=1)
    scene.do("take_name", "h9", kept=("hosts/name", "h9"))
    scene.do("send_far", "two", crossing=2)


def mail_comes_from_another_host(scene: Scene) -> None:
    """Its host has a receipt, and forgets it."""
    scene.do("create")
    scene.do("enlist")
    scene.do("receive", "one", received=1, sent=("bob", "one"))
    scene.do("receive", "one", "two", received=2, sent=("bob", "two"))


def mail_comes_for_nobody(scene: Scene) -> None:
    """Its host has a receipt, and forgets it; what its sender is told is on its way."""
    scene.do("create")
    scene.do("enlist")
    scene.do("receive_for_nobody", "one", "two", received=2, crossing=2)


def a_postman_dies_with_mail_in_the_inbox(scene: Scene) -> None:
    """The next one knows it, and confirms it."""
    scene.do("create")
    scene.do("enlist")
    scene.do("receive", "one", received=1, sent=("bob", "one"))
    scene.kill_at("sync", "inbox/bob")
    scene.do("receive", "one", "two", killed=True)
    scene.do("receive", "one", "two", received=2, sent=("bob", "two"))


SCENES: Final[tuple[Callable[[Scene], None], ...]] = (
    a_broker_is_set_up,
    a_host_joins,
    mail_goes_to_another_host,
    a_sender_dies_and_the_postman_finds_its_mail,
    an_outbox_is_emptied,
    an_outbox_is_damaged,
    a_host_gets_another_name,
    mail_comes_from_another_host,
    mail_comes_for_nobody,
    a_postman_dies_with_mail_in_the_inbox,
    a_call_that_may_not_be_repeated_is_made,
    a_call_that_may_be_repeated_is_made,
    a_teammate_dies_with_a_record,
    mail_comes_while_a_teammate_reads,
    who_leads_is_shut_down,
    an_agent_leads_from_now_on,
    a_conversation_goes_on_from_a_checkpoint,
    the_person_stops_reading,
    a_change_is_repeated,
    an_answer_is_repeated,
    an_answer_is_found,
    a_permission_is_found,
    an_answer_is_told_by_another,
    a_question_is_repeated,
    a_task_is_added_again,
    a_task_is_given,
    a_member_is_found,
    a_question_is_the_first_of_its_folder,
    an_agent_asks_and_goes_on,
    a_roster_is_migrated,
    a_roster_is_damaged_while_it_is_served,
    files_of_the_person_are_written,
    a_copy_is_made,
    work_is_queued,
    work_is_queued_again,
    work_is_given_back,
    a_file_is_trusted,
    a_file_of_taken_mail_is_damaged,
    a_ledger_is_repaired,
    a_stranger_makes_the_inbox,
    folders_are_made_half,
    a_line_is_rejected,
    a_reader_dies_before_its_file_is_named,
    a_reader_dies_with_the_inbox_cut_off,
    mail_without_ids_is_named_where_it_stands,
    mail_without_ids_comes_while_a_teammate_reads,
    a_ledger_is_replaced,
    a_limit_is_raised,
    a_team_is_made_half,
    a_team_is_made_without_a_board,
    a_board_is_begun_anew,
    a_stranger_writes_to_a_newcomer,
    mail_goes_to_a_half_made_team,
    the_project_is_of_another_user,
    a_team_is_made_deep,
    a_team_is_removed,
    a_job_is_begun,
)
