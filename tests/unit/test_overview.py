"""The overview of a team: dead members, open requests and notices; reading it changes nothing."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teamctl.commands.doctor import _files
from teamd import __version__
from teamd.approvals.approval import Approval, Kind, describe_call
from teamd.approvals.store import Approvals
from teamd.clocks import time_of_day
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, PERMISSION_TYPE, PLAN_TYPE, USER, Message
from teamd.overview.members import MemberView, describe_retry
from teamd.overview.overview import Overview, OverviewReader
from teamd.process_id import Identity
from teamd.team.activity import Activity, Doing, Retry, write_activity
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status

_ME = Identity.own()
_LS = Doing(kind="tool", what="bash ls")


def add(paths: TeamPaths, name: str, status: Status = Status.IDLE, **facts: Any) -> None:
    """Add a member to the roster, by default with the test's own process."""
    process = {"pid": _ME.pid, "started": _ME.started}
    member = Member(
        name=name, agent_id=f"{name}@project", role="coder", status=status, **{**process, **facts}
    )
    Roster(paths).update(lambda team: team.with_member(member))


def say(paths: TeamPaths, name: str, **facts: Any) -> None:
    """Write a teammate's activity."""
    said = Activity(**{"process": _ME, "since": 1000.0, "doing": _LS, **facts})
    write_activity(paths.activity(name), said)


def ask(paths: TeamPaths, asker: str, kind: Kind, to: str = LEAD, **facts: Any) -> Approval:
    store = Approvals(paths, MailRouter(paths, durable=False, max_bytes=10_000))
    asked = Approval(
        type=kind, asker=asker, to=to, content="May I?", **{"asked": time.time(), **facts}
    )
    return store.ask(asked)


def look(paths: TeamPaths) -> Overview:
    return OverviewReader(paths).read()


def see(paths: TeamPaths, name: str = "ann") -> MemberView:
    found = look(paths).find(name)
    assert found is not None
    return found


def test_the_activity_of_a_live_process_is_shown(paths: TeamPaths) -> None:
    add(paths, "ann", Status.WORKING)
    say(paths, "ann", context=0.25)
    ann = see(paths).to_json()
    assert ann["doing"] == {"kind": "tool", "what": "bash ls"}
    assert (ann["since"], ann["context"], ann["state"]) == (1000.0, 0.25, "working")


@pytest.mark.parametrize(
    "gone", [replace(_ME, started=_ME.started - 1), Identity(pid=1 << 22, started=1.0)]
)
def test_the_activity_of_a_dead_process_is_ignored(paths: TeamPaths, gone: Identity) -> None:
    """After a kill the file is unchanged, and another process may have the pid."""
    add(paths, "ann", Status.WORKING, pid=gone.pid, started=gone.started)
    say(paths, "ann", process=gone, context=0.25)
    ann = see(paths).to_json()
    assert (ann["doing"], ann["pid"], ann["context"]) == (None, None, 0.25)


def test_the_activity_of_an_earlier_process_is_ignored(paths: TeamPaths) -> None:
    add(paths, "ann", Status.WORKING)
    say(paths, "ann", process=replace(_ME, started=_ME.started - 1))
    assert see(paths).doing is None


@pytest.mark.parametrize("status", [Status.SHUTDOWN, Status.FAILED, Status.PAUSED])
def test_a_stopped_member_has_no_activity(paths: TeamPaths, status: Status) -> None:
    add(paths, "ann", status)
    say(paths, "ann")
    assert see(paths).doing is None
    assert see(paths).state == status


def test_a_member_works_before_the_roster_says_so(paths: TeamPaths) -> None:
    """The roster follows some milliseconds later."""
    add(paths, "ann", Status.IDLE)
    say(paths, "ann")
    assert see(paths).state == "working"


@pytest.mark.parametrize(
    ("kind", "status"), [(Kind.PERMISSION, Status.PAUSED), (Kind.PLAN, Status.IDLE)]
)
def test_a_member_waits_for_its_open_request(paths: TeamPaths, kind: Kind, status: Status) -> None:
    """`status` stays the roster's status."""
    add(paths, "ann", status, status_since=5.0)
    asked = ask(paths, "ann", kind)
    ann = see(paths)
    assert (ann.state, ann.to_json()["status"]) == ("waiting", status)
    assert (ann.since, ann.to_json()["waiting_request"]) == (asked.asked, asked.id)


def test_a_member_at_a_limit_is_shown_as_paused_even_with_an_open_plan(paths: TeamPaths) -> None:
    """An answer to the plan would not end the pause."""
    add(paths, "ann", Status.PAUSED, reason="a limit")
    ask(paths, "ann", Kind.PLAN)
    assert see(paths).state == "paused"


def test_an_overdue_request_is_not_open(paths: TeamPaths) -> None:
    add(paths, "ann", Status.PAUSED)
    ask(paths, "ann", Kind.PERMISSION, deadline=time.time() - 1)
    assert look(paths).requests == ()
    assert see(paths).state == "paused"


def test_a_request_is_shown_exactly_with_both_commands(paths: TeamPaths) -> None:
    add(paths, "ann", Status.PAUSED)
    told = describe_call("bash", {"command": "git push  origin"})
    asked = ask(paths, "ann", Kind.PERMISSION, extra=told)
    (notice, *_) = look(paths).notices
    assert notice.lines == [
        "ann asks to run: bash git push origin",
        f"  `teamctl approve {asked.id}` or `teamctl reject {asked.id}`",
    ]
    assert notice.to_json()["command"] == f"teamctl approve {asked.id}"
    assert look(paths).to_json()["requests"][0]["what"] == "bash git push  origin"


def test_a_long_request_is_clipped_with_the_command_that_shows_all_of_it(paths: TeamPaths) -> None:
    """The cut part might be dangerous."""
    add(paths, "ann", Status.PAUSED)
    ask(paths, "ann", Kind.PERMISSION, extra=describe_call("bash", {"command": "x" * 5000}))
    text = look(paths).notices[0].text
    assert len(text) < 400
    assert text.endswith("… (`teamctl requests` shows it)")


def test_commands_name_a_team_that_is_not_the_default(tmp_path: Path) -> None:
    paths = TeamPaths(tmp_path / ".teams" / "blue")
    paths.create()
    add(paths, "ann", Status.PAUSED)
    asked = ask(paths, "ann", Kind.PERMISSION)
    commands = [command for notice in look(paths).notices for command in notice.commands]
    assert f"teamctl --team blue approve {asked.id}" in commands
    assert all(" --team blue " in command for command in commands)


def test_a_plan_for_the_lead_does_not_wait_for_the_person(paths: TeamPaths) -> None:
    """Only requests to the person become notices."""
    add(paths, LEAD)
    add(paths, "ann")
    ask(paths, "ann", Kind.PLAN, to=LEAD)
    permission = ask(paths, "ann", Kind.PERMISSION, to="user")
    seen = look(paths)
    assert [request.approval.type for request in seen.requests] == [PLAN_TYPE, PERMISSION_TYPE]
    assert [request.approval.id for request in seen.waiting] == [permission.id]
    assert [one.request for one in seen.notices if one.kind == "waiting"] == [permission.id]


def test_stopped_members_are_listed_with_their_remedies_failed_ones_first(paths: TeamPaths) -> None:
    add(paths, "ann", Status.PAUSED, reason="limits.team_usd is reached")
    add(paths, "bob", Status.FAILED, reason="its process ended with exit code 1")
    failed, paused, *_ = (line for one in look(paths).notices for line in one.lines)
    assert failed == (
        "bob has failed: its process ended with exit code 1; `teamctl spawn bob coder 'Go on.'` "
        "resumes it"
    )
    assert paused == ("ann is paused: limits.team_usd is reached; `teamctl resume ann` resumes it")


def test_the_reason_for_a_requested_pause_is_shown_unchanged(paths: TeamPaths) -> None:
    why = "paused by the person; `teamctl resume ann` resumes it"
    add(paths, "ann", Status.PAUSED, reason=why, paused_by="user")
    assert look(paths).notices[0].lines == [f"ann is {why}"]


def test_a_command_that_a_reason_names_is_not_named_twice(paths: TeamPaths) -> None:
    why = "the key was refused; give another one, then `teamd restart`"
    add(paths, "ann", Status.PAUSED, reason=why, remedy="teamd restart")
    told = look(paths).notices[0]
    assert told.lines == [f"ann is paused: {why}"]
    assert told.command == "teamd restart"


def test_unread_mail_of_the_person_is_a_notice(paths: TeamPaths) -> None:
    post = MailRouter(paths, durable=False, max_bytes=1000)
    for text in ("one", "two"):
        post.send(Message(sender="ann", to=LEAD, content=text))
    assert look(paths).unread == 2
    lines = [line for one in look(paths).notices for line in one.lines]
    assert lines[-1] == "2 messages wait for you; `teamctl inbox` shows them"
    add(paths, LEAD)
    assert look(paths).unread == 0


def test_mail_from_when_an_agent_led_is_still_unread_after_its_shutdown(paths: TeamPaths) -> None:
    add(paths, LEAD)
    post = MailRouter(paths, durable=False, max_bytes=1000)
    post.send(Message(sender="ann", to=USER, content="Done."))
    assert look(paths).unread == 1
    add(paths, LEAD, Status.SHUTDOWN)
    assert look(paths).unread == 1


def test_mail_for_the_person_is_not_counted_for_the_agent_that_was_shut_down(
    paths: TeamPaths,
) -> None:
    add(paths, LEAD, Status.SHUTDOWN)
    MailRouter(paths, durable=False, max_bytes=1000).send(
        Message(sender="ann", to=LEAD, content="Done.")
    )
    (lead,) = look(paths).members
    assert (lead.queued, look(paths).unread) == (0, 1)


def test_a_missing_teamd_is_a_notice(paths: TeamPaths) -> None:
    (notice,) = look(paths).notices
    assert notice.lines == [f"no teamd runs for {paths.root}; `teamd start` starts it"]


@pytest.mark.parametrize(("recorded", "runs"), [("0.0", "teamd 0.0"), (None, "an older teamd")])
def test_a_teamd_of_another_version_is_a_notice(
    paths: TeamPaths, recorded: str | None, runs: str
) -> None:
    claim = pidfile.claim(paths)
    try:
        facts = {"pid": _ME.pid, "started": _ME.started, "version": recorded}
        paths.supervisor.write_text(json.dumps({k: v for k, v in facts.items() if v}))
        (notice,) = look(paths).notices
        (finding,) = [one for one in _files(paths) if "is installed" in one.what]
    finally:
        os.close(claim)
    text = f"{runs} runs for {paths.root}, and {__version__} is installed"
    assert notice.lines == [f"{text}; `teamd restart` replaces it"]
    assert (finding.what, finding.remedy) == (text, "`teamd restart` replaces it")


def test_a_retry_shows_its_number_cause_and_time() -> None:
    soon, now = time.time() + 57.2, time.time() - 1
    retry = Retry(attempt=7, attempts=10, cause="connection refused", next=soon, since=now)
    assert describe_retry(retry) == "retrying 7/10: connection refused, next in 57 s"
    for begun in (now, None):
        assert describe_retry(replace(retry, next=begun)) == "retrying 7/10: connection refused"


def test_a_retry_and_the_end_of_a_pause_are_described(paths: TeamPaths) -> None:
    add(paths, "ann", Status.WORKING)
    retry = Retry(attempt=2, attempts=10, cause="busy", next=None, since=time.time())
    say(paths, "ann", doing=Doing(kind="model", what="claude"), retry=retry)
    assert see(paths).describes == "retrying 2/10: busy"
    assert see(paths).to_json()["retry"]["text"] == "retrying 2/10: busy"
    add(paths, "bob", Status.PAUSED, until=(until := time.time()))
    assert see(paths, "bob").describes == f"until {time_of_day(until)}"


def test_memory_is_shown_as_the_process_reports_it(paths: TeamPaths) -> None:
    """Otherwise shared memory would be counted once per process."""
    add(paths, "ann", Status.WORKING)
    rough = see(paths).memory_bytes
    say(paths, "ann", memory_bytes=12_345)
    assert rough is not None
    assert see(paths).memory_bytes == 12_345


def test_reading_changes_no_file(paths: TeamPaths) -> None:
    add(paths, "ann", Status.PAUSED)
    ask(paths, "ann", Kind.PERMISSION)
    say(paths, "ann")
    before = _snapshot(paths)
    look(paths).to_json()
    assert _snapshot(paths) == before


def test_an_unreadable_file_of_one_member_does_not_hide_others(paths: TeamPaths) -> None:
    add(paths, "ann", Status.WORKING)
    add(paths, "bob", Status.WORKING)
    for strange in (paths.activity("ann"), paths.inbox("ann")):
        strange.unlink(missing_ok=True)
        strange.symlink_to("/dev/null")
    say(paths, "bob")
    ann, bob = look(paths).members
    assert (ann.doing, ann.queued) == (None, None)
    assert "symbolic link" in (ann.trouble or "")
    assert bob.doing == _LS


def _snapshot(paths: TeamPaths) -> dict[str, tuple[bytes, int]]:
    """Return the content of every file, and when it was changed."""
    files = [path for path in paths.root.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.slow
def test_a_repeated_read_does_not_miss_changes(paths: TeamPaths) -> None:
    """Unchanged files are not read again; changes within a clock tick are seen."""
    reader = OverviewReader(paths)
    for number in range(1, 30):
        add(paths, "ann", Status.PAUSED, turns=number)
        asked = ask(paths, "ann", Kind.PERMISSION)
        say(paths, "ann", context=number / 100)
        seen = reader.read()
        assert [view.member.turns for view in seen.members] == [number]
        assert (seen.members[0].context, len(seen.requests)) == (number / 100, 1)
        Approvals(paths, MailRouter(paths, durable=False, max_bytes=10_000)).answer(
            asked.id, by="user", approve=False
        )
        assert reader.read().requests == ()
