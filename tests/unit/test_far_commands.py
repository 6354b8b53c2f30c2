"""Commands for other hosts: allowed fields, permissions and deadlines."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd import control
from teamd.control import ControlReply, ControlRequest
from teamd.errors import DeadlinePassed, ExitCode, NotAMessage
from teamd.files import files, locks, pidfile
from teamd.files.paths import TeamPaths
from teamd.hosts.asking import ask, keep_answer, own_boot, sweep_answers
from teamd.hosts.far import FarHosts
from teamd.hosts.places import HostPlaces
from teamd.hosts.requests import CROSSING, FarAnswer, FarRequest
from teamd.hosts.view import HostState, Views
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD
from teamd.postman.commands import Commands
from teamd.team.states import Status
from tests.unit.life import enrol
from tests.waiting import until, wait_until

GIVEN: dict[str, dict[str, Any]] = {
    "spawn": {"name": "carol", "role": "coder", "prompt": "Begin."},
    "shutdown": {"name": "carol", "seconds": 10, "force": False},
    "interrupt": {"name": "carol", "text": ""},
}


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    enrol(made, bob=Status.IDLE)
    HostPlaces(made).create()
    return made


@pytest.fixture
def commands(paths: TeamPaths, tmp_path: Path) -> Iterator[Commands]:
    with closing(Journal(tmp_path / "log", "postman")) as journal:
        yield Commands(
            paths=paths,
            team="project",
            name="h2",
            allows=lambda host, what: host == "h1" and what != "shutdown",
            left=lambda _, boot, deadline: deadline - 100.0 if boot == "b" else 0.0,
            journal=journal,
        )


def request(command: str = "spawn", **more: Any) -> FarRequest:
    facts: dict[str, Any] = {"deadline": 105.0, "boot": "b", "arguments": GIVEN[command], **more}
    return FarRequest(command=command, **facts)


@pytest.fixture
def served(paths: TeamPaths) -> Iterator[None]:
    """Hold the lock of a teamd that never reads its mail."""
    claim = pidfile.claim(paths)
    yield
    os.close(claim)


def asked(paths: TeamPaths) -> list[ControlRequest]:
    return [ControlRequest.decode(mail) for mail in Mailbox(paths, TEAMD).peek()]


def test_a_request_reaches_teamd_with_only_the_allowed_fields(
    commands: Commands, paths: TeamPaths, served: None
) -> None:
    """Regardless of further fields from the other host."""
    more = {"model": "x", "worktree": True, "plan": False, "fresh": True, "all": True}
    wanted = request(arguments={**GIVEN["spawn"], **more})
    line = {**wanted.encode(), "sender": "user", "from": "lead@project@h9", "arguments": {
        **GIVEN["spawn"], **more,
    }}  # fmt: skip
    done = ControlReply(text="carol (coder) is at work")
    control.reply(paths, f"h1-{wanted.id}", done)  # as teamd does once it has read the request
    answer = asyncio.run(commands.carry_out("h1", line))
    assert answer == FarAnswer(id=wanted.id, text=done.text)

    other = replace(wanted, deadline=100.05, id="0" * 14 + "-" + "1" * 16)
    late = asyncio.run(commands.carry_out("h1", other.encode()))
    assert late is not None
    assert late.exit_code == ExitCode.DEADLINE, "teamd did not answer in time"
    (found,) = asked(paths)
    assert (found.command, found.sender) == ("spawn", "lead@project@h1")
    assert dict(found.arguments) == GIVEN["spawn"]
    assert found.id == f"h1-{other.id}"


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    ("host", "wanted", "code", "sentence"),
    [
        ("h3", request(), 1, "h2 does not let h3 spawn teammates"),
        ("h1", request("shutdown"), 1, 'its team.toml has no "h1" in [hosts] allow shutdown'),
        ("h1", request(deadline=99.0), 4, "the spawn came too late to h2, and was not carried out"),
        ("h1", request(boot="another"), 4, "came too late"),
    ],
)
def test_a_forbidden_or_late_request_does_not_reach_teamd(
    commands: Commands, host: str, wanted: FarRequest, code: int, sentence: str
) -> None:
    answer = asyncio.run(commands.carry_out(host, wanted.encode()))
    assert answer is not None
    assert (answer.id, answer.exit_code) == (wanted.id, code)
    assert sentence in answer.text
    assert asked(commands.paths) == []


def test_without_teamd_a_command_is_answered_with_the_exit_code_for_no_teamd(
    commands: Commands,
) -> None:
    answer = asyncio.run(commands.carry_out("h1", request().encode()))
    assert answer is not None
    assert answer.exit_code == ExitCode.NO_TEAMD


@pytest.mark.parametrize("command", CROSSING)
def test_a_request_and_an_answer_are_decoded_as_they_were_encoded(command: str) -> None:
    wanted = request(command)
    assert FarRequest.decode(wanted.encode()) == wanted
    answer = FarAnswer(id=wanted.id, text="no", exit_code=ExitCode.REFUSED)
    assert FarAnswer.decode(answer.encode()) == answer


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
FIELDS = st.sampled_from(["id", "command", "arguments", "deadline", "boot", "text", "exit_code"])


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(FIELDS, ANYTHING | st.just({}) | st.just("spawn")), st.booleans())
def test_an_invalid_request_or_answer_is_refused(fields: dict[str, Any], within: bool) -> None:
    """An id is part of a path."""
    line = {**request().encode(), **fields} if within else fields
    for kind in (FarRequest, FarAnswer):
        try:
            found = kind.decode(line)
        except NotAMessage:
            continue
        assert set(found.id) <= set("0123456789abcdef-")


def reachable(paths: TeamPaths) -> FarHosts:
    views = Views(paths)
    views.change("h2", state=HostState.REACHABLE, since=time.time())
    views.write()
    return FarHosts(paths, "h1", durable=False)


@pytest.fixture
def postman(paths: TeamPaths) -> Iterator[None]:
    files.append(HostPlaces(paths).postman, b"", durable=False)
    with locks.locked(HostPlaces(paths).postman):
        yield


def test_an_unreachable_host_is_not_asked(paths: TeamPaths) -> None:
    far = reachable(paths)
    with pytest.raises(DeadlinePassed, match="h2 was not asked: no postman runs here"):
        ask(far, "h2", "spawn", GIVEN["spawn"], seconds=30.0)
    assert not HostPlaces(paths).outbox("h2").exists()


def test_a_host_that_does_not_answer_is_reported_in_time(paths: TeamPaths, postman: None) -> None:
    far, begun = reachable(paths), time.monotonic()
    with pytest.raises(DeadlinePassed, match=r"h2 did not answer within 0\.05 s"):
        ask(far, "h2", "spawn", GIVEN["spawn"], seconds=0.05)
    assert time.monotonic() - begun < 5.0
    line = HostPlaces(paths).outbox("h2").read_text().splitlines()[1]
    assert own_boot() in line


def test_an_answer_is_kept_for_its_asker_and_swept_when_old(paths: TeamPaths) -> None:
    made = request().id
    file = HostPlaces(paths).answer(made)
    file.write_text("h2\n")  # as the asker writes it
    keep_answer(paths, "h2", {"id": made, "text": "done", "exit_code": 0})
    sweep_answers(paths)
    assert file.exists(), "somebody may wait for it yet"
    os.utime(file, (0, 0))
    sweep_answers(paths)
    assert not file.exists()
    with pytest.raises(NotAMessage):
        keep_answer(paths, "h2", {"id": "../../config", "text": "x", "exit_code": 0})


def test_an_answer_without_a_waiting_asker_is_not_kept(paths: TeamPaths, postman: None) -> None:
    """It was never requested, comes from another host, or is late."""
    far, made = reachable(paths), request().id
    file = HostPlaces(paths).answer(made)
    answer = {"id": made, "text": "done", "exit_code": 0}
    with pytest.raises(NotAMessage, match="nobody waits for it"):
        keep_answer(paths, "h2", answer)
    with ThreadPoolExecutor(1) as pool:
        asks = pool.submit(ask, far, "h2", "spawn", GIVEN["spawn"], seconds=30, request_id=made)
        wait_until(file.exists, what="it is asked")
        with pytest.raises(NotAMessage, match="nobody waits for it"):
            keep_answer(paths, "h3", answer)
        keep_answer(paths, "h2", answer)
        assert asks.result().text == "done"
    with pytest.raises(NotAMessage, match="nobody waits for it"):
        keep_answer(paths, "h2", answer)
    assert not list(file.parent.iterdir())


def test_a_command_waits_until_the_clock_of_the_other_host_is_known(
    commands: Commands, paths: TeamPaths, served: None
) -> None:
    """The postman may have just started, because a reload now allows the command."""
    told = iter([None, None, 5.0])

    async def talk() -> list[ControlRequest]:
        waiting = replace(commands, left=lambda *_: next(told))
        task = asyncio.create_task(waiting.carry_out("h1", request().encode()))
        await until(lambda: asked(paths) != [])
        task.cancel()
        return asked(paths)

    assert [one.command for one in asyncio.run(talk())] == ["spawn"]
