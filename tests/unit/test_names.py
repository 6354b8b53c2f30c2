"""Names, ids and moments."""

from __future__ import annotations

import time

import pytest

from teamd.errors import BadName
from teamd.files.paths import TeamPaths
from teamd.messages import check_name, is_moment, new_id
from teamd.team.teams import name_of


def test_ids_sort_by_time_and_never_repeat() -> None:
    ids = [new_id() for _ in range(20_000)]
    moments = [made.split("-")[0] for made in ids]
    assert moments == sorted(moments)
    assert len(set(ids)) == len(ids)
    assert abs(int(moments[-1], 16) / 1e6 - time.time()) < 60


@pytest.mark.parametrize("name", ["a", "7", "alice", "Bob_2-x", "x" * 64, "leader"])
def test_a_valid_name_is_accepted(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x y",
        "a@b",
        "-a",
        "_a",
        "ä",
        "a/b",
        "..",
        "a.b",
        "a\n",
        "a\0",
        "lead",
        "LEAD",
        "User",
        "teamd",
        "aLL",
        "x" * 65,
    ],
)
def test_an_invalid_name_is_refused(name: str) -> None:
    """Names become file names, attributes and parts of addresses."""
    with pytest.raises(BadName, match="cannot be a teammate's name") as caught:
        check_name(name)
    assert "\n" not in str(caught.value)


def test_a_moment_is_a_number_of_seconds() -> None:
    assert is_moment(0)
    assert is_moment(1711234567.89)
    for value in (True, None, "1", -1, float("nan"), float("inf"), 10**400, 1711234567890):
        assert not is_moment(value)


def test_a_team_keeps_the_name_that_it_was_made_with_unless_the_settings_name_it(
    paths: TeamPaths,
) -> None:
    assert name_of(paths, None) == "project"
    paths.config.write_text('{"team_name": "default", "members": []}')
    assert (name_of(paths, None), name_of(paths, "shop")) == ("default", "shop")
    paths.config.write_text('{"members": []}')  # of the lessons
    assert name_of(paths, None) == "default"
