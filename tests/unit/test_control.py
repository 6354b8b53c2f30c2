"""Requests to the supervisor: at most once, never late, and always with an end to the waiting."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from teamd import clocks, control
from teamd.control import KEPT_SECONDS, ControlReply, ControlRequest
from teamd.errors import DeadlinePassed, ExitCode, NotAMessage, NoTeamd, UnknownTeammate
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD, Message
from tests.children import child
from tests.waiting import wait_until

HUGE = pytest.param(10**400, id="huge")
SERVES = """
import sys
from pathlib import Path
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
claim = pidfile.claim(TeamPaths(Path(sys.argv[1])))
print("claimed", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def served(paths: TeamPaths) -> Iterator[TeamPaths]:
    """A team whose supervisor is this very process."""
    claim = pidfile.claim(paths)
    yield paths
    os.close(claim)


def request(**changes: Any) -> ControlRequest:
    return replace(ControlRequest(command="spawn", deadline=time.time() + 60), **changes)


def test_a_request_is_decoded_from_mail_as_it_was_encoded() -> None:
    asked = request(arguments={"name": "alice", "fresh": True}, sender="lead")
    message = Message.decode(asked.encode().encode(), to=TEAMD)
    assert ControlRequest.decode(message) == asked


def test_a_request_is_late_when_its_deadline_has_passed() -> None:
    """Its asker was told that it failed, so a late execution would be a surprise."""
    assert not request().late
    assert request(deadline=time.time() - 0.001).late


def test_the_clock_since_boot_takes_precedence_over_the_wall_clock() -> None:
    """The wall clock may be set between the request and its reading."""
    in_time = ControlRequest.within(60, "spawn", id="a")
    assert not replace(in_time, deadline=time.time() - 3600).late
    assert ControlRequest.within(-0.001, "spawn", id="a").late
    assert replace(ControlRequest.within(-0.001, "spawn", id="a"), deadline=time.time() + 3600).late
    assert ControlRequest.decode(in_time.encode()) == in_time


@pytest.mark.parametrize(
    "more",
    [{}, {"boot": 5}, {"uptime": None}, {"uptime": "soon"}, {"uptime": True}],
)
def test_without_a_time_since_boot_the_wall_clock_is_used(more: dict[str, object]) -> None:
    """A foreign program knows only the wall clock."""
    made = ControlRequest.within(60, "spawn", id="a").encode()
    known = {"boot": clocks.boot(), "uptime": 0.0} if more else {}
    for deadline, late in ((time.time() + 60, False), (time.time() - 1, True)):
        extra = {"arguments": {}, "deadline": deadline, **known, **more}
        assert ControlRequest.decode(replace(made, extra=extra)).late is late


def test_a_request_of_an_earlier_boot_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been carried out: a power cut may restore it in the inbox."""
    made = ControlRequest.within(60, "spawn", id="a")
    assert replace(made, boot="another", uptime=made.uptime + 3600).late
    monkeypatch.setattr(clocks, "boot", lambda: None)
    assert not made.late, "nobody knows of which boot it is"


@pytest.mark.parametrize("deadline", [None, "soon", True, -1, [], HUGE, float("nan"), 1e300])
def test_a_message_without_a_valid_deadline_is_not_a_request(deadline: object) -> None:
    message = replace(request().encode(), extra={"arguments": {}, "deadline": deadline})
    with pytest.raises(NotAMessage, match="a request needs a deadline"):
        ControlRequest.decode(message)
    with pytest.raises(NotAMessage):
        ControlRequest.decode(replace(message, extra={}))


@pytest.mark.parametrize("arguments", [None, [], "x", 3])
def test_a_message_without_valid_arguments_is_not_a_request(arguments: object) -> None:
    extra = {"arguments": arguments, "deadline": time.time() + 60}
    with pytest.raises(NotAMessage, match="arguments"):
        ControlRequest.decode(replace(request().encode(), extra=extra))


@pytest.mark.parametrize("name", ["../config", "a/b", "..", ".x", "", "x" * 250, "a\nb"])
def test_an_id_that_is_not_a_file_name_is_refused(name: str) -> None:
    """The answer goes to a file of that name; `../config` would be the roster."""
    with pytest.raises(NotAMessage, match="an id that can be a file's name"):
        ControlRequest.decode(replace(request().encode(), id=name))


def test_an_asker_gets_its_answer(served: TeamPaths) -> None:
    given = ControlReply.of_error(UnknownTeammate("bbo", ["bob"]))
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(
            control.ask, served, "shutdown", {"name": "bbo"}, timeout_seconds=20, request_id="r1"
        )
        mailbox = Mailbox(served, TEAMD, durable=False)
        wait_until(mailbox.waiting, what="the request")
        (message,) = mailbox.take().messages
        asked = ControlRequest.decode(message)
        assert (asked.id, asked.command, dict(asked.arguments)) == (
            "r1",
            "shutdown",
            {"name": "bbo"},
        )
        assert not asked.late
        control.reply(served, asked.id, given)
        assert asking.result(20) == given
    assert given.exit_code is ExitCode.REFUSED
    assert list(served.replies.iterdir()) == []


def test_without_a_supervisor_no_request_is_sent(paths: TeamPaths) -> None:
    """A request that waits for the next start would come as a surprise."""
    with pytest.raises(NoTeamd, match="start it with `teamd start`") as caught:
        control.ask(paths, "spawn", {}, timeout_seconds=20)
    assert caught.value.exit_code == 3
    assert not paths.inbox(TEAMD).exists()


def test_a_timeout_is_reported_in_a_sentence(served: TeamPaths) -> None:
    with pytest.raises(DeadlinePassed, match=r"did not answer within 0\.1 s") as caught:
        control.ask(served, "spawn", {}, timeout_seconds=0.1)
    assert caught.value.exit_code == 4
    (message,) = Mailbox(served, TEAMD).take().messages
    assert ControlRequest.decode(message).late


def test_waiting_ends_when_the_supervisor_dies(paths: TeamPaths) -> None:
    with child(SERVES, paths.root) as supervisor, ThreadPoolExecutor() as pool:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "claimed\n"
        asking = pool.submit(control.ask, paths, "spawn", {}, timeout_seconds=100)
        wait_until(lambda: paths.has_mail(TEAMD), what="the request")
        supervisor.kill()
        with pytest.raises(NoTeamd):
            asking.result(20)


def test_answers_without_a_reader_are_swept(paths: TeamPaths) -> None:
    for name in ("old", "new"):
        control.reply(paths, name, ControlReply(text="done"))
    old = time.time() - KEPT_SECONDS - 1
    os.utime(paths.replies / "old.json", (old, old))
    control.sweep(paths)
    assert [reply.name for reply in paths.replies.iterdir()] == ["new.json"]


def test_an_answer_is_decoded_as_it_was_encoded() -> None:
    given = ControlReply(text="ä\ud800", exit_code=ExitCode.DEADLINE, data={"pid": 7})
    assert ControlReply.decode(given.encode()) == replace(given, text="ä?")


@pytest.mark.parametrize("value", [None, 5, ["bob"], "", " \n"])
def test_an_argument_that_is_not_a_string_is_refused(value: object) -> None:
    with pytest.raises(NotAMessage, match="a name is needed and must not be empty"):
        request(arguments={"name": value}).text("name")
    assert request(arguments={"name": " bob"}).text("name") == " bob"


@pytest.mark.parametrize("value", [5, ["small"], False])
def test_a_model_that_is_not_a_string_is_refused(value: object) -> None:
    with pytest.raises(NotAMessage, match="a model is named by a text"):
        _ = request(arguments={"model": value}).model
    assert (request(arguments={"model": "small"}).model, request().model) == ("small", None)
