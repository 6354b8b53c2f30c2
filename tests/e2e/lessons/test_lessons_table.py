"""The lessons' table: each row, and each known failure of other products, has its test.

A row is shown by one test with its name, over real processes and the strict server. Many of the
failures are shown better by repeated kills or by counting system calls than by one story.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[2]

ROWS: Final = (
    "teammate",
    "roster",
    "mailbox",
    "delivery",
    "messages",
    "broadcast",
    "teammates' tools",
    "lead's tools",
    "one `task` tool, three modes",
    "lead",
    "rounds",
    "compaction",
    "shared board",
    "several teams",
    "identity",
    "shutdown",
    "plans",
    "try it",
)
BREAKS: Final = {
    "read-then-truncate without a lock": (
        "test_every_message_arrives_once_and_in_order",
        "test_messages_of_foreign_programs_are_delivered_too",
    ),
    "a lock alone, reader killed in mid-turn": (
        "test_killed_readers_lose_nothing",
        "test_each_message_is_delivered_once_when_a_reader_is_killed",
    ),
    "lock files with O_EXCL": (
        "test_the_lock_of_a_killed_process_is_free_at_once",
        "test_a_foreign_lock_delays_mail_and_loses_none",
    ),
    "roster written in place": ("test_readers_never_see_a_torn_roster_and_no_change_is_lost",),
    "polling": (
        "test_a_foreign_program_that_appends_under_flock_wakes_an_idle_teammate",
        "test_twenty_idle_teammates_use_at_most_20_ms_in_20_s",
    ),
    "a crash": (
        "test_a_killed_teammate_is_back_within_a_second_with_its_conversation",
        "test_too_many_crashes_end_in_failed_and_the_lead_is_informed",
    ),
    "a typo in the name": ("test_a_refusal_is_one_sentence_and_writes_nothing",),
    "`/inbox`": (
        "test_the_inbox_command_does_not_take_mail_of_the_lead",
        "test_inbox_drains_only_the_persons_own_mail_and_keeps_what_was_read",
    ),
    "plan approval": (
        "test_nothing_is_done_before_the_plan_is_approved_and_everything_after",
        "test_a_declared_teammate_may_work_by_plan",
    ),
}
COMPLAINTS: Final = {
    "messages marked read but never seen": (
        "test_a_message_is_not_rejected_because_its_readers_were_killed",
        "test_mail_is_not_taken_when_its_reader_has_gone",
        "test_mail_for_the_person_is_seen_after_the_leading_agent_has_gone",
    ),
    "mail delivered only at the end of a long turn": (
        "test_mail_during_a_long_command_is_in_the_next_request",
    ),
    "no resume": (
        "test_the_next_start_continues_the_same_conversations",
        "test_a_second_spawn_and_a_new_process_remember_the_first",
    ),
    "shutdown that never ends": (
        "test_a_shutdown_ends_although_the_model_never_answers",
        "test_every_handshake_ends_whichever_process_is_killed_at_whichever_step",
    ),
    "orphaned processes": (
        "test_stopped_teammates_do_not_outlive_their_supervisor",
        "test_no_process_outlives_teamd_and_its_teammates_killed_at_once",
    ),
    "idle notices that burn the lead's tokens": ("test_idle_teammates_cost_the_lead_no_tokens",),
    "an idle teammate taken for dead and spawned again": (
        "test_an_idle_teammate_is_not_taken_for_dead",
        "test_a_waiting_teammate_is_not_stuck",
    ),
    "the compacted lead forgetting its team": (
        "test_the_lead_knows_its_team_after_a_compaction",
        "test_a_compacted_teammate_does_not_forget_its_team",
    ),
    "'prompt is too long' bricking a teammate": (
        "test_a_prompt_that_is_too_long_does_not_stop_a_teammate",
        "test_a_giant_mail_does_not_stop_a_teammate",
    ),
    "the model chosen for a teammate ignored": (
        "test_the_server_gets_the_model_of_spawn",
        "test_the_model_of_spawn_overrides_that_of_the_role",
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_row_has_one_test_of_its_name(row: str) -> None:
    words = row.replace("'", "").replace("`", "").replace(",", "").split()
    assert _tests(TESTS / "e2e").count(f"test_{'_'.join(words)}") == 1


@pytest.mark.parametrize("what", [*BREAKS, *COMPLAINTS])
def test_each_break_and_each_complaint_has_its_tests(what: str) -> None:
    """Fails if a test of the table is renamed, as a reminder of its purpose."""
    assert set((BREAKS | COMPLAINTS)[what]) <= set(_tests(TESTS))


@cache
def _tests(folder: Path) -> list[str]:
    """Return the names of all tests in a folder's files."""
    trees = (ast.parse(path.read_bytes()) for path in folder.rglob("test_*.py"))
    nodes = (node for tree in trees for node in tree.body)
    return [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
