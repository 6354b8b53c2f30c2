"""Approvals: answered once, by the right member, and mailed reliably."""

from __future__ import annotations

import json
import re
import string
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamd.approvals.approval import AlreadyAnswered, Approval, Kind, NoSuchApproval, Verdict, id_of
from teamd.approvals.store import Approvals
from teamd.errors import StoreError, TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.messages import Message
from teamd.permissions.grant import Grant
from teamd.team.states import Status
from tests.unit.life import enrol

SHUTDOWN = ("lead", "bob", Kind.SHUTDOWN)
PLAN = ("bob", "lead", Kind.PLAN)
PERMISSION = ("bob", "lead", Kind.PERMISSION)


@pytest.fixture
def paths(tmp_path: Path) -> TeamPaths:
    made = TeamPaths(tmp_path / ".team")
    enrol(made, alice=Status.IDLE, bob=Status.IDLE)
    return made


@pytest.fixture
def post(paths: TeamPaths) -> MailRouter:
    return MailRouter(paths, durable=False, max_bytes=10_000)


@pytest.fixture
def approvals(paths: TeamPaths, post: MailRouter) -> Approvals:
    return Approvals(paths, post)


def asked(approvals: Approvals, kind: tuple[str, str, Kind] = PLAN, **facts: Any) -> Approval:
    asker, to, what = kind
    question = Approval(
        asker=asker, to=to, type=what, content="First this.", asked=time.time(), **facts
    )
    return approvals.ask(question)


def mail(post: MailRouter, name: str) -> list[Message]:
    return post.mailbox(name).peek()


def test_an_approval_is_a_file_and_mail_to_its_receiver(
    approvals: Approvals, post: MailRouter, paths: TeamPaths
) -> None:
    question = asked(approvals)
    assert '"status": "open"' in paths.request(question.id).read_text()
    (message,) = mail(post, "lead")
    assert (message.type, message.sender, message.content) == (Kind.PLAN, "bob", "First this.")
    assert message.extra["request_id"] == question.id
    assert approvals.open_ones() == [question]


@pytest.mark.parametrize(
    ("kind", "answerers"), [(SHUTDOWN, {"bob"}), (PLAN, {"lead", "user"})], ids=["shutdown", "plan"]
)
def test_only_the_receiver_can_answer(
    kind: tuple[str, str, Kind], answerers: set[str], approvals: Approvals
) -> None:
    """The person is the lead, under either name; members cannot answer for each other."""
    for by in ("alice", "bob", "lead", "user", "teamd"):
        question = asked(approvals, kind)
        if by in answerers:
            answered = approvals.answer(question.id, by=by, approve=True)
            assert answered.status is Verdict.APPROVED
            continue
        with pytest.raises(NoSuchApproval, match=f"is for {question.to} to answer, not for {by}"):
            approvals.answer(question.id, by=by, approve=True)
        assert approvals.find(question.id) == question


@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("first", [True, False, None])
def test_an_approval_is_answered_once(
    first: bool | None, second: bool, approvals: Approvals, post: MailRouter
) -> None:
    """`None`: it has expired without an answer."""
    question = asked(approvals)
    if first is None:
        approvals.expire(question.id)
    else:
        approvals.answer(question.id, by="lead", approve=first, reason="so")
    before, told = approvals.find(question.id), mail(post, "bob")
    words = {True: "was approved already", False: "was rejected already", None: "no longer open"}
    with pytest.raises(AlreadyAnswered, match=words[first]):
        approvals.answer(question.id, by="lead", approve=second)
    assert (approvals.find(question.id), mail(post, "bob")) == (before, told)
    assert approvals.expire(question.id) == before


@pytest.mark.parametrize("approve", [True, False])
def test_the_asker_gets_the_id_the_verdict_and_the_reason(
    approve: bool, approvals: Approvals, post: MailRouter
) -> None:
    question = asked(approvals)
    approvals.answer(question.id, by="lead", approve=approve, reason="Mind the tests.")
    (message,) = mail(post, "bob")
    assert (message.type, message.sender) == ("plan_approval_response", "lead")
    assert message.content == "Mind the tests."
    assert message.extra == {
        "request_id": question.id,
        "approve": approve,
        "reason": "Mind the tests.",
    }


class Silent(MailRouter):
    """A router that fails, as if its sender was killed."""

    def notify(self, message: Message) -> None:  # type: ignore[override]
        """Fail."""
        raise StoreError(f"no way to {message.to}")


def test_an_answer_with_text_that_mail_cannot_hold_is_delivered(
    approvals: Approvals, post: MailRouter
) -> None:
    """The supervisor sends this mail: an exception would end it."""
    question = asked(approvals, SHUTDOWN)
    approvals.answer(question.id, by="bob", approve=True, reason="a\0b" + "x" * 50_000)
    (told,) = mail(post, question.asker)
    assert told.content.startswith("a\ufffdbxx")
    approvals.settle(question.id)
    assert list(approvals.repeat()) == []


@pytest.mark.parametrize("by_repetition", [True, False])
def test_an_unsent_answer_is_sent_later(
    by_repetition: bool, approvals: Approvals, paths: TeamPaths, post: MailRouter
) -> None:
    """After a kill between the file and the mail the asker must not wait forever."""
    question = asked(approvals)
    mute = Approvals(paths, Silent(paths, durable=False, max_bytes=10_000))
    with pytest.raises(StoreError):
        mute.answer(question.id, by="lead", approve=True)
    assert mail(post, "bob") == []
    if by_repetition:
        approvals.answer(question.id, by="lead", approve=True)
    else:
        assert [one.id for one in approvals.repeat()] == [question.id]
    (message,) = mail(post, "bob")
    assert message.id == f"{question.id}-answer"
    assert list(approvals.repeat()) == []


def test_an_unsent_request_is_sent_later(
    approvals: Approvals, paths: TeamPaths, post: MailRouter
) -> None:
    with pytest.raises(StoreError):
        asked(Approvals(paths, Silent(paths, durable=False, max_bytes=10_000)))
    assert mail(post, "lead") == []
    (sent,) = approvals.repeat()
    assert [message.id for message in mail(post, "lead")] == [sent.id]
    assert list(approvals.repeat()) == []


def test_a_request_that_is_repeated_with_its_id_is_ignored(
    approvals: Approvals, post: MailRouter
) -> None:
    """A tool call that is repeated after a crash asks once."""
    first = asked(approvals, id=id_of("k", "s"))
    assert asked(approvals, id=id_of("k", "s")) == first
    assert len(mail(post, "lead")) == 1


@pytest.mark.parametrize("by_repetition", [True, False])
def test_a_listener_is_mailed_once_about_an_expired_shutdown(
    by_repetition: bool, approvals: Approvals, paths: TeamPaths, post: MailRouter
) -> None:
    """After teamd has acted on it; if that process is killed, the next one sends the mail."""
    question = asked(approvals, SHUTDOWN, listeners=("alice",))
    approvals.expire(question.id)
    assert list(approvals.repeat()) == []
    assert mail(post, "alice") == []
    if by_repetition:
        with pytest.raises(StoreError):
            Approvals(paths, Silent(paths, durable=False, max_bytes=10_000)).settle(
                question.id, "bob was ended"
            )
        assert [one.id for one in approvals.repeat()] == [question.id]
    else:
        approvals.settle(question.id, "bob was ended")
    (message,) = mail(post, "alice")
    assert (message.id, message.sender) == (f"{question.id}-answer", "teamd")
    assert (message.type, message.content) == ("shutdown_response", "bob was ended")
    assert message.extra == {"request_id": question.id}
    assert mail(post, "lead") == [], "the person is told by the command"
    assert list(approvals.repeat()) == []


@pytest.mark.parametrize("late", [True, False])
def test_the_asker_and_each_listener_get_the_answer_once(
    late: bool, approvals: Approvals, post: MailRouter
) -> None:
    """`late`: the listener joins after the answer."""
    question = asked(approvals, SHUTDOWN)
    if late:
        approvals.answer(question.id, by="bob", approve=False, reason="busy")
    for who in ("alice", "Alice", "lead"):
        approvals.join(question.id, who)
    if not late:
        approvals.answer(question.id, by="bob", approve=False, reason="busy")
    for name in ("alice", "lead"):
        told = mail(post, name)
        assert {(m.id, m.sender, m.content) for m in told} == {
            (f"{question.id}-answer", "bob", "busy")
        }
        assert late or len(told) == 1
    found = approvals.find(question.id)
    assert found is not None
    assert (found.told, found.listeners) == (True, ())


def test_an_answer_to_a_deleted_team_is_not_an_error(approvals: Approvals) -> None:
    question = asked(approvals, ("lead@gone", "bob", Kind.SHUTDOWN))
    assert approvals.answer(question.id, by="bob", approve=True).told


def test_an_unknown_id_is_refused_with_the_open_approvals(approvals: Approvals) -> None:
    with pytest.raises(NoSuchApproval, match="no request 'abcd' to answer; none is open"):
        approvals.match("abcd")
    plan, shutdown = asked(approvals), asked(approvals, SHUTDOWN)
    with pytest.raises(NoSuchApproval) as caught:
        approvals.match("xyz")
    assert f"open are: {plan.id} (plan_approval_request of bob)" in str(caught.value)
    with pytest.raises(NoSuchApproval) as caught:
        approvals.answer("xyz", by="bob", approve=True)
    assert f"open are: {shutdown.id} (shutdown_request of lead)" in str(caught.value)


def test_the_beginning_of_an_id_is_enough_if_it_is_unique(approvals: Approvals) -> None:
    one, two = asked(approvals, id="abcd11"), asked(approvals, id="abcd22")
    assert approvals.match("abcd1") == one
    assert approvals.match("ABCD2") == two
    with pytest.raises(NoSuchApproval, match="several requests begin with 'abcd': abcd11, abcd22"):
        approvals.match("abcd")
    with pytest.raises(NoSuchApproval, match="no request 'abc'"):
        approvals.match("abc")


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> TeamPaths:
    """A team that no example may change."""
    paths = TeamPaths(tmp_path_factory.mktemp("team") / ".team")
    enrol(paths)
    return paths


@settings(deadline=None)
@given(wanted=st.text() | st.text("./-" + string.ascii_lowercase) | st.just("../config"))
def test_no_id_leads_out_of_the_folder(wanted: str, untouched: TeamPaths) -> None:
    """An id comes from a model or from a person, and names a file."""
    before = _times(untouched)
    approvals = Approvals(untouched, MailRouter(untouched, durable=False, max_bytes=10_000))
    assert approvals.find(wanted) is None
    for attempt in (approvals.match, lambda one: approvals.answer(one, by="lead", approve=True)):
        with pytest.raises(TeamError):
            attempt(wanted)
    assert _times(untouched) == before


def _times(paths: TeamPaths) -> dict[Path, int]:
    """Return the time of each file's last change, except the lock."""
    files = (p for p in paths.root.rglob("*") if p.is_file() and p != paths.requests_lock)
    return {path: path.stat().st_mtime_ns for path in files}


@given(content=st.binary() | st.text().map(str.encode) | st.just(b'{"id": 3}'))
def test_a_file_without_an_approval_is_skipped(content: bytes) -> None:
    """Other programs may write there; `teamctl requests` shows the rest."""
    assert Approval.decode(content) is None


def test_an_approval_survives_encoding() -> None:
    question = Approval(
        type=Kind.PLAN, asker="bob", to="lead", content="ä\ud800", asked=1.5, reason="r", task="t"
    )
    assert Approval.decode(question.encode()) == question
    permission = Approval(
        type=Kind.PERMISSION,
        asker="bob",
        to="lead",
        content="x",
        asked=1.5,
        answered_by="user",
        approvers=("lead",),
        grants=(Grant(tool="bash", command=("git", "push")), Grant(tool="a", text="b", path="c")),
        always=True,
    )
    assert Approval.decode(permission.encode()) == permission


def test_only_old_finished_approvals_are_removed(approvals: Approvals, paths: TeamPaths) -> None:
    """Approved plans and lasting permissions are still used."""
    lasting = asked(approvals, PERMISSION, told=True)
    once, waiting = (asked(approvals, PERMISSION, told=True) for _ in range(2))
    approvals.answer(lasting.id, by="user", approve=True, always=True)
    approvals.answer(once.id, by="user", approve=True)
    ended, under_way = asked(approvals, SHUTDOWN), asked(approvals, SHUTDOWN)
    plan = asked(approvals)
    approvals.answer(plan.id, by="lead", approve=True)
    approvals.answer(ended.id, by="bob", approve=True)
    approvals.settle(ended.id)
    for path in paths.requests.glob("*.json"):
        old = Approval.decode(path.read_bytes())
        assert old is not None
        if old.answered is not None:
            document = {**old.to_json(), "answered": old.answered - 90 * 86_400}
            path.write_text(json.dumps(document))
    approvals.sweep()
    kept = {under_way.id, plan.id, lasting.id, waiting.id}
    assert {question.id for question in approvals.all()} == kept


def test_the_id_of_a_plan_cannot_be_predicted() -> None:
    """The call's key is in the ids of mail; the secret is only in the conversation."""
    one = id_of("k", "secret")
    assert one == id_of("k", "secret"), "a call that is repeated after a crash asks once"
    assert one not in (id_of("k", "other"), id_of("l", "secret"), id_of("k", ""))
    assert re.fullmatch(r"[0-9a-f]{12}", one)


def test_a_line_names_the_first_commits_of_a_push() -> None:
    """Each commit on one line would hide the rest of a table in a pipe."""
    commits = [{"commit": f"{at:040}", "subject": f"subject {at}"} for at in range(151)]
    facts = {"remote": "origin", "branch": "main", "stat": " a.txt | 2 +-", "commits": commits}
    push = Approval(type=Kind.PUSH, asker="bob", to="lead", content="x", asked=1.5, extra={**facts})
    assert push.line.startswith("151 commits to main of origin: 000000000000 subject 0; ")
    assert push.line.endswith(
        "; 000000000000 subject 9; and 141 more: `teamctl requests`; a.txt | 2 +-"
    )
    assert len(push.what.split("\n")) == 153
    few = replace(push, extra={**facts, "commits": commits[:10]})
    assert "more" not in few.line
