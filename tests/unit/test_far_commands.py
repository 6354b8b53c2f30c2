"""Commands for other hosts: allowed fields, permissions and deadlines."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd import clocks, control
from teamd.control import ControlReply, ControlRequest
from teamd.errors import DeadlinePassed, ExitCode, NotAMessage
from teamd.files import files, locks, pidfile
from teamd.files.paths import TeamPaths
from teamd.hosts.far import FarHosts
from teamd.hosts.places import HostPlaces
from teamd.hosts.view import HostState, Views
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD, new_id
from teamd.postman.commands import CROSSING, FarAnswer, FarRequest, Requests, ask, read_clock
from teamd.settings.schema import HostSettings
from teamd.team.states import Status
from tests.unit.life import enrol

GIVEN: dict[str, dict[str, Any]] = {
    "spawn": {"name": "carol", "role": "coder", "prompt": "Begin."},
    "shutdown": {"name": "carol", "seconds": 10, "force": False},
    "interrupt": {"name": "carol", "text": ""},
    "pause": {"name": "carol"},
    "resume": {"name": "carol"},
}


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    enrol(made, bob=Status.IDLE)
    HostPlaces(made).create()
    return made


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def requests(paths: TeamPaths, log: Path) -> Iterator[Requests]:
    with closing(Journal(log, "postman")) as journal:
        yield Requests(
            paths=paths,
            team="project",
            name="h2",
            session="s",
            allows=lambda host, what: host == "h1" and what != "shutdown",
            journal=journal,
        )


def request(command: str = "spawn", *, seconds: float = 30.0, **more: Any) -> FarRequest:
    facts: dict[str, Any] = {
        "id": new_id(), "session": "s", "deadline": clocks.elapsed() + seconds,
        "arguments": GIVEN[command], **more,
    }  # fmt: skip
    return FarRequest(command=command, **facts)


def answer(requests: Requests, host: str, payload: bytes) -> FarAnswer:
    found = asyncio.run(requests.answer(host, payload))
    assert found is not None
    return FarAnswer.decode(found)


@pytest.fixture
def served(paths: TeamPaths) -> Iterator[None]:
    """Hold the lock of a teamd that never reads its mail."""
    claim = pidfile.claim(paths)
    yield
    os.close(claim)


def asked(paths: TeamPaths) -> list[ControlRequest]:
    return [ControlRequest.decode(mail) for mail in Mailbox(paths, TEAMD).peek()]


def test_a_request_reaches_teamd_with_only_the_allowed_fields(
    requests: Requests, paths: TeamPaths, served: None
) -> None:
    """Regardless of further fields from the other host."""
    more = {"model": "x", "worktree": True, "plan": False, "fresh": True, "all": True}
    wanted = request(arguments={**GIVEN["spawn"], **more})
    payload = json.loads(wanted.encode()) | {"sender": "user", "from": "lead@project@h9"}
    done = ControlReply(text="carol (coder) is at work")
    control.reply(paths, f"h1-{wanted.id}", done)  # as teamd does once it has read the request
    assert answer(requests, "h1", json.dumps(payload).encode()) == FarAnswer(text=done.text)

    other = replace(wanted, id=new_id(), deadline=clocks.elapsed() + 0.05)
    late = answer(requests, "h1", other.encode())
    assert late.exit_code == ExitCode.DEADLINE, "teamd did not answer in time"
    (found,) = asked(paths)
    assert (found.command, found.sender) == ("spawn", "lead@project@h1")
    assert dict(found.arguments) == GIVEN["spawn"]
    assert found.id == f"h1-{other.id}"


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    ("host", "command", "facts", "code", "sentence"),
    [
        ("h3", "spawn", {}, 1, "h2 does not let h3 spawn teammates"),
        ("h1", "shutdown", {}, 1, 'its team.toml has no "h1" in [hosts] allow shutdown'),
        ("h1", "spawn", {"seconds": -1.0}, 4, "the spawn came too late to h2, and was not carried"),
        ("h1", "spawn", {"session": "another"}, 4, "came too late"),
    ],
)
def test_a_forbidden_or_late_request_does_not_reach_teamd(
    requests: Requests, host: str, command: str, facts: dict[str, Any], *, code: int, sentence: str
) -> None:
    """The deadline is by the clock of one postman's session."""
    found = answer(requests, host, request(command, **facts).encode())
    assert found.exit_code == code
    assert sentence in found.text
    assert asked(requests.paths) == []


def test_without_teamd_a_command_is_answered_with_the_exit_code_for_no_teamd(
    requests: Requests,
) -> None:
    assert answer(requests, "h1", request().encode()).exit_code == ExitCode.NO_TEAMD


def test_any_host_may_ask_for_the_clock(requests: Requests) -> None:
    before = clocks.elapsed()
    found = json.loads(asyncio.run(requests.answer("h9", b'{"clock": true}')) or b"")
    assert found["session"] == "s"
    assert before <= found["clock"] <= clocks.elapsed()


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b"[]", b"\xff", b'{"clock": 1}', b'{"id": "../x", "command": "spawn"}']
)
def test_an_invalid_request_is_logged_and_not_answered(
    requests: Requests, log: Path, payload: bytes
) -> None:
    requests.journal.note("begins")
    assert asyncio.run(requests.answer("h1", payload)) is None
    assert "no request" in log.read_text()


@pytest.mark.parametrize("command", CROSSING)
def test_a_request_and_an_answer_are_decoded_as_they_were_encoded(command: str) -> None:
    wanted = request(command)
    assert FarRequest.decode(wanted.encode()) == wanted
    found = FarAnswer(text="no", exit_code=ExitCode.REFUSED)
    assert FarAnswer.decode(found.encode()) == found


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
FIELDS = st.sampled_from(["id", "command", "arguments", "deadline", "session", "text", "exit_code"])
NAMED = st.dictionaries(st.sampled_from(["name", "role", "prompt", "seconds", "force"]), ANYTHING)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(FIELDS, ANYTHING | NAMED | st.sampled_from([*CROSSING])),
    st.sampled_from([b"{}", request().encode(), FarAnswer(text="x").encode()]),
)
def test_an_invalid_request_or_answer_is_refused(fields: dict[str, Any], base: bytes) -> None:
    """An id is part of a path."""
    payload = json.dumps(json.loads(base) | fields).encode()
    try:
        found = FarRequest.decode(payload)
    except NotAMessage:
        pass
    else:
        assert found is not None
        assert set(found.id) <= set("0123456789abcdef-")
        assert found.arguments.keys() == CROSSING[found.command].keys()
    try:
        told = FarAnswer.decode(payload)
    except NotAMessage:
        return
    assert FarAnswer.decode(told.encode()).exit_code in set(ExitCode)


@given(st.binary(max_size=40))
def test_random_bytes_are_neither_a_request_nor_an_answer(payload: bytes) -> None:
    with suppress(NotAMessage):
        assert FarRequest.decode(payload) is None, "it asks for the clock"
    with pytest.raises(NotAMessage):
        FarAnswer.decode(payload)


def test_a_long_answer_is_cut() -> None:
    assert len(FarAnswer.decode(FarAnswer(text="x" * 200_000).encode()).text) == 100_000


def reachable(paths: TeamPaths) -> FarHosts:
    views = Views(paths)
    views.change("h2", state=HostState.REACHABLE, since=time.time())
    views.write()
    settings = HostSettings(name="h1", servers=("nats://127.0.0.1:1",), plaintext=True)
    return FarHosts(paths, "h1", durable=False, settings=settings)


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


def test_without_a_broker_a_host_is_not_asked(paths: TeamPaths, postman: None) -> None:
    """The view may be seconds old."""
    far, begun = reachable(paths), time.monotonic()
    with pytest.raises(DeadlinePassed, match="h2 was not asked: nothing listens at nats://127"):
        ask(far, "h2", "spawn", GIVEN["spawn"], seconds=30.0)
    assert time.monotonic() - begun < 20.0


@pytest.mark.parametrize(
    "payload",
    [b"{}", b"[]", b'{"session": "s", "clock": "soon"}', b'{"session": "s", "clock": 1e300}',
     b'{"session": 1, "clock": 1.5}', b'{"clock": 1.5}', b"not json"],
)  # fmt: skip
def test_an_invalid_answer_about_a_clock_is_refused_with_a_sentence(payload: bytes) -> None:
    with pytest.raises(NotAMessage):
        read_clock(payload)


def test_a_clock_is_read_with_its_session() -> None:
    assert read_clock(b'{"session": "a1", "clock": 2}') == ("a1", 2.0)
