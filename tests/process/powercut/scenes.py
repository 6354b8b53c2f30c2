"""Short scenes without a supervisor, for situations that a whole play reaches too seldom.

A scene runs a few processes, see `deeds`, some of which are killed.
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
from types import FunctionType
from typing import Any, Final

from teamctl.main import main as teamctl
from teamd.approvals.approval import id_of
from teamd.files.paths import STATE_VARIABLE, TeamPaths
from tests.process.powercut import deeds, far
from tests.process.powercut.disk import Recording

_ROOT: Final = 0
_NOBODY: Final = 65534


class Scene:
    """The processes of one scene, in the order in which they run.

    Args:
        recording: the recording of the project.
        team: the team directory, below the project's folder.
    """

    def __init__(self, recording: Recording, team: str = ".team") -> None:
        self._recording = recording
        self._root = recording.project.folder / team

    def beside(self, team: str) -> Scene:
        """Return a scene of the same project in another team directory."""
        return Scene(self._recording, team)

    def do(self, deed: str, *arguments: str, killed_at: tuple[str, ...] = (), **told: Any) -> None:
        """Run a process until it ends, or makes the call where it is killed.

        Args:
            deed: a function of `deeds` or `far`.
            arguments: its arguments after the team's paths.
            killed_at: a call, a path, and whether the kill comes before or after the call.
            told: recorded as acknowledged then.
        """
        act = getattr(far if hasattr(far, deed) else deeds, deed)
        work = partial(act, TeamPaths(self._root), *arguments)
        self._see(deed, partial(self._fork, work), killed_at, told)

    def prepare(self, *names: str) -> None:
        """Create the team, then run some deeds, each in a process."""
        for name in ("create", *names):
            self.do(name)

    def command(self, *argv: str, killed_at: tuple[str, ...] = (), **told: Any) -> None:
        """Run a command like `do`.

        `teamctl` is forked, which writes the same; `teamd` is started, with its teammates.
        """
        forked = partial(self._fork, partial(self._be, argv))
        started = partial(self._start, argv)
        self._see(argv, forked if argv[0] == "teamctl" else started, killed_at, told)

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
        """Have another program put an invalid line and messages without ids into bob's inbox."""
        lines = [json.dumps({"from": "script", "content": content}) for content in contents]
        text = "".join(f"{line}\n" for line in [garbage, *lines] if line)
        self._recording.append(self._root / "inbox/bob.jsonl", text)
        for content in contents:
            self._recording.mark(sent=("bob", content))
        if garbage:
            self._recording.mark(garbage=("bob", garbage))

    def begin(self, name: str, content: str) -> None:
        """Have another program create an inbox with a message, which may be lost."""
        line = json.dumps({"from": "script", "content": content})
        self._recording.append(self._root / f"inbox/{name}.jsonl", f"{line}\n")

    def tell(self, **told: Any) -> None:
        self._recording.mark(**told)

    def keep_state(self, folder: str) -> None:
        """Keep the person's decisions in a folder of the project, which is recorded."""
        project = self._recording.project
        project.environment[STATE_VARIABLE] = str(project.folder / folder)

    @contextmanager
    def given_away(self) -> Iterator[None]:
        """Give the project's folder to another user, if the current user may do that."""
        folder, user = self._recording.project.folder, os.geteuid()
        if user == _ROOT:
            os.chown(folder, _NOBODY, _NOBODY)
        yield
        os.chown(folder, user, -1)

    def _see(
        self,
        what: object,
        run: Callable[[], int],
        killed_at: tuple[str, ...],
        told: dict[str, Any],
    ) -> None:
        if killed_at:
            self._recording.kill_at(*killed_at)
        assert run() == (-signal.SIGKILL if killed_at else os.EX_OK), what
        if told:
            self._recording.mark(**told)


def a_teammate_dies_with_a_record(scene: Scene) -> None:
    """It wrote the mail without a sync; the next process reads that the mail is recorded."""
    scene.prepare()
    scene.do("put", "bob", "a", sent=("bob", "a"))
    scene.do("talk", killed_at=("sync", "transcripts/bob"))
    scene.do("talk")


def mail_comes_while_a_teammate_reads(scene: Scene) -> None:
    """The mail that arrives meanwhile is the next batch; no message is read twice."""
    scene.prepare()
    scene.do("put", "bob", "a", sent=("bob", "a"))
    scene.do("talk_meanwhile", "b", sent=("bob", "b"))
    scene.do("talk_meanwhile", "c", sent=("bob", "c"))
    scene.do("talk")
    scene.do("put", "bob", "d", sent=("bob", "d"))
    scene.do("talk")
    steps = (("ftruncate", "inbox/bob.jsonl", "e"), ("unlink", "bob.taken", "g"))
    for call, place, content in steps:
        scene.do("put", "bob", content, sent=("bob", content))
        scene.do("talk", killed_at=(call, place, "after"))
    scene.do("put", "bob", "f", sent=("bob", "f"))
    scene.do("talk")


def who_leads_is_shut_down(scene: Scene) -> None:
    """The inbox then is the person's, whose conversation does not know the mail that was read."""
    scene.prepare()
    scene.do("put", "lead", "a", sent=("lead", "a"))
    scene.do("lead_for_a_while")
    scene.do("put", "lead", "b", sent=("lead", "b"))


def an_agent_leads_from_now_on(scene: Scene) -> None:
    """The inbox that the person has read then is the agent's."""
    scene.prepare("serve")
    scene.do("put", "lead", "a", sent=("lead", "a"))
    scene.command("teamctl", "inbox")
    scene.do("lead_for_a_while")


def a_conversation_goes_on_from_a_checkpoint(scene: Scene) -> None:
    """One process is killed with a summary, one with mail.

    Each next process reads from there on.
    """
    scene.prepare()
    scene.do("put", "bob", "a", sent=("bob", "a"))
    scene.do("talk")
    scene.do("sum_up", killed_at=("sync", "transcripts/bob"))
    scene.do("sum_up")
    scene.do("put", "bob", "b", sent=("bob", "b"))
    scene.do("talk", killed_at=("sync", "transcripts/bob"))
    scene.do("talk")


def the_person_stops_reading(scene: Scene) -> None:
    """A kill comes after the mail is displayed and recorded, but before the sync."""
    scene.prepare("serve")
    scene.do("put", "lead", "a", sent=("lead", "a"))
    scene.command("teamctl", "inbox", killed_at=("sync", "user.jsonl"))
    scene.command("teamctl", "inbox")


def a_change_is_repeated(scene: Scene) -> None:
    """The command was killed between rename and sync; the same command finds nothing to change."""
    scene.prepare("serve")
    scene.command("teamctl", "task", "add", "x", task={"id": "1"})
    change = ("teamctl", "task", "update", "1", "--description", "version 1")
    scene.command(*change, killed_at=("syncdir", "tasks$"))
    scene.command(*change, task={"id": "1", "version": 1})


def an_answer_is_repeated(scene: Scene) -> None:
    """The command that approves a plan is killed and repeated."""
    scene.prepare("serve", "enlist", "ask")
    scene.command("teamctl", "approve", "abcdef", killed_at=("syncdir", "requests$"))
    scene.command("teamctl", "approve", "abcdef", answered=("abcdef", "approved"))


def an_answer_is_found(scene: Scene) -> None:
    """The asker acts on an answer whose command was killed, and received no message about it."""
    scene.prepare("enlist")
    scene.do("ask", plans="abcdef")
    scene.do("serve")
    scene.command("teamctl", "approve", "abcdef", killed_at=("syncdir", "requests$"))
    scene.do("act", opened="abcdef")


def a_permission_is_found(scene: Scene) -> None:
    """A call runs after an approval whose command was killed."""
    permission = id_of("key-permission", "")
    scene.prepare("enlist")
    scene.do("ask_permission", plans=permission)
    scene.do("serve")
    scene.command("teamctl", "approve", permission, killed_at=("syncdir", "requests$"))
    scene.do("permitted", opened=permission)


def an_answer_is_told_by_another(scene: Scene) -> None:
    """Another process sends mail about the answer, which a power cut must not take back."""
    scene.prepare("enlist")
    scene.do("ask", plans="abcdef")
    scene.do("serve")
    scene.command("teamctl", "approve", "abcdef", killed_at=("syncdir", "requests$"))
    scene.do("repeat", answered=("abcdef", "approved"))


def a_question_is_repeated(scene: Scene) -> None:
    """A process is killed after it has written the question, and the next one repeats it."""
    scene.prepare("enlist")
    scene.do("ask", killed_at=("syncdir", "requests$"))
    scene.do("ask", plans="abcdef")


def a_task_is_added_again(scene: Scene) -> None:
    """The repeated call finds the task that the killed one has added."""
    scene.prepare()
    scene.do("add_once", killed_at=("syncdir", "tasks$"))
    scene.do("add_once", task={"id": "1", "subject": "x"})


def a_task_is_given(scene: Scene) -> None:
    """The command is killed after the change; another process informs the new owner."""
    scene.prepare("enlist", "serve")
    scene.command("teamctl", "task", "add", "x", task={"id": "1", "subject": "x"})
    give = ("teamctl", "task", "update", "1", "--owner", "bob")
    scene.command(*give, killed_at=("syncdir", "tasks$"))
    scene.do("flush", task={"id": "1", "owner": "bob"})


def a_member_is_found(scene: Scene) -> None:
    """The next supervisor relies on a roster that was renamed into place without a sync."""
    scene.prepare()
    scene.do("enlist", spawned="bob")
    scene.do("reign", unwanted="bob")
    scene.do("enlist", "shutdown", killed_at=("syncdir", r"^\.team$"))
    scene.do("reign", shut="bob")


def a_question_is_the_first_of_its_folder(scene: Scene) -> None:
    """The folder was removed while a supervisor runs."""
    scene.prepare("enlist", "serve", "clear_the_requests")
    scene.do("ask", plans="abcdef")


def an_agent_asks_and_goes_on(scene: Scene) -> None:
    """The agent has read that its request is done, and will not ask again."""
    scene.prepare()
    scene.do("ask_teamd", kept=("inbox/teamd.jsonl", "{"))
    scene.do("enlist")
    scene.do("enlist", "shutdown")
    scene.do("enlist")


def a_roster_is_migrated(scene: Scene) -> None:
    """The roster of the earlier version is kept."""
    scene.prepare("write_old_roster")
    scene.do("reign", kept=("config.format-0.json", "{"))
    scene.do("enlist", spawned="bob")


def a_roster_is_damaged_while_it_is_served(scene: Scene) -> None:
    """The supervisor's roster replaces the damaged file, which is kept."""
    scene.prepare("enlist")
    scene.tell(damaged=True)
    scene.do("damage_roster_and_end_bob", kept=("config.damaged-*.json", "?"))
    scene.tell(spawned="bob", unwanted="bob", shut="bob")


def files_of_the_person_are_written(scene: Scene) -> None:
    """The person writes a file, and an agent writes one and reports it."""
    scene.prepare()
    scene.command("teamctl", "init", written=("team.toml", "#"))
    scene.do("write_file", written=("deep/file", "done"))
    scene.do("rewrite_file", written=("deep/file", "done again"))
    scene.do("rewrite_linked_file", written=("deep/file", "done again and linked"))
    scene.command("teamd", "start")
    scene.command("teamctl", "spawn", "bob", "clerk", "Go.", "--save", "--wait")
    scene.tell(written=("team.toml", "#"), spawned="bob")
    scene.command("teamd", "stop")


def a_copy_is_made(scene: Scene) -> None:
    """The person was told that a teammate works in the copy, which must exist the next day."""
    scene.do("make_repository")
    scene.prepare()
    scene.command("teamd", "start")
    scene.command("teamctl", "spawn", "bob", "clerk", "Go.", "--worktree")
    scene.tell(spawned="bob", copied="bob")
    scene.command("teamd", "stop")


def work_is_queued(scene: Scene) -> None:
    """The folder of the board was removed and is created again with the queue."""
    scene.prepare("serve", "clear_the_board")
    scene.do("queue_work", queued=("1", "waiting"))


def work_is_queued_again(scene: Scene) -> None:
    """A process is killed after it has written the entry, and the next one repeats it."""
    scene.prepare()
    scene.do("queue_work", killed_at=("syncdir", "tasks$"))
    scene.do("queue_work", queued=("1", "waiting"))


def work_is_given_back(scene: Scene) -> None:
    """The process that finishes the entry is killed; another process informs the teammate."""
    scene.prepare("enlist")
    scene.do("queue_work", queued=("1", "waiting"))
    scene.do("give_work_back", killed_at=("syncdir", "tasks$"))
    scene.do("flush_queue", queued=("1", "failed"))


def a_file_is_trusted(scene: Scene) -> None:
    """The person was told that the settings of the file are in force."""
    scene.prepare()
    scene.keep_state("deep")
    scene.command("teamctl", "init", written=("team.toml", "#"))
    scene.command("teamctl", "trust", written=("deep/teamd/trust/*.json", "{"))


def a_broker_is_set_up(scene: Scene) -> None:
    """The person was told the places of keys, certificates and tokens.

    They cannot be created again.
    """
    scene.prepare()
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
    """The person deletes the token after that."""
    scene.prepare()
    scene.keep_state("deep")
    scene.do("issue_token")
    scene.command("teamctl", "hosts", "join", "h2.token", written=("team.toml", "#"))
    for name in ("host.crt", "host.key", "ca.crt"):
        scene.tell(kept=(f"hosts/keys/{name}", "-----BEGIN"))


def a_file_of_taken_mail_is_damaged(scene: Scene) -> None:
    """For example by the disk. The next start has the mail delivered again."""
    scene.prepare()
    scene.do("put", "bob", "a", sent=("bob", "a"))
    for _ in range(2):  # the second reader moves the mail out of the inbox
        scene.do("take_only")
    scene.tell(damaged=True)
    scene.do("damage")
    scene.do("mend")


def a_ledger_is_repaired(scene: Scene) -> None:
    """The repair is killed and repeated; the limits still count the earlier calls."""
    scene.prepare("limit")
    scene.do("call", asked="bob")
    scene.do("note_call")
    scene.tell(damaged=True)
    scene.do("damage_ledger")
    scene.do("mend", killed_at=("rename", "ledger.jsonl$"))
    scene.do("mend", kept=("ledger.jsonl.damaged-*", "?"))


def a_stranger_makes_the_inbox(scene: Scene) -> None:
    """A foreign program syncs no directory; mail that our code appends is safe nevertheless."""
    scene.prepare("enlist")
    scene.begin("bob", "one")
    scene.command("teamctl", "send", "bob", "hello", sent=("bob", "hello"))
    scene.do("serve")
    scene.begin("lead", "two")
    scene.command("teamctl", "send", "lead", "hi", sent=("lead", "hi"))


def folders_are_made_half(scene: Scene) -> None:
    """The folders above the team directory, and the folder of a teammate's jobs."""
    deep = scene.beside("deep/er/.team")
    deep.do("create", killed_at=("mkdir", "^deep/er$", "after"))
    deep.do("create")
    deep.do("go_on", task={"id": "1"}, sent=("lead", "hi"), team="deep")
    scene.prepare()
    scene.do("begin_job", killed_at=("mkdir", "jobs/bob$", "after"))
    scene.do("begin_job", jobs=("bob", "1"))


def a_line_is_rejected(scene: Scene) -> None:
    """The invalid line lies before the reader's position; the reader keeps the file."""
    scene.prepare()
    scene.do("put", "bob")
    scene.append("one", "two", garbage="rubbish")
    scene.do("take", "1")


def a_reader_dies_before_its_file_is_named(scene: Scene) -> None:
    """The next reader empties the inbox and reads only that file; or new mail waits behind it."""
    scene.prepare()
    scene.do("put", "bob")
    for number, later in enumerate([(), ("two",)]):
        scene.append(f"one-{number}", garbage=f"rubbish-{number}")
        scene.do("take", killed_at=("rename", "bob.taken", "after"))
        for content in later:
            scene.append(content)
        scene.do("take")
    scene.do("take")


def a_reader_dies_with_the_inbox_cut_off(scene: Scene) -> None:
    """The next reader marks the mail as done; without an id, the mail must not come back."""
    scene.prepare()
    scene.do("put", "bob")
    scene.append("one", garbage="rubbish")
    scene.do("take", killed_at=("ftruncate", "inbox/bob", "after"))
    scene.do("take")


def mail_without_ids_is_named_where_it_stands(scene: Scene) -> None:
    """Readers are killed at each step; the next one recognizes delivered mail by its ids."""
    scene.prepare()
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
        scene.do("talk", killed_at=step)
        if number % 2:
            scene.append(f"three-{number}")
        scene.do("talk")
    scene.do("talk")


def mail_without_ids_comes_while_a_teammate_reads(scene: Scene) -> None:
    """The processed mail remains before the rest, with a marker between them."""
    scene.prepare()
    scene.do("put", "bob")
    scene.append("one")
    scene.do("talk_meanwhile", "a", sent=("bob", "a"))
    scene.append("two")
    scene.do("talk")
    scene.append("three")
    scene.do("talk_meanwhile", "b", sent=("bob", "b"))
    scene.do("talk")


def a_ledger_is_replaced(scene: Scene) -> None:
    """The process is killed before the new file's name is safe; others continue in that file."""
    scene.prepare("limit")
    scene.do("call", asked="bob")
    scene.do("call_and_replace", killed_at=("rename", "ledger.jsonl", "after"), asked="bob")
    scene.do("call", asked="bob")


def a_limit_is_raised(scene: Scene) -> None:
    """The person was told about it, so it must be in force the next day."""
    scene.prepare()
    scene.do("raise_limit", raised=5)


def a_team_is_made_half(scene: Scene) -> None:
    """The creating process is killed; the person continues without a supervisor."""
    scene.do("create", killed_at=("mkdir", "/tasks$", "after"))
    scene.do("go_on", task={"id": "1"}, sent=("lead", "hi"))


def a_team_is_made_without_a_board(scene: Scene) -> None:
    """The creating process is killed a moment earlier; the first new task creates the folder."""
    scene.do("create", killed_at=("mkdir", "/tasks$", "before"))
    scene.command("teamctl", "task", "add", "x", task={"id": "1", "subject": "x"})
    scene.command("teamctl", "task", "add", "y", task={"id": "2", "subject": "y"})


def a_board_is_begun_anew(scene: Scene) -> None:
    """The folder was removed while a supervisor runs that had made its name safe."""
    scene.prepare("serve", "clear_the_board")
    scene.command("teamctl", "task", "add", "x", task={"id": "1", "subject": "x"})


def a_stranger_writes_to_a_newcomer(scene: Scene) -> None:
    """The inbox existed before its owner was a member."""
    scene.prepare("serve")
    scene.begin("bob", "one")
    scene.do("admit", "bob", "prompt", sent=("bob", "prompt"))


def mail_goes_to_a_half_made_team(scene: Scene) -> None:
    """The creating process was killed before any of the names was safe."""
    scene.prepare("serve")
    web = scene.beside(".teams/web")
    web.do("create", killed_at=("syncdir", "web/inbox$"))
    scene.command("teamctl", "send", "lead@web", "hi", sent=("lead", "hi"), team="web")


def the_project_is_of_another_user(scene: Scene) -> None:
    """As a bind mount is for root in a container: our folder's name is in a folder of theirs."""
    with scene.given_away():
        scene.prepare()
        scene.do("serve")
        scene.command("teamctl", "task", "add", "x", task={"id": "1", "subject": "x"})


def a_team_is_made_deep(scene: Scene) -> None:
    """The team directory is in a folder whose parents do not exist yet."""
    deep = scene.beside("deep/er/.team")
    deep.do("create")
    deep.do("go_on", task={"id": "1"}, sent=("lead", "hi"), team="deep")


def a_team_is_removed(scene: Scene) -> None:
    """The team is gone and does not come back."""
    web = scene.beside(".teams/web")
    web.do("create")
    web.do("remove", removed=True, team="web")


def a_job_is_begun(scene: Scene) -> None:
    """The number of the job is reported and must not be used again."""
    scene.prepare()
    scene.do("begin_job", jobs=("bob", "1"))


def a_call_that_may_not_be_repeated_is_made(scene: Scene) -> None:
    """The conversation records the start of the call, or the teammate would repeat it."""
    scene.prepare()
    scene.do("follow_reply", "once", ran="once")


def a_call_that_may_be_repeated_is_made(scene: Scene) -> None:
    """The conversation records the request, or another call would replace it."""
    scene.prepare()
    scene.do("follow_reply", "again", ran="again")


def mail_goes_to_another_host(scene: Scene) -> None:
    """The sender was told that the mail is safe, and the next sender continues in the file."""
    scene.prepare()
    scene.do("send_far", "one", crossing=1)
    scene.do("send_far", "two", crossing=2)


def a_sender_dies_and_the_postman_finds_its_mail(scene: Scene) -> None:
    """The mail before it stays safe, and the next sender continues in the file."""
    scene.prepare()
    scene.do("send_far", "one", crossing=1)
    scene.do("send_far", "two", killed_at=("sync", "outbox/h2"))
    scene.do("carry")
    scene.do("send_far", "three", crossing=2)


def an_outbox_is_emptied(scene: Scene) -> None:
    """Mail that is sent after that is in the file that replaced the outbox."""
    scene.prepare()
    scene.do("send_far", "one", "two" * 300)
    scene.do("carry_and_confirm")
    scene.do("send_far", "three", crossing=3)


def an_outbox_is_damaged(scene: Scene) -> None:
    """The rest of the outbox is sent, and the damaged line is kept."""
    scene.prepare()
    scene.do("send_far", "one")
    scene.do("damage_outbox")
    scene.do("send_far", "two", crossing=1)
    scene.do("carry", kept=("hosts/outbox/h2.rejected.jsonl", "?"))


def a_host_gets_another_name(scene: Scene) -> None:
    """Waiting mail continues under the new name, and new mail is sent after it."""
    scene.prepare()
    scene.do("take_name", "h1")
    scene.do("send_far", "one", crossing=1)
    scene.do("take_name", "h9", kept=("hosts/name", "h9"))
    scene.do("send_far", "two", crossing=2)


def mail_comes_from_another_host(scene: Scene) -> None:
    """The other host has a receipt and forgets the mail."""
    scene.prepare("enlist")
    scene.do("receive", "one", received=1, sent=("bob", "one"))
    scene.do("receive", "one", "two", received=2, sent=("bob", "two"))


def mail_comes_for_nobody(scene: Scene) -> None:
    """The other host has a receipt and forgets the mail; the report to its sender is on its way."""
    scene.prepare("enlist")
    scene.do("receive_for_nobody", "one", "two", received=2, crossing=2)


def a_postman_dies_with_mail_in_the_inbox(scene: Scene) -> None:
    """The next postman recognizes the mail and confirms it."""
    scene.prepare("enlist")
    scene.do("receive", "one", received=1, sent=("bob", "one"))
    scene.do("receive", "one", "two", killed_at=("sync", "inbox/bob"))
    scene.do("receive", "one", "two", sent=("bob", "two"))


SCENES: Final[tuple[Callable[[Scene], None], ...]] = tuple(
    scene
    for scene in globals().values()
    if isinstance(scene, FunctionType) and scene.__module__ == __name__
)
