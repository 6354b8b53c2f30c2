"""The actions of a process in a scene."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from teamd.agent.approvals import Plans
from teamd.agent.conversation.compaction import Compaction
from teamd.agent.conversation.conversation import Conversation
from teamd.agent.permissions import Permissions
from teamd.agent.turn import Repeats, follow
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.budget.account import Reservation
from teamd.budget.accounts import Terms
from teamd.budget.ledger import Ledger
from teamd.control import Asking
from teamd.files import find_team, pidfile
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.mail.spool import BatchLimit
from teamd.merges.queue import Entry, MergeState, Queue, refused
from teamd.messages import Message
from teamd.model_server import Usage
from teamd.models import Reply
from teamd.models.scripted import Scripted
from teamd.process_id import Identity
from teamd.programs import Sink
from teamd.recovery import repair
from teamd.settings.known_tools import KnownTool
from teamd.settings.schema import ModelSettings, Permission
from teamd.supervisor.roster_in_memory import RosterWriter
from teamd.team import teams
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.tools import Input, PermissionPending, Tool, Toolbox
from teamd.tools.background import Jobs
from teamd.tools.shell import BashInput
from teamd.tools.text_file import TextFile
from teamd.tools.workspace import Workspace
from teamd.transcript.file import Transcript
from teamd.transcript.records import Delivered, Opened, Replied
from tests import repositories
from tests.hosts.brokers import Town

_LONG: Final = 1 << 20


def create(paths: TeamPaths) -> None:
    paths.create()


def make_repository(paths: TeamPaths) -> None:
    """Make the project a repository, as the person does."""
    repositories.make_repository(paths.home)


def issue_token(paths: TeamPaths) -> None:
    """Bring a token here that a broker elsewhere has issued."""
    with TemporaryDirectory() as elsewhere:
        town = Town.found(Path(elsewhere), {"project": ["h1", "h2"]})
        token = town.broker.issue(town.record, "project", "h2")
    (paths.home / "h2.token").write_bytes(token.encode())


def serve(paths: TeamPaths) -> None:
    """Be the team's supervisor for a moment."""
    pidfile.claim(paths)


def go_on(paths: TeamPaths) -> None:
    """Add a task and send mail in an existing team directory, as a command does."""
    found = find_team.existing(str(paths.root))
    Board(found, _post(found), "lead").add("x")
    put(found, "lead", "hi")


def clear_the_board(paths: TeamPaths) -> None:
    """Remove the folder of tasks, as a person may."""
    for path in paths.tasks.iterdir():
        path.unlink()
    paths.tasks.rmdir()
    _sync_folder(paths.root)


def admit(paths: TeamPaths, name: str, prompt: str) -> None:
    """Create an inbox and prompt a new member, as a spawn does."""
    Mailbox(paths, name).create()
    put(paths, name, prompt)


def put(paths: TeamPaths, to: str, *contents: str) -> None:
    """Send mail; without contents, only create the inbox."""
    messages = (Message(sender="eve", to=to, content=content) for content in contents)
    Mailbox(paths, to).put(*messages)


def take(paths: TeamPaths, most: str = "") -> None:
    """Read mail as its owner does, and record it without checking for repeats."""
    box = Mailbox(paths, "bob")
    batch = box.take(BatchLimit(messages=int(most) if most else None))
    if batch.messages:
        kept = Delivered(messages=tuple(batch.messages))
        Transcript(paths.transcript("bob")).append(kept)
    box.done(batch)


def take_only(paths: TeamPaths) -> None:
    """Take mail, and end before it is processed."""
    Mailbox(paths, "bob").take(BatchLimit(wary=True))


def talk(paths: TeamPaths, name: str = "bob") -> None:
    """Read mail as a teammate does, whose conversation recognizes repeated messages."""
    conversation = Conversation(Transcript(paths.transcript(name)))
    box = Mailbox(paths, name)
    batch = box.take()
    if fresh := [message for message in batch.messages if not conversation.has_seen(message)]:
        conversation.deliver(fresh)
    conversation.settle()
    box.done(batch)


def talk_meanwhile(paths: TeamPaths, content: str) -> None:
    """Read mail as a teammate does, while another message arrives."""
    conversation, box = _bob(paths), Mailbox(paths, "bob")
    batch = box.take(BatchLimit(wary=True))
    put(paths, "bob", content)
    conversation.deliver(batch.messages)
    conversation.settle()
    box.done(batch)


def lead_for_a_while(paths: TeamPaths) -> None:
    """Have an agent lead, read its mail, and shut down."""
    roster = RosterWriter(_post(paths), Journal(paths.log("teamd"), "teamd"), team_name="project")
    roster.admit("lead", "lead")
    roster.publish()
    talk(paths, "lead")
    roster.change("lead", status=Status.SHUTDOWN)
    roster.publish()


def sum_up(paths: TeamPaths) -> None:
    """Summarise bob's conversation, which writes a checkpoint."""
    _bob(paths).summarise("You are 'bob'.", text="So far.", reply=None)


def enlist(paths: TeamPaths, status: str = "idle") -> None:
    """Enter bob, who works by plan, in the roster, or change his status."""
    bob = Member(name="bob", role="clerk", agent_id="bob@x", status=Status(status), plan=True)
    Roster(paths).update(lambda team: team.with_member(bob))


def reign(paths: TeamPaths) -> None:
    """Read the roster as a starting supervisor does."""
    RosterWriter(_post(paths), Journal(paths.log("teamd"), "teamd"), team_name="project")


def write_old_roster(paths: TeamPaths) -> None:
    """Write the roster as an old version without format numbers did."""
    _write(paths.config, b'{"team_name": "project", "members": []}')


def damage_roster_and_end_bob(paths: TeamPaths) -> None:
    """Publish a supervisor's roster over a file that was damaged meanwhile."""
    roster = RosterWriter(_post(paths), Journal(paths.log("teamd"), "teamd"), team_name="project")
    _write(paths.config, b"?")
    roster.change("bob", status=Status.SHUTDOWN)
    roster.publish()


def write_file(paths: TeamPaths) -> None:
    TextFile(Workspace(paths.home, hidden=[]), "deep/file").replace(b"done")


def rewrite_file(paths: TeamPaths) -> None:
    """Replace the content of a file with an agent's tool."""
    TextFile(Workspace(paths.home, hidden=[]), "deep/file").replace(b"done again")


def rewrite_linked_file(paths: TeamPaths) -> None:
    """Replace the content of a file with a second hard link, which is written in place."""
    (paths.home.parent / "link").hardlink_to(paths.home / "deep/file")
    TextFile(Workspace(paths.home, hidden=[]), "deep/file").replace(b"done again and linked")


def ask_teamd(paths: TeamPaths) -> None:
    """Send a request to the supervisor without waiting for its reply, as an agent's tool does."""
    pidfile.claim(paths)
    Asking(paths, "lead").begin("shutdown", {"name": "bob"}, key="x", seconds=60)


def clear_the_requests(paths: TeamPaths) -> None:
    """Remove the folder of requests, as a person may."""
    for path in paths.requests.iterdir():
        path.unlink()
    paths.requests.rmdir()
    _sync_folder(paths.root)


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.pwrite(fd, data, 0)
    os.fsync(fd)
    os.close(fd)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def ask(paths: TeamPaths) -> None:
    """Have bob submit a plan for his task."""
    task = _bob(paths).task
    plan = Approval(
        id="abcdef", type=Kind.PLAN, asker="bob", to="lead", content="x", asked=1.0, task=task
    )
    Approvals(paths, _post(paths)).ask(plan)


def act(paths: TeamPaths) -> None:
    """Have bob act, which requires an approved plan."""
    approvals, roster = Approvals(paths, _post(paths)), Roster(paths)
    plans = Plans(name="bob", conversation=_bob(paths), approvals=approvals, roster=roster)
    assert plans.refusal("bash") is None


def ask_permission(paths: TeamPaths) -> None:
    with suppress(PermissionPending):
        permitted(paths)
        raise AssertionError


def permitted(paths: TeamPaths) -> None:
    """Have bob run a call that requires the person's permission."""
    Permissions(
        name="bob",
        rules=(Permission(tool="bash", then="ask"),),
        ask_seconds=86_400.0,
        approvers=(),
        workspace=Workspace(paths.home, hidden=[]),
        approvals=Approvals(paths, _post(paths)),
        paths=paths,
        journal=Journal(paths.log("bob"), "bob"),
        person=lambda: "lead",
    ).check("bash", BashInput(command="make"), "key")


def repeat(paths: TeamPaths) -> None:
    """Repeat the mail that a killed process may not have sent."""
    assert list(Approvals(paths, _post(paths)).repeat())


def add_once(paths: TeamPaths) -> None:
    """Add a task by a call that may be repeated."""
    Board(paths, _post(paths), "bob").add("x", key="once")


def flush(paths: TeamPaths) -> None:
    """Send the mail about unreported changes to the board."""
    assert Board(paths, _post(paths), "lead").flush()


def queue_work(paths: TeamPaths) -> None:
    """Add a commit of bob to the merge queue."""
    _queue(paths).add(Entry(id="", teammate="bob", commit="1" * 40, title="x"), lambda _: None)


def give_work_back(paths: TeamPaths) -> None:
    """Finish the entry of that commit, and inform bob."""
    queue = _queue(paths)
    [entry] = queue.read().open
    mail = refused(entry, "main", "it is none")
    assert queue.finish(entry.id, MergeState.FAILED, "it is none", mail=mail)


def flush_queue(paths: TeamPaths) -> None:
    """Send the mail about unreported results in the queue."""
    _queue(paths).flush()
    assert Mailbox(paths, "bob").waiting()


def _queue(paths: TeamPaths) -> Queue:
    return Queue(Board(paths, _post(paths), "teamd"))


def _bob(paths: TeamPaths) -> Conversation:
    return Conversation(Transcript(paths.transcript("bob")))


def _post(paths: TeamPaths) -> MailRouter:
    return MailRouter(paths, durable=True, max_bytes=_LONG)


def limit(paths: TeamPaths) -> None:
    """Set a limit, so that calls make reservations."""
    Ledger(paths.ledger).agree(Terms(team_tokens=1000))


def raise_limit(paths: TeamPaths) -> None:
    ledger = Ledger(paths.ledger)
    ledger.agree(Terms(team_tokens=1))
    assert ledger.reserve(_call()) is not None
    assert ledger.raise_limits("bob", {"tokens": Decimal(5)})[0]


def call(paths: TeamPaths) -> None:
    """Reserve the maximum cost of a model call."""
    _reserve(paths, _LONG)


def call_and_replace(paths: TeamPaths) -> None:
    """Reserve the cost of a call and settle it in a ledger that is over its maximum length."""
    _reserve(paths, 1)


def _reserve(paths: TeamPaths, longest_bytes: int) -> None:
    ledger: Ledger = Ledger(paths.ledger, longest_bytes=longest_bytes)
    kept = _call()
    assert ledger.reserve(kept) is None
    if longest_bytes < _LONG:
        ledger.settle(kept, None)


def _call() -> Reservation:
    return Reservation(
        id=os.urandom(4).hex(),
        teammate="bob",
        process=Identity.own(),
        model="m",
        input_tokens=1,
        output_tokens=1,
        usd=Decimal(0),
    )


def begin_job(paths: TeamPaths) -> None:
    async def work(_: Sink) -> str:
        return "ended"

    async def main() -> None:
        Jobs(paths.jobs("bob"), ring=lambda: None).start("make", work)

    asyncio.run(main())


def remove(paths: TeamPaths) -> None:
    teams.remove(paths)


def damage(paths: TeamPaths) -> None:
    """Overwrite the beginning of the file of taken mail with garbage."""
    fd = os.open(paths.taken("bob"), os.O_RDWR)
    os.pwrite(fd, b"?", 0)
    os.fsync(fd)
    os.close(fd)


def note_call(paths: TeamPaths) -> None:
    """Record a reply of the model and its usage."""
    reply = Replied(model="m", usage=Usage(input_tokens=1, output_tokens=1))
    Transcript(paths.transcript("bob")).append(reply)


class Word(Input):
    """The input of the tools in this module."""

    command: str


class Once(Tool[Word]):
    """A tool whose calls must not be repeated."""

    name = "once"
    description = "Do it."

    async def call(self, arguments: Word, _key: str) -> str:
        return arguments.command


class Again(Tool[Word]):
    """A tool whose calls may be repeated, each only by the same call."""

    name = "again"
    facts = KnownTool(acts=True, repeatable=True)
    description = "Do it."

    async def call(self, arguments: Word, _key: str) -> str:
        return arguments.command


def follow_reply(paths: TeamPaths, tool: str) -> None:
    """Have bob's model call a tool, and run it."""
    conversation = _bob(paths)
    conversation.open(Opened(name="bob", system="You are 'bob'."))
    conversation.add_note("Go.")
    call = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {"command": tool}}
    conversation.add_reply(Reply(content=[call], stop_reason="tool_use", model="m"))
    talk = Compaction(
        conversation=conversation,
        model=Scripted(paths.root / "none"),
        toolbox=Toolbox([Once(), Again()]),
        settings=ModelSettings(),
        model_name=lambda _: "m",
    )
    asyncio.run(follow(talk, lambda run: run, Repeats(talk.toolbox)))


def damage_ledger(paths: TeamPaths) -> None:
    """Overwrite the beginning of the ledger with garbage."""
    fd = os.open(paths.ledger, os.O_RDWR)
    os.pwrite(fd, b"?", 0)
    os.fsync(fd)
    os.close(fd)


def mend(paths: TeamPaths) -> None:
    """Move damaged files aside, as a start does."""
    assert list(repair(paths, lambda *_: None))
