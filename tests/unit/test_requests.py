"""The supervisor's answers to requests that it refuses, or that change no process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.board.board import Board
from teamd.budget.account import Reservation
from teamd.budget.accounts import Terms
from teamd.clocks import Deadline
from teamd.control import ControlReply, ControlRequest
from teamd.errors import ExitCode, NotAMessage, SettingsError, StoreError, TeamError
from teamd.files.paths import TeamPaths
from teamd.files.watch import watch
from teamd.journal import Journal
from teamd.mail.mailbox import Batch, Mailbox
from teamd.messages import INTERRUPT_TYPE, TEAMD, USER
from teamd.process_id import Identity
from teamd.settings.trust import TrustStore
from teamd.supervisor.handlers import carry_out
from teamd.supervisor.inbox import ControlInbox
from teamd.supervisor.live_settings import when_it_counts
from teamd.supervisor.orphans import OrphanedTasks
from teamd.supervisor.pricing import current_price
from teamd.supervisor.team_context import TeamContext
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.children import make_context
from tests.unit.life import enrol


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    enrol(made, ann=Status.IDLE, bob=Status.WORKING, cy=Status.SHUTDOWN)
    return made


@pytest.fixture
def context(paths: TeamPaths) -> Iterator[TeamContext]:
    """The context of a team whose processes are not forked yet."""
    with closing(Journal(paths.log(TEAMD), TEAMD)) as journal:
        yield make_context(paths, journal)


@pytest.fixture
def inbox(context: TeamContext, paths: TeamPaths) -> Iterator[ControlInbox]:
    with closing(watch(paths.tasks)) as tasks:
        board = Board(paths, context.post, TEAMD, durable=False)
        orphaned = OrphanedTasks(board, tasks, context.journal)
        yield ControlInbox(context, orphaned, Mailbox(paths, TEAMD, durable=False))


def request(command: str, sender: str = USER, **arguments: Any) -> ControlRequest:
    return ControlRequest.within(60.0, command, arguments=arguments, sender=sender)


def ask(context: TeamContext, command: str, sender: str = USER, **arguments: Any) -> ControlReply:
    """Carry out a request that is answered at once."""
    given: list[ControlReply] = []
    carry_out(context, request(command, sender, **arguments), given.append)
    (reply,) = given
    return reply


def collected(inbox: ControlInbox, wanted: ControlRequest) -> ControlReply:
    """Return and remove the reply to a request."""
    file = inbox.context.settings.paths.replies / f"{wanted.id}.json"
    content = file.read_bytes()
    file.unlink()
    return ControlReply.decode(content)


def spoil(context: TeamContext) -> None:
    """Make every write of the roster fail: a folder is in place of its lock."""
    config = context.settings.paths.config
    config.unlink()
    config.mkdir()


@pytest.mark.parametrize("seconds", [None, True, "10", -1, 86_401, float("nan"), float("inf")])
def test_a_shutdown_takes_seconds_within_a_day(context: TeamContext, seconds: Any) -> None:
    with pytest.raises(NotAMessage, match="the deadline of a shutdown must be 0 to 86400 seconds"):
        ask(context, "shutdown", name="ann", seconds=seconds)
    assert context.roster.team.get("ann").status is Status.IDLE


def test_a_teammate_without_a_process_is_shut_down_at_once(context: TeamContext) -> None:
    given = ask(context, "shutdown", name="ann", seconds=5)
    assert (given.text, given.exit_code) == ("ann is shut down", ExitCode.DONE)
    assert Roster(context.settings.paths).read().get("ann").status is Status.SHUTDOWN


def test_several_teammates_are_shut_down_by_one_request(context: TeamContext) -> None:
    given = ask(context, "shutdown", names=["ann", "CY", "ann"], seconds=5)
    ended = [(one["name"], one["exit_code"]) for one in given.data["members"]]
    assert ended == [("ann", ExitCode.DONE), ("cy", ExitCode.DONE)]
    with pytest.raises(TeamError, match="no teammate named 'zoe'"):
        ask(context, "shutdown", names=["bob", "zoe"], seconds=5)
    assert context.roster.team.get("bob").status is Status.WORKING, "nobody was asked"
    for names in ("bob", [7], {"bob": 1}):
        with pytest.raises(NotAMessage, match="the names of a shutdown must be a list of strings"):
            ask(context, "shutdown", names=names, seconds=5)


def test_an_agent_whose_request_cannot_be_written_is_informed_by_mail(
    context: TeamContext,
) -> None:
    """It has continued meanwhile, and reads no reply."""
    requests = context.settings.paths.requests
    requests.rmdir()
    requests.write_text("a file")
    given = ask(context, "shutdown", "lead", name="ann", seconds=5, by_mail=True)
    assert given.exit_code == ExitCode.REFUSED
    assert given.text.startswith("ann could not be asked: ")
    context.roster.publish()
    (told,) = Mailbox(context.settings.paths, "lead").peek()
    assert told.content == given.text
    assert context.roster.team.get("ann").status is Status.IDLE


@pytest.mark.parametrize("text", [7, None, ["stop"], {"stop": 1}])
def test_an_interrupt_whose_text_is_not_a_string_is_not_delivered(
    context: TeamContext, text: Any
) -> None:
    with pytest.raises(NotAMessage, match="the text of an interrupt must be a string"):
        ask(context, "interrupt", name="bob", text=text)
    assert not context.post.inbox("bob").peek()


def test_an_interrupt_of_a_paused_teammate_says_that_it_stays_paused(context: TeamContext) -> None:
    ask(context, "pause", name="bob")
    given = ask(context, "interrupt", name="bob", text="Stop that.")
    assert given.text.startswith("bob is interrupted, and reads your text next; it is paused")
    (mail,) = context.post.inbox("bob").peek()
    assert (mail.type, mail.content) == (INTERRUPT_TYPE, "Stop that.")


def test_an_agent_cannot_end_a_pause_of_the_person(context: TeamContext) -> None:
    """A second pause does not change that: only the person ends the person's pause."""
    ask(context, "pause", name="ann")
    again = ask(context, "pause", "lead", name="ann")
    assert again.text.startswith("ann is paused until `teamctl resume ann`")
    assert again.data["member"]["paused_by"] == USER
    with pytest.raises(TeamError, match="ann was not paused by you, and you cannot resume it"):
        ask(context, "resume", "lead", name="ann")
    assert ask(context, "resume", name="ann").text == "ann goes on"
    assert Roster(context.settings.paths).read().get("ann").paused_by is None


@pytest.mark.parametrize("command", ["pause", "resume", "remove"])
def test_a_change_that_cannot_be_written_into_the_roster_is_not_made(
    context: TeamContext, command: str
) -> None:
    """The reply says why, and no later message contradicts it."""
    name = "cy" if command == "remove" else "ann"
    if command == "resume":
        ask(context, "pause", name=name)
    before = context.roster.team.get(name)
    spoil(context)
    with pytest.raises(TeamError):
        ask(context, command, name=name)
    assert context.roster.team.get(name).encode() == before.encode()


def test_the_end_of_a_pause_leaves_other_reasons_to_wait(context: TeamContext) -> None:
    ask(context, "pause", name="ann")
    context.roster.change("ann", status=Status.PAUSED, reason="there is no API key")
    given = ask(context, "resume", name="ann")
    assert given.text == "the pause of ann is over, and it still waits: there is no API key"
    assert context.roster.team.get("ann").status is Status.PAUSED


def test_a_limit_that_stops_no_teammate_is_not_raised(context: TeamContext) -> None:
    context.roster.change("ann", status=Status.PAUSED, reason="there is no API key")
    with pytest.raises(TeamError, match="no limit stops ann; `teamctl resume ann` resumes it"):
        ask(context, "resume", name="ann", usd=1)
    with pytest.raises(TeamError, match="only the person can raise a limit"):
        ask(context, "resume", "lead", name="ann", usd=1)
    with pytest.raises(NotAMessage, match="usd must be a number above 0"):
        ask(context, "resume", name="ann", usd=0)


def test_a_lead_that_waits_for_a_permission_keeps_its_model_meanwhile(
    context: TeamContext,
) -> None:
    """The sentence names the command that lets it continue."""
    ask(context, "lead")
    context.roster.change("lead", status=Status.PAUSED, reason="there is no API key")
    asked = Approval(type=Kind.PERMISSION, asker="lead", to=USER, content="x", asked=time.time())
    approvals = Approvals(context.settings.paths, context.post)
    approvals.ask(asked)
    with pytest.raises(TeamError, match=f"waits for a permission: `teamctl approve {asked.id}"):
        ask(context, "lead", model="claude-haiku-4-5")
    assert context.roster.team.get("lead").model is None
    approvals.answer(asked.id, by=USER, approve=True)
    ask(context, "lead", model="claude-haiku-4-5")
    assert context.roster.team.get("lead").model == "claude-haiku-4-5"


def test_only_the_person_removes_a_member_from_the_team(context: TeamContext) -> None:
    with pytest.raises(TeamError, match="only the person can remove a teammate"):
        ask(context, "remove", "lead", name="cy")
    with pytest.raises(TeamError, match="ann is idle and still in the team; `teamctl shutdown ann"):
        ask(context, "remove", name="ann")
    assert ask(context, "remove", name="CY").text == "cy is no longer in the team"
    assert Roster(context.settings.paths).read().find("cy") is None


def test_a_removed_member_that_the_settings_declare_returns_and_the_reply_says_so(
    paths: TeamPaths,
) -> None:
    paths.own_settings.write_text('[[teammate]]\nname = "Cy"\nrole = "coder"\nprompt = "Go."\n')
    with closing(Journal(paths.log(TEAMD), TEAMD)) as journal:
        given = ask(make_context(paths, journal), "remove", name="cy")
    assert given.text.endswith(
        "team.toml names it, so the next start or `teamd reload` spawns it again"
    )


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("team.name", "waits for `teamd restart`"),
        ("supervision.stop_seconds", "waits for `teamd restart`"),
        ("supervision.stuck_restart", "waits for `teamd restart`"),
        ("supervision.crashes", "counts from the next crash on"),
        ("supervision.hibernate_seconds", "counts for teammates whose process starts from now on"),
        ("team.workspace", "counts for teammates whose process starts from now on"),
        ("hosts.name", "counts at once"),
        ("merge.auto", "counts at once"),
        ("tasks.check_seconds", "counts from the next check on"),
        ("teammate", "who is new is spawned now"),
        ("limits.team_usd_per_day", "counts from the next model call on; `teamctl resume`"),
        ("model.concurrent_calls", "counts from the next model call on"),
        ("mail.durability", "counts for teammates whose process starts from now on"),
    ],
)
def test_a_changed_setting_says_when_it_takes_effect(key: str, said: str) -> None:
    assert when_it_counts(key).startswith(said)


def test_a_change_that_waits_for_a_restart_is_reported_until_then(context: TeamContext) -> None:
    file = context.settings.paths.own_settings
    for text, said in (
        (b"[supervision]\nstop_seconds = 7\n[model]\nmax_tokens = 9\n", ["restart", "process"]),
        (b"[supervision]\nstop_seconds = 7\n[model]\nmax_tokens = 9\n", ["restart"]),
        (b"[model]\nmax_tokens = 9\n", []),
    ):
        file.write_bytes(text)
        lines = ask(context, "reload").data["lines"]
        assert len(lines) == len(said)
        assert all(word in line for word, line in zip(said, lines, strict=True))


def test_mail_is_read_as_before_if_the_settings_file_has_a_mistake(context: TeamContext) -> None:
    """No sender uses that file, and all mail was acknowledged."""
    paths = context.settings.paths
    text = b"[mail]\nmax_message_bytes = 5_000_000\n"
    paths.own_settings.write_bytes(text)
    TrustStore().confirm(paths.own_settings, text)
    assert context.settings.accepted_bytes() == 5_000_000
    paths.own_settings.write_text("[mail\n")
    with pytest.raises(SettingsError):
        context.settings.read()
    assert context.settings.accepted_bytes() < 5_000_000


def test_a_free_call_stays_free_at_any_later_price_of_its_model() -> None:
    free = Reservation(
        id="1", teammate="ann", process=Identity.own(), model="claude-opus-4-8", usd=Decimal(0),
        input_tokens=10**6, output_tokens=10**6,
    )  # fmt: skip
    assert current_price(free, Terms()).usd == 0
    assert current_price(replace(free, usd=Decimal(1)), Terms()).usd != 0


def test_a_closing_teamd_refuses_with_a_sentence(inbox: ControlInbox, context: TeamContext) -> None:
    wanted = request("pause", name="ann")
    inbox.mailbox.put(wanted.encode())
    inbox.closing = True
    inbox.obey()
    given = collected(inbox, wanted)
    assert given.text == "teamd is stopping; start it again"
    assert given.exit_code == ExitCode.REFUSED
    assert context.roster.team.get("ann").paused_by is None


class Spoilt(Mailbox):
    """A mailbox that becomes unreadable after its first batch is done."""

    def done(self, batch: Batch) -> None:
        """Replace the spool file by a link that leads to itself."""
        super().done(batch)
        taken = self._spool.path
        taken.unlink(missing_ok=True)
        taken.symlink_to(taken.name)


def test_a_taken_request_is_answered_even_if_the_next_read_fails(
    inbox: ControlInbox, paths: TeamPaths
) -> None:
    """The request is removed before it is carried out, so no later supervisor would find it."""
    inbox.mailbox = Spoilt(paths, TEAMD, durable=False)
    wanted = request("dance")
    inbox.mailbox.put(wanted.encode())
    inbox.obey()
    given = collected(inbox, wanted)
    assert given.exit_code == ExitCode.REFUSED
    assert "dance" in given.text
    inbox.obey()
    assert inbox.retry_seconds, "and the look is tried again"


def test_a_roster_that_cannot_be_written_is_tried_and_logged_once_in_a_second(
    inbox: ControlInbox, context: TeamContext, paths: TeamPaths
) -> None:
    """Each change wakes the supervisor, whose rounds would fill a full disk's log."""

    def failures() -> int:
        return paths.log(TEAMD).read_text(encoding="utf-8").count('"roster not written"')

    good = paths.config.read_bytes()
    spoil(context)
    context.roster.change("ann", status=Status.PAUSED)
    for _ in range(2):
        inbox.publish(last=True)
    assert failures() == 1
    paths.config.rmdir()
    paths.config.write_bytes(good)
    inbox.publish()
    assert context.roster.behind, "it is not tried again so soon"
    assert 0 < (inbox.retry_seconds or 0) <= 1
    inbox.publish(last=True)
    assert Roster(paths).read().get("ann").status is Status.PAUSED
    assert inbox.retry_seconds is None


def test_a_repeated_request_is_answered_and_not_carried_out_again(inbox: ControlInbox) -> None:
    """The asker was killed before it could read the answer, and asks again."""
    wanted, answers = request("remove", name="cy"), []
    for _ in range(2):
        inbox.mailbox.put(wanted.encode())
        inbox.obey()
        answers.append(collected(inbox, wanted))
    assert answers[0].exit_code == ExitCode.DONE
    assert answers[1] == answers[0]


class Full(Mailbox):
    """A mailbox on a full disk: it forgets nothing."""

    def done(self, batch: Batch) -> None:
        """Do as a write does there."""
        raise StoreError(f"no space left to forget {batch.id}")


def test_a_request_that_cannot_be_removed_is_not_carried_out(
    inbox: ControlInbox, context: TeamContext, paths: TeamPaths
) -> None:
    """The next supervisor would carry it out once more."""
    wanted, whole = request("remove", name="cy"), inbox.mailbox
    inbox.mailbox = Full(paths, TEAMD, durable=False)
    inbox.mailbox.put(wanted.encode())
    inbox.obey()
    assert context.roster.team.find("cy") is not None
    assert inbox.retry_seconds
    inbox.mailbox, inbox._blocked = whole, Deadline.after(0.0)
    inbox.obey()
    assert collected(inbox, wanted).exit_code == ExitCode.DONE


def test_a_reply_waits_for_the_roster_but_a_refusal_does_not(
    inbox: ControlInbox, context: TeamContext, paths: TeamPaths
) -> None:
    """Whoever reads that it is done finds it in the roster."""
    spoil(context)
    done, refused = request("shutdown", name="ann", seconds=5), request("dance")
    inbox.mailbox.put(done.encode(), refused.encode())
    inbox.obey()
    assert collected(inbox, refused).exit_code == ExitCode.REFUSED
    assert not (paths.replies / f"{done.id}.json").exists()
    paths.config.rmdir()
    inbox.publish(last=True)
    assert collected(inbox, done).exit_code == ExitCode.DONE
    assert Roster(paths).read().get("ann").status is Status.SHUTDOWN
