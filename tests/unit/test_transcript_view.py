"""A conversation on the screen: each text below its speaker, each result below its call."""

from __future__ import annotations

import time
from typing import Any

import click
import pytest
from rich.cells import cell_len

from teamctl.render.layout import Layout
from teamctl.render.transcript_view import TranscriptView
from teamd.messages import Message
from teamd.transcript.records import (
    CallAnswered,
    CallStarted,
    Delivered,
    MailHeld,
    Record,
    Replied,
    TurnEnded,
)

NOW = time.mktime((*time.localtime()[:3], 12, 0, 0, 0, 0, -1))


def said(text: str, at: float = 0, **facts: Any) -> Replied:
    return Replied(content=[{"type": "text", "text": text}], time=NOW + at, **facts)


def call(number: str, tool: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": number, "name": tool, "input": given}


def asked(*calls: dict[str, Any], at: float = 0) -> Replied:
    return Replied(content=list(calls), stop_reason="tool_use", time=NOW + at)


def begun(number: str, at: float) -> CallStarted:
    return CallStarted(tool_use_id=number, time=NOW + at)


def answered(number: str, at: float, text: str = "ok", **facts: Any) -> CallAnswered:
    return CallAnswered(tool_use_id=number, content=text, time=NOW + at, **facts)


def shown(*records: Record, width: int | None = None, **terms: Any) -> list[str]:
    view = TranscriptView(Layout(width, styled=width is not None), full=False, **terms)
    lines = [line for record in records for line in view.show("ann", record)]
    return [click.unstyle(line) for line in (*lines, *view.finish())]


def test_each_result_is_below_its_call_with_its_duration() -> None:
    lines = shown(
        asked(call("1", "bash", command="make"), call("2", "read_file", path="a.py", limit=3)),
        begun("1", 1), answered("1", 4, "built"), begun("2", 5), answered("2", 5.25, "x = 1"),
    )  # fmt: skip
    assert lines == [
        "12:00:00 ann",
        "  bash: make",
        "  → 3 s",
        "    built",
        "  read_file: a.py limit=3",
        "  → 0.25 s",
        "    x = 1",
    ]


def test_a_failure_is_marked_by_a_word() -> None:
    lines = shown(
        asked(call("1", "bash", command="make")), begun("1", 0),
        answered("1", 75, "no rule", is_error=True),
    )  # fmt: skip
    assert lines[2:] == ["  → FAILED after 1m", "    no rule"]


@pytest.mark.parametrize(
    ("notes", "shown_as"),
    [
        ("[exit status 3]", "exit status 3"),
        ("[killed by SIGKILL]\n[1 background process was ended with the command]",
         "killed by SIGKILL"),
        ("[ended after 20 s, its time limit; give a longer `timeout` if it needs one]",
         "ended after 20 s"),
        ("[all of it was ended: over its memory]", "all of it was ended"),
    ],
)  # fmt: skip
def test_a_failed_command_is_marked_by_how_it_ended(notes: str, shown_as: str) -> None:
    lines = shown(
        asked(call("1", "bash", command="make")), begun("1", 0), answered("1", 2, f"out\n{notes}")
    )
    assert lines[2:] == [
        f"  → {shown_as} after 2 s",
        "    out",
        *(f"    {x}" for x in notes.split("\n")),
    ]


def test_an_exit_line_in_the_middle_of_a_file_is_not_an_end() -> None:
    text = "[exit status 1]\n" + "x\n" * 1000
    lines = shown(asked(call("1", "read_file", path="a")), begun("1", 0), answered("1", 2, text))
    assert lines[2] == "  → 2 s"


def test_a_call_that_never_started_has_no_duration() -> None:
    lines = shown(asked(call("1", "bash", command="x")), answered("1", 9, "no", is_error=True))
    assert lines[2] == "  → FAILED"


def test_an_edit_is_shown_as_a_diff() -> None:
    lines = shown(asked(call("1", "edit_file", path="a", old_text="x\ny\n", new_text="x\nz\n")))
    assert lines[1:] == ["  edit_file: a", "     x", "    -y", "    +z", "  → no result yet"]


def test_a_new_file_is_shown_as_a_clipped_diff() -> None:
    content = "".join(f"{n}\n" for n in range(20))
    lines = shown(asked(call("1", "write_file", path="a", content=content)), answered("1", 0))
    assert lines[1:3] == ["  write_file: a", "    +0"]
    assert lines[14] == "    … 8 more lines; --full shows them"


def test_a_running_call_is_shown_at_its_start_in_a_live_view() -> None:
    first = asked(call("1", "bash", command="sleep 9"))
    view = TranscriptView(Layout(), full=False, live=True)
    lines = [line for one in (first, begun("1", 1)) for line in view.show("ann", one)]
    assert click.unstyle(lines[-1]) == "  bash: sleep 9"
    assert [click.unstyle(one) for one in view.show("ann", answered("1", 3))] == [
        "  → 2 s", "    ok",
    ]  # fmt: skip


def test_a_speaker_that_continues_after_another_is_named_again() -> None:
    view = TranscriptView(Layout(), full=False)
    steps: list[tuple[str, Record]] = [
        ("ann", asked(call("1", "bash", command="make"))),
        ("bob", said("Hello.")),
        ("ann", answered("1", 2)),
    ]
    lines = [click.unstyle(line) for name, one in steps for line in view.show(name, one)]
    assert lines == [
        "12:00:00 ann", "12:00:00 bob", "  Hello.",
        "12:00:02 ann", "  bash: make", "  → done", "    ok",
    ]  # fmt: skip


def test_an_answer_to_a_request_says_approved() -> None:
    extra = {"request_id": "1a2b", "approve": True}
    kind = "plan_approval_response"
    mail = Message(sender="lead", to="ann", content="Go.", type=kind, extra=extra)
    lines = shown(Delivered(messages=(mail,), time=NOW))
    assert lines == [f"12:00:00 ✉ lead → ann [{kind}] approved 1a2b", "  Go."]


def test_mail_that_a_teammate_sends_is_shown_as_mail() -> None:
    letter = call("1", "send_message", to="bob", content="Two\nlines.", summary="It works")
    task = call("2", "spawn_teammate", name="cay", role="coder", prompt="Do\nit.")
    odd = call("3", "broadcast", content=5)
    lines = shown(asked(letter, task, odd), *(answered(one, 1) for one in "123"))
    assert [line for line in lines if "→" not in line and line != "    ok"] == [
        "12:00:00 ann",
        "  ✉ to bob — It works",
        "    Two",
        "    lines.",
        '  spawn_teammate: cay role="coder"',
        "    Do",
        "    it.",
        "  ✉ to all",
        "    5",
    ]


def test_each_new_day_is_named_once() -> None:
    lines = shown(said("a", -86_400 * 2), said("b", -86_400 * 2), said("c"))
    assert [line for line in lines if line.startswith("— ")] == [
        time.strftime("— %Y-%m-%d —", time.localtime(NOW + at)) for at in (-86_400 * 2, 0)
    ]


def test_words_are_wrapped_and_not_broken() -> None:
    text = "Some words that are longer than a line is wide, all of them together."
    lines = shown(said(text), width=30)[1:]
    assert " ".join(line.strip() for line in lines) == text
    assert all(line.startswith("  ") and len(line) <= 30 for line in lines)


@pytest.mark.parametrize("text", ["x" * 95, "漢" * 45, "a\tb" * 30])
def test_text_without_spaces_is_cut_at_the_edge(text: str) -> None:
    rows = list(Layout(40).lines(text, "    "))
    assert all(cell_len(click.unstyle(row)) <= 40 for row in rows)
    assert "".join("".join(map(click.unstyle, rows)).split()) == "".join(text.split())


def test_markdown_is_rendered_on_a_terminal_and_left_as_text_elsewhere() -> None:
    text = "# Plan\n\n**First** this\nthen that: `ls`\n\n- one\n- two"
    assert shown(said(text))[1:] == [f"  {line}" for line in text.splitlines()]
    rendered = "\n".join(shown(said(text), width=60)[1:])
    assert "**" not in rendered
    assert "`" not in rendered
    assert "First this\n" in rendered
    assert " • one" in rendered


def test_markdown_cannot_control_the_terminal() -> None:
    """A link hidden behind words, an image, codes and control characters."""
    text = "[a](http://evil.example/) ![b](file:///etc/passwd) \x1b]8;;http://evil\x07 &#27;[2J"
    raw = "\n".join(Layout(80, styled=True).markdown(text))
    left = click.unstyle(raw)
    assert "\x1b" not in left
    assert "http://evil.example/" in left


def test_a_persons_text_is_not_rendered_as_markdown() -> None:
    mail = Message(sender="user", to="ann", content="a * b * c, and _x_")
    assert shown(Delivered(messages=(mail,), time=NOW), width=60)[1:] == ["  a * b * c, and _x_"]


def test_the_end_of_a_turn_and_held_mail_are_shown() -> None:
    lines = shown(
        TurnEnded(outcome="paused", text="a limit", time=NOW),
        MailHeld(senders=("bob", "eve"), time=NOW),
        TurnEnded(outcome="end_turn", text="bye", time=NOW),
    )
    assert lines == [
        "12:00:00 — paused — a limit", "12:00:00 — it only talked: mail of bob, eve waits —",
    ]  # fmt: skip


def changes(old: list[str], new: list[str]) -> list[str]:
    return [click.unstyle(line) for line in Layout().diff("\n".join(old), "\n".join(new))]


def test_a_change_of_very_many_lines_is_shown_without_a_comparison() -> None:
    """The time to compare grows with the square of the lines, so equal lines show as changed."""
    old = [f"line {number}" for number in range(2001)]
    new = [*old[:-1], "another"]
    changed = changes(old, new)
    assert changed == [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    few = [" line 1998", " line 1999", "-line 2000", "+another"]
    assert changes(old[1:], new[1:]) == few


def test_a_result_whose_call_is_not_shown_still_has_its_speaker() -> None:
    """With -n, the reply that made the call may be left out."""
    heading, took, result = shown(begun("1", 0), answered("1", 3, "built"))
    assert heading.endswith(" ann")
    assert (took.strip(), result.strip()) == ("→ 3 s", "built")


def test_thinking_is_shown_dimmed_if_it_has_a_text() -> None:
    content = [
        {"type": "thinking", "thinking": "First\nI look.", "signature": "s"},
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": "I looked."},
    ]
    view = TranscriptView(Layout(), full=False)
    lines = list(view.show("ann", Replied(content=content, time=NOW)))
    assert [click.unstyle(line) for line in lines[1:]] == [
        "  thinking: First",
        "  I look.",
        "  I looked.",
    ]
    assert [line.startswith("  \x1b[2m") for line in lines[1:]] == [True, True, False]
