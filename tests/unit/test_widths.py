"""Tables on narrow terminals: columns are dropped in a given order, and no figure is cut."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from teamctl.commands import ps, teams
from teamctl.render import message_table, roster_table, task_table, usage_table
from teamctl.render.tables import GAP, FittedTable, Shape

_LONG: Final = "A subject of so many words that no terminal has room for all of them, ever"
_SHAPE: Final = Shape(
    elastic={"WORDS": 10, "NAME": 4}, spare=("SPARE", "OTHER"), dispensable=("WORDS",)
)
_HEADINGS: Final = ("NAME", "STATUS", "SPARE", "OTHER", "WORDS")


@given(st.lists(st.integers(4, 60), min_size=5, max_size=5), st.integers(1, 200))
def test_the_remaining_columns_fit_unless_no_more_can_be_dropped(
    wide: list[int], room: int
) -> None:
    widths = dict(zip(_HEADINGS, wide, strict=True))
    kept = _SHAPE.fit(widths, room, ())
    assert kept.keys() >= {"NAME", "STATUS"}
    least = {one: min(widths[one], _SHAPE.elastic.get(one, widths[one])) for one in widths}
    assert all(least[one] <= kept[one] <= widths[one] for one in kept)
    fits = sum(width + GAP for width in kept.values()) <= room
    assert fits or kept == {one: least[one] for one in ("NAME", "STATUS")}


def test_columns_are_dropped_in_order_and_empty_ones_first() -> None:
    widths = {"NAME": 4, "STATUS": 6, "SPARE": 5, "OTHER": 5, "WORDS": 60}
    assert list(_SHAPE.fit(widths, 200, ())) == list(_HEADINGS)
    assert list(_SHAPE.fit(widths, 52, ())) == ["NAME", "STATUS", "OTHER", "WORDS"]
    assert list(_SHAPE.fit(widths, 52, {"OTHER"})) == ["NAME", "STATUS", "SPARE", "WORDS"]
    assert list(_SHAPE.fit(widths, 40, ())) == ["NAME", "STATUS", "WORDS"]
    assert list(_SHAPE.fit(widths, 20, ())) == ["NAME", "STATUS"]


def drawn(headings: Sequence[str], row: Sequence[str], shape: Shape, width: int) -> list[str]:
    out = io.StringIO()
    table = FittedTable(headings, [[(text, "") for text in row]], headings[:1], shape)
    Console(file=out, width=width).print(table)
    return out.getvalue().splitlines()


def test_no_line_ends_with_padding() -> None:
    for line in drawn(("N", "WORDS"), ("1", "two"), Shape(), 80):
        assert line == line.rstrip()


_TASK: Final = {
    "ID": "12", "STATUS": "in_progress", "OWNER": "alice", "ROLE": "tester", "BLOCKED BY": "7, 8",
    "CHECK": "make test", "PROOF": "passed", "SUBJECT": _LONG,
}  # fmt: skip
_USE: Final = {
    "NAME": "alice", "CALLS": "123", "IN": "450.1k", "READ": "400.0k", "WRITTEN": "12.3k",
    "OUT": "9.8k", "COST": "$12.30", "LIMIT": "2.0M tokens a day", "USED": "99.9%",
}  # fmt: skip


@pytest.mark.parametrize(
    ("width", "gone"),
    [(100, []), (80, ["PROOF", "ROLE"]), (40, ["PROOF", "ROLE", "CHECK", "BLOCKED BY", "OWNER"])],
)
def test_a_long_subject_does_not_displace_the_id_status_or_owner(
    width: int, gone: list[str]
) -> None:
    heading, row = drawn(list(_TASK), list(_TASK.values()), task_table.SHAPE, width)
    kept = [one for one in _TASK if one not in gone]
    assert heading.split() == " ".join(kept).split()
    assert max(len(heading), len(row)) <= width
    assert row.split()[:2] == ["12", "in_progress"]
    assert row.endswith("…")


@pytest.mark.parametrize(
    ("width", "kept"),
    [(200, list(_USE)), (80, [*_USE][:4] + [*_USE][5:]), (40, ["NAME", "OUT", "COST", "USED"])],
)
def test_usage_keeps_whole_figures_and_drops_the_cost_last(width: int, kept: list[str]) -> None:
    heading, row = drawn(list(_USE), list(_USE.values()), usage_table.SHAPE, width)
    shown = [one for one in _USE if one in heading.split()]
    assert {"NAME", "COST"} <= set(shown)
    assert row.split() == " ".join(_USE[one] for one in shown).split()
    assert max(len(heading), len(row)) <= width


_PROCESS: Final = {
    "PID": "123456", "NAME": "alice", "UP": "13m", "CPU": "12s", "MEM": "20.5M", "COMMAND": _LONG,
}  # fmt: skip
_TEAM: Final = {
    "TEAM": "project", "FOLDER": "website", "REQUESTS": "2", "MAIL": "3", "TEAMD": "1234567",
    "MEMBERS": "12", "STATUS": "6 idle, 1 working", "PATH": "/home/somebody/a/project/.team",
}  # fmt: skip

_MESSAGE: Final = {
    "ID": "0660eb646841f3-aadb946defc043a5", "FROM": "lead", "TO": "alice", "AGE": "13m",
    "STATE": "delivered", "TEXT": _LONG,
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "shape", "kept"),
    [
        (_PROCESS, ps._SHAPE, ["PID", "NAME", "MEM", "COMMAND"]),
        (_TEAM, teams._SHAPE, ["TEAM", "REQUESTS", "MAIL"]),
    ],
    ids=["ps", "teams"],
)
def test_in_40_columns_the_remaining_text_is_readable(
    row: dict[str, str], shape: Shape, kept: list[str]
) -> None:
    heading, line = drawn(list(row), list(row.values()), shape, 40)
    assert heading.split() == kept
    assert max(len(heading), len(line)) <= 40
    assert line.split()[0] == next(iter(row.values()))


@pytest.mark.parametrize(
    ("width", "kept", "told"),
    [
        (80, ["ID", "FROM", "TO", "STATE", "TEXT"], "0660eb646841f3-aadb946defc043a5"),
        (40, ["ID", "STATE", "TEXT"], "0660eb646841f3"),
    ],
)
def test_a_message_keeps_enough_of_its_id_for_trace(width: int, kept: list[str], told: str) -> None:
    heading, line = drawn(list(_MESSAGE), list(_MESSAGE.values()), message_table.SHAPE, width)
    assert heading.split() == kept
    assert max(len(heading), len(line)) <= width
    assert line.split()[0].startswith(told)
    assert "delivered" in line.split()


@pytest.mark.parametrize(
    "shape",
    [
        task_table.SHAPE,
        usage_table.SHAPE,
        roster_table.SHAPE,
        ps._SHAPE,
        teams._SHAPE,
        message_table.SHAPE,
    ],
)
def test_every_column_named_in_a_shape_exists(shape: Shape) -> None:
    """A misspelt name would be kept forever."""
    headings = {*_TASK, *_USE, *_PROCESS, *_TEAM, *_MESSAGE, *roster_table.HEADINGS}
    assert headings >= {*shape.elastic, *shape.spare, *shape.dispensable}
