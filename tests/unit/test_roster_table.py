"""The roster at every width: columns are dropped in a fixed order, and numbers are never cut."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from teamctl.render.roster_table import HEADINGS, describe_copy, render_roster
from teamd.files.paths import TeamPaths
from teamd.mail.lines import explain_rejected
from teamd.overview.overview import OverviewReader
from teamd.process_id import Identity
from teamd.team.activity import Activity, Doing, Retry, write_activity
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status


def screen(paths: TeamPaths, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(render_roster(OverviewReader(paths).read()))
    return out.getvalue().splitlines()


def table(paths: TeamPaths, width: int) -> list[str]:
    """Return the lines from the headings on."""
    lines = screen(paths, width)
    return lines[next(place for place, line in enumerate(lines) if line.startswith("NAME")) :]


def add(paths: TeamPaths, name: str, **facts: object) -> None:
    member = Member(name=name, agent_id=f"{name}@project", role="tester", status=Status.IDLE)
    fields = {**member.encode(), **facts}
    decoded = Member.decode(fields, team="project")
    Roster(paths).update(lambda team: team.with_member(decoded))


def test_a_wide_screen_shows_every_column(paths: TeamPaths) -> None:
    add(paths, "alice", turns=12_345)
    assert table(paths, 200)[0].split() == list(HEADINGS)


@pytest.mark.parametrize("width", range(20, 120, 7))
def test_no_line_is_wider_than_the_screen_and_no_number_is_cut(
    paths: TeamPaths, width: int
) -> None:
    """A figure without its last digits would be a wrong figure."""
    add(paths, "a-rather-long-name-for-somebody", role="a role of many words", turns=987)
    heading, row, *_ = table(paths, width)
    assert max(len(heading), len(row.rstrip())) <= width
    assert "STATUS" in heading
    assert ("TURNS" in heading) == ("987" in row)
    assert row.count("…") <= 2


def test_an_unknown_colour_is_ignored(paths: TeamPaths) -> None:
    add(paths, "ann", color="of the sea")
    assert table(paths, 200)[1].startswith("ann ")


def test_a_reason_of_many_lines_is_one_note(paths: TeamPaths) -> None:
    add(paths, "ann", reason="the server said:\n\n  no\r\n")
    assert screen(paths, 200)[-1].rstrip() == "ann: the server said: no"


def test_an_empty_team_names_the_next_step(paths: TeamPaths) -> None:
    assert "`teamctl spawn NAME ROLE PROMPT` adds someone" in " ".join(screen(paths, 200))


def test_the_reason_of_a_pause_is_above_the_table_with_the_way_to_resume(paths: TeamPaths) -> None:
    add(paths, "alice", status="paused", reason="no key for the model")
    way_on = "`teamctl resume alice` resumes it"
    assert screen(paths, 200)[0].rstrip() == f"alice is paused: no key for the model; {way_on}"


def test_a_reason_that_names_its_remedy_gets_no_other_advice(paths: TeamPaths) -> None:
    """The text of a limit says by how much to raise it; a plain resume would be refused."""
    command = "teamctl resume ann --usd 2"
    reason = f"limits.team_usd is reached; `{command}` raises it"
    add(paths, "ann", status="paused", reason=reason, remedy=command)
    assert screen(paths, 200)[0].rstrip() == f"ann is paused: {reason}"
    (notice, _) = OverviewReader(paths).read().notices
    assert notice.commands == (command,)


def test_rejected_lines_are_reported(paths: TeamPaths) -> None:
    """Mail from a broken writer must not vanish unseen."""
    add(paths, "alice")
    paths.rejected("alice").write_bytes(b"garbage\nmore\n")
    paths.rejected("lead").write_bytes(b'{"text": "hello"}\n')
    _, first, second, *_ = (line.rstrip() for line in screen(paths, 400))
    assert first == (
        "1 line of mail to lead could not be read (it has `text` in place of `content`): send it "
        f"again in the right form, then remove {paths.rejected('lead')}; "
        "`teamctl help files` shows the form"
    )
    assert second.startswith("2 lines of mail to alice could not be read (it is not JSON): send")
    (notice,) = (one for one in OverviewReader(paths).read().notices if one.about == "alice")
    assert (notice.kind, notice.commands) == ("rejected", ("teamctl help files",))


def test_the_most_frequent_reasons_are_listed_with_their_counts(paths: TeamPaths) -> None:
    arrays, bom = b"[1]\n" * 3, b'\xef\xbb\xbf{"content": "a"}\n'
    paths.rejected("lead").write_bytes(
        arrays + bom + b"7\n" * 2 + b"\xff\n" + b"{}\n" + b"nothing\n"
    )
    told = (
        "(3: it is a JSON array; write one object per line, 2: it is not a JSON object, "
        "1: it begins with a byte order mark (BOM), 3: other reasons)"
    )
    assert f"9 lines of mail to lead could not be read {told}: send them" in screen(paths, 400)[1]


def test_a_rejected_line_that_is_too_long_is_explained_as_such(paths: TeamPaths) -> None:
    paths.rejected("lead").write_bytes(b"7\n" + b"x" * 2_000_000 + b"\n")
    assert explain_rejected(paths.rejected("lead")) == "it is longer than 1048576 bytes"


def test_of_many_rejected_lines_the_last_hundred_are_explained(paths: TeamPaths) -> None:
    paths.rejected("lead").write_bytes(b"[]\n" * 200 + b"7\n" * 99)
    told = (
        "of the last 100, 99: it is not a JSON object, "
        "1: it is a JSON array; write one object per line"
    )
    assert explain_rejected(paths.rejected("lead")) == told


def test_the_pid_of_a_dead_process_is_not_shown(paths: TeamPaths) -> None:
    """After a crash the roster still contains it, and the pid may belong to another process."""
    add(paths, "alice", pid=1, started=123.0)
    assert " - " in table(paths, 200)[1]


def test_a_working_copy_that_cannot_be_read_shows_the_reason(paths: TeamPaths) -> None:
    add(paths, "ann", worktree=True)
    note = screen(paths, 10_000)[-1].rstrip()
    assert note.startswith("ann: ")
    assert "ahead" not in note
    (found,) = OverviewReader(paths).read().members
    assert found.copy is not None
    assert note == f"ann: {found.copy['trouble']}"


def working(paths: TeamPaths, name: str, *, cause: str, seconds: float, **facts: object) -> None:
    """Let a running process report that its model calls have failed for so long."""
    me = Identity.own()
    add(paths, name, status="working", pid=me.pid, started=me.started, **facts)
    retry = Retry(3, 10, cause, next=None, since=time.time() - seconds)
    doing = Doing("tool", "task: look")  # its subagent asks the model
    paths.activities.mkdir(exist_ok=True)
    activity = Activity(process=me, since=time.time() - 7200, doing=doing, retry=retry)
    write_activity(paths.activity(name), activity)


def test_the_cause_of_a_dead_server_is_visible_at_80_columns(paths: TeamPaths) -> None:
    working(paths, "ann", cause="no connection to http://localhost:9: refused", seconds=5)
    working(paths, "bob", cause="no connection to http://localhost:9: refused", seconds=5)
    assert "ann, bob: no connection to http://localhost:9: refused" in " ".join(screen(paths, 80))
    assert {one.kind for one in OverviewReader(paths).read().notices} == {"teamd"}


def test_a_server_that_has_failed_for_a_minute_causes_a_notice_during_the_retries(
    paths: TeamPaths,
) -> None:
    working(paths, "ann", cause="529 overloaded", seconds=150)
    working(paths, "bob", cause="529 overloaded", seconds=61)
    notice = OverviewReader(paths).read().notices[0]
    text = "calls of the model have failed for 2 min (ann, bob): 529 overloaded"
    assert (notice.kind, notice.text, notice.command) == ("outage", text, "teamctl doctor")
    assert " ".join(screen(paths, 200)).count("529 overloaded") == 1 + 2, "the notice and two rows"


def test_a_killed_teammate_without_teamd_is_not_shown_as_working(paths: TeamPaths) -> None:
    add(paths, "ann", status="working", pid=2**22, started=1.0)
    add(paths, "bob", status="idle")
    assert "stopped (was working)" in table(paths, 200)[1]
    assert [view.state for view in OverviewReader(paths).read().members] == ["stopped", "idle"]


def test_a_teammate_that_pauses_at_the_end_of_its_step_is_pausing(paths: TeamPaths) -> None:
    working(paths, "ann", cause="", seconds=0, paused_by="user")
    assert OverviewReader(paths).read().members[0].state == "pausing"


def test_a_copy_without_work_is_described_without_zeros() -> None:
    copy = {"branch": "team/ann", "ahead": 0, "uncommitted": 0}
    assert describe_copy(copy) == "branch team/ann of its copy"
    assert describe_copy({**copy, "ahead": 2, "uncommitted": 1}) == (
        "branch team/ann of its copy, 2 commits ahead, 1 uncommitted file"
    )
