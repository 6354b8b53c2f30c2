"""The chat around its conversation: events since the last chat, typed lines, a stopped lead."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from teamctl.chat import lead, slash
from teamctl.chat.console import talk
from teamctl.chat.footer import Footer
from teamctl.chat.lead import Lead
from teamctl.chat.reply import LiveReply, RenderedReply, complete_blocks
from teamctl.chat.slash import SlashCompleter, SlashSuggestion, argv_of_mail
from teamctl.commands.help import read_topic
from teamctl.mail.receipts import wait_for_last_words
from teamctl.main import cli
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.board.rules import Change
from teamd.board.task import TaskStatus
from teamd.command_line.run import TeamOptions
from teamd.errors import DeadlinePassed, TeamError
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.mail.routing import MailRouter
from teamd.merges.queue import Entries, Entry, MergeState
from teamd.messages import LEAD, TEAMD
from teamd.process_id import Identity
from teamd.team.activity import Activity, Doing, write_activity
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status
from teamd.transcript import live
from tests.unit.life import enrol


@pytest.fixture
def post(paths: TeamPaths) -> MailRouter:
    return MailRouter(paths, durable=False, max_bytes=10_000)


@pytest.fixture
def asking(paths: TeamPaths, post: MailRouter) -> TeamPaths:
    """A team of two; alice asks for a plan to be approved."""
    enrol(paths, alice=Status.IDLE, bob=Status.IDLE)
    asked = Approval(id="0a1b", type=Kind.PLAN, asker="alice", to=LEAD, content="x", asked=1.0)
    Approvals(paths, post).ask(asked)
    return paths


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("/team", ["team"]),
        ("/requests", ["requests"]),
        ("/usage", ["usage"]),
        ("/approve 0a1b", ["approve", "0a1b"]),
        ("/approve 0a1b looks good", ["approve", "0a1b", "--feedback=looks good"]),
        ("/reject 0a1b --no, not so", ["reject", "0a1b", "--reason=--no, not so"]),
        ("/reject", ["reject"]),
        ("/transcript", ["transcript", "lead"]),
        ("/transcript alice", ["transcript", "alice"]),
        ("/send alice -x is wrong", ["send", "--", "alice", "-x is wrong"]),
        ("/interrupt", ["interrupt", "--", "lead"]),
        ("/interrupt alice Stop it.", ["interrupt", "--", "alice", "Stop it."]),
        ("/diff alice", ["diff", "alice"]),
        ("/queue", ["queue"]),
    ],
)
def test_a_command_is_translated_into_a_call(line: str, argv: list[str]) -> None:
    word, _, rest = line.partition(" ")
    make = slash.COMMANDS[word].argv
    assert make is not None
    assert make(rest) == argv
    command = cli.get_command(click.Context(cli), argv[0])
    assert command is not None
    if argv != ["reject"]:
        command.make_context(argv[0], argv[1:])  # the command has these options


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("/t", ["/team", "/tasks", "/transcript"]),
        ("/TRA", ["/transcript"]),
        ("/transcript ", ["alice", "bob"]),
        ("/transcript A", ["alice"]),
        ("/approve 0", ["0a1b"]),
        ("/team x", []),
        ("/send b", ["bob"]),
        ("/di", ["/diff"]),
        ("@", ["@alice", "@bob"]),
        ("@B", ["@bob"]),
        ("@bob a", []),
        ("hello @b", []),
        ("/nonsense x", []),
        ("hello /t", []),
        ("", []),
        ("/approve 0a1b looks g", []),
    ],
)
def test_a_line_is_completed(asking: TeamPaths, typed: str, found: list[str]) -> None:
    assert slash.complete(asking, typed) == found


def test_a_line_addressed_to_a_name_is_sent_as_mail() -> None:
    assert argv_of_mail("@bob Have a look.") == ["send", "--", "bob", "Have a look."]
    with pytest.raises(TeamError, match="the terminal is busy with the chat; write the text"):
        argv_of_mail("@bob -")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("/requst", "/requests"), ("/tea", "/team"), ("/aprove", "/approve"), ("/zzz", None)],
)
def test_a_misspelt_command_gets_a_suggestion(word: str, meant: str | None) -> None:
    assert slash.find_near(word) == meant


def test_the_topic_explains_every_command() -> None:
    topic = read_topic("chat")
    assert [one.usage for one in slash.COMMANDS.values() if f"`{one.usage}`" not in topic] == []


Talk = Callable[[str], list[list[str]]]


def told(paths: TeamPaths) -> list[str]:
    """Return the sentences about all events so far, without the times."""
    return [line.split(maxsplit=1)[1] for line in lead.tell(paths, 0.0)]


def test_each_event_is_described_in_a_sentence(paths: TeamPaths, post: MailRouter) -> None:
    with closing(Journal(paths.log(TEAMD), TEAMD)) as journal:
        journal.note("spawned", name="ada", role="coder")
        journal.note("failed", name="bob", reason="it crashed three times")
        journal.note("reloaded")
    enrol(paths, ada=Status.IDLE)
    board = Board(paths, post, LEAD, durable=False)
    board.add("Write it", owner="ada")
    board.add("Test it", owner="ada")
    board.update("1", Change(status=TaskStatus.COMPLETED))
    soon = time.time() + 1
    entries = [
        Entry(id="1", teammate="ada", commit="c", state=MergeState.MERGED, when=soon),
        Entry(id="2", teammate="bob", commit="c", state=MergeState.WAITING, when=soon),
    ]
    paths.queue.write_bytes(Entries(tuple(entries), 2).encode())
    Approvals(paths, post).ask(
        Approval(id="0a1b", type=Kind.PLAN, asker="cyd", to=LEAD, content="x", asked=soon + 1)
    )
    assert told(paths) == [
        "ada was spawned as coder",
        "bob failed: it crashed three times",
        "task 1 (Write it) was completed by ada",
        "the work of ada: merged",
        "cyd asked for an answer: plan_approval_request 0a1b",
    ]


def test_the_last_of_many_events_are_shown_and_the_others_counted(paths: TeamPaths) -> None:
    with closing(Journal(paths.log(TEAMD), TEAMD)) as journal:
        for number in range(11):
            journal.note("spawned", name=f"ada-{number}", role="coder")
    first, *rest = lead.tell(paths, 0.0)
    assert first.startswith("… 3 earlier ones: `teamctl ")
    assert [line.split()[1] for line in rest] == [f"ada-{number}" for number in range(3, 11)]


@pytest.fixture
def served(paths: TeamPaths) -> Iterator[None]:
    """Hold the lock of a running teamd."""
    claim = pidfile.claim(paths)
    yield
    os.close(claim)


@pytest.fixture
def chat(paths: TeamPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Return a function that sends lines to the lead and returns the commands among them."""

    def chat(lines: str) -> list[list[str]]:
        run: list[list[str]] = []
        (tmp_path / "in").write_text(lines)
        with (tmp_path / "in").open() as stdin, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stdin)
            lead = Lead(TeamOptions(team_dir=str(paths.root)), fresh=False, model=None)
            talk(lead, lambda argv: run.append([*argv]))
        return run

    return chat


def test_all_lines_of_a_file_are_read_including_the_last(paths: TeamPaths, chat: Talk) -> None:
    """An editor may leave out the final newline; an empty line is ignored."""
    enrol(paths, lead=Status.IDLE)
    assert chat("/team\n\n  \n/transcript ada") == [["team"], ["transcript", "ada"]]
    assert chat("\n/quit\n/team\n") == []
    assert not paths.has_mail(LEAD)


@pytest.mark.usefixtures("served")
def test_a_chat_does_not_wait_for_a_failed_lead(paths: TeamPaths, chat: Talk) -> None:
    member = Member(name=LEAD, agent_id="lead@project", role="lead", status=Status.FAILED)
    Roster(paths).update(lambda team: team.with_member(member))
    with pytest.raises(TeamError) as gone:
        chat("Hello.\n")
    assert str(gone.value) == "lead is failed; `teamctl chat` starts it again"
    Roster(paths).update(lambda team: team.without(LEAD))
    facts = {"role": "lead", "status": Status.SHUTDOWN, "reason": "it was time"}
    Roster(paths).update(lambda team: team.with_new(LEAD, **facts))
    with pytest.raises(TeamError, match=r"^lead is shutdown: it was time; `teamctl chat`"):
        chat("Hello?\n")
    waiting = Mailbox(paths, LEAD, durable=False).peek()
    assert [one.content for one in waiting] == ["Hello.", "Hello?"]


def test_a_chat_does_not_wait_for_the_last_words_of_a_stopped_teammate(paths: TeamPaths) -> None:
    enrol(paths, ada=Status.FAILED, bob=Status.WORKING)
    with pytest.raises(TeamError, match=r"^ada is failed; `teamctl logs ada`$"):
        wait_for_last_words(paths, "ada", "m1", 60.0)
    with pytest.raises(DeadlinePassed) as late:
        wait_for_last_words(paths, "bob", "m1", 0.0)
    hint = "`teamctl transcript bob --follow` shows what it does"
    assert str(late.value) == f"bob is still at work after 0 s; {hint}"


@pytest.mark.parametrize(
    ("typed", "rest"), [("/", None), ("/t", "eam"), ("/TE", "am"), ("/zzz", None), ("hello", None)]
)
def test_the_rest_of_a_command_is_suggested_from_its_first_letter(
    paths: TeamPaths, typed: str, rest: str | None
) -> None:
    found = SlashSuggestion(paths).get_suggestion(Buffer(), Document(typed))
    assert (None if found is None else found.text) == rest


def test_completion_in_a_damaged_team_suggests_nothing(paths: TeamPaths) -> None:
    paths.config.write_text("[]")
    typed = Document("/transcript a")
    assert list(SlashCompleter(paths).get_completions(typed, CompleteEvent())) == []
    assert SlashSuggestion(paths).get_suggestion(Buffer(), typed) is None


def test_a_reply_that_differs_from_its_partial_text_is_shown_whole_on_a_new_line(
    tmp_path: Path,
) -> None:
    """The first attempt failed, and the second was not read while it was in progress."""
    file = tmp_path / "partial"
    file.write_text("1\nI will beg")
    reply = LiveReply(file)
    assert reply.more() == "I will beg"
    assert reply.rest("No, I rest.\n") == "\nNo, I rest.\n"
    file.write_text("2\nDone")
    assert reply.more() == "Done"
    assert reply.rest("Done.") == "."


def test_a_program_gets_the_reply_without_the_thinking(tmp_path: Path) -> None:
    file = tmp_path / "partial"
    reply = LiveReply(file)
    file.write_text("a\n\x0eI look.\x0fAll")
    assert reply.more() == "All"
    assert reply.rest("\x0eI look.\x0fAll is well.") == " is well."


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("One.\n\nTwo", ["One."]),
        ("One.\n\nTwo\n\n", ["One.", "Two"]),
        ("```sh\na\n\nb\n```\n\n", ["```sh\na\n\nb\n```"]),
        ("```sh\na\n\nb\n\n", []),
        ("", []),
    ],
)
def test_a_block_of_a_reply_is_complete_after_a_blank_line(text: str, blocks: list[str]) -> None:
    """A blank line in a block of code does not end it."""
    assert [block for block, _ in complete_blocks(text)] == blocks


def test_thinking_is_a_block_of_its_own() -> None:
    said = f"{live.BEGINS}Hm.{live.ENDS}Yes."
    assert list(complete_blocks(said[:-5])) == []
    assert list(complete_blocks(said)) == [("Hm.", True)]
    assert list(complete_blocks(said, ended=True)) == [("Hm.", True), ("Yes.", False)]


def test_a_rendered_reply_is_shown_block_by_block_and_each_block_once(tmp_path: Path) -> None:
    file = tmp_path / "lead.partial"
    reply = RenderedReply(file)
    assert reply.more() == ""
    file.write_text("attempt 1\nOne.\n\nTw")
    assert (click.unstyle(reply.more()), reply.more()) == ("One.\n", "")
    assert click.unstyle(reply.rest("One.\n\nTwo.")) == "\nTwo.\n"
    file.write_text("attempt 2\nOther\x1b[31m.\n\n")
    assert click.unstyle(reply.more()) == "Other\\x1b[31m.\n"


def test_a_reply_that_begins_again_is_shown_again(tmp_path: Path) -> None:
    file = tmp_path / "lead.partial"
    reply = RenderedReply(file)
    file.write_text("attempt 1\nOne.\n\n")
    assert click.unstyle(reply.more()) == "One.\n"
    file.write_text("attempt 2\nAnother.\n\n")
    assert click.unstyle(reply.more()) == "Another.\n"
    assert click.unstyle(reply.rest("Masked.")) == "Masked.\n"


def test_thinking_is_shown_dimmed(tmp_path: Path) -> None:
    shown = RenderedReply(tmp_path / "partial").rest(f"{live.BEGINS}Hm.{live.ENDS}Yes.")
    thinking, _, said = shown.splitlines()
    assert thinking == click.style("thinking: Hm.", dim=True)
    assert click.unstyle(said) == "Yes."


def test_the_footer_shows_who_works_on_what_and_what_waits(
    asking: TeamPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    me = Identity.own()
    busy = {"role": "c", "status": Status.WORKING, "pid": me.pid, "started": me.started}
    Roster(asking).update(lambda team: team.with_new("cay", **busy))
    step = Doing(kind="tool", what="bash pytest\x1b[2J " + "x" * 80)
    write_activity(asking.activity("cay"), Activity(process=me, since=time.time(), doing=step))
    footer = Footer(asking)
    footer.look()
    first, last = footer.text.split("\n")
    assert first.startswith("cay bash pytest\\x1b[2J xxxx")
    assert first.endswith("… 0s")
    assert last == "1 request waits: /requests · 1 mail: /inbox · 0s · waiting…"
    assert {len(first), len(last)} == {59}


@pytest.mark.parametrize(
    ("word", "rest", "argv"),
    [
        ("/approve", "0a1b --always", ["approve", "0a1b", "--always"]),
        ("/approve", "0a1b Well done.", ["approve", "0a1b", "--feedback=Well done."]),
        ("/resume", "", ["resume", "lead"]),
        ("/resume", "ann --usd 1", ["resume", "ann", "--usd", "1"]),
    ],
)
def test_options_in_the_chat_reach_the_command(word: str, rest: str, argv: list[str]) -> None:
    called: list[list[str]] = []
    assert slash.obey(word, rest, lambda words: called.append([*words]))
    assert called == [argv]


def test_habits_from_other_programs_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    for word, answer in (
        ("/clear", "teamctl chat --fresh"),
        ("/cost", "/usage"),
        ("/spawn", "spawn NAME"),
    ):
        assert slash.obey(word, "", lambda _: None)
        assert answer in capsys.readouterr().err
