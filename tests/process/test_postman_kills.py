"""A postman is killed before its first, second, … operation on a file, until it gets through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from teamd.files.paths import TeamPaths
from teamd.hosts.outbox import ConfirmedPosition, Outbox, read_counts
from teamd.hosts.places import HostPlaces
from teamd.mail.mailbox import Mailbox
from tests.children import kill_at_each_step
from tests.process.powercut import deeds, far


def team(folder: Path) -> TeamPaths:
    paths = TeamPaths(folder / "project" / ".team")
    deeds.create(paths)
    deeds.enlist(paths)
    return paths


def after(deed: Callable[..., None], *arguments: Any) -> Callable[[Callable[[], None]], None]:
    """Return a deed that counts its operations from its first one on."""

    def act(arm: Callable[[], None]) -> None:
        arm()
        deed(*arguments)

    return act


@pytest.mark.slow
def test_mail_that_arrives_is_delivered_once(tmp_path: Path) -> None:
    for kill in kill_at_each_step(least=10):
        paths = team(tmp_path / str(kill.number))
        far.receive(paths, "one")
        kill.during(after(far.receive, paths, "one", "two", "three"))
        far.receive(paths, "one", "two", "three")
        found = [message.content for message in Mailbox(paths, "bob").take().messages]
        assert found == ["one", "two", "three"], kill
        counts = read_counts(HostPlaces(paths).received(far.FAR))
        assert counts is not None
        assert 1 <= counts["n"] <= 3, "messages delivered by a killed postman may not be counted"


@pytest.mark.slow
def test_confirmed_lines_are_removed_and_later_ones_are_kept(tmp_path: Path) -> None:
    for kill in kill_at_each_step(least=5):
        paths = team(tmp_path / str(kill.number))
        far.send_far(paths, "one", "two" * 300)
        kill.during(after(far.carry_and_confirm, paths))
        far.send_far(paths, "three")
        found = [
            line.fields["message"]["content"]
            for line in Outbox(paths, far.FAR).read()
            if line.fields
        ]
        assert found in (["one", "two" * 300, "three"], ["three"]), kill
    position = ConfirmedPosition.read(HostPlaces(paths).confirmed(far.FAR))
    assert found == ["three"]
    assert position is not None
    assert (position.n, position.lines) == (2, 0)


def test_a_partially_written_line_is_cut_off(tmp_path: Path) -> None:
    """Its sender was killed at that, or the power was cut: nobody was told that it is safe."""
    paths = team(tmp_path)
    far.send_far(paths, "one", "two")
    outbox = HostPlaces(paths).outbox(far.FAR)
    whole = outbox.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    for torn in range(1, len(last), 7):
        outbox.write_bytes(whole.removesuffix(last) + last[:-torn])
        far.carry(paths)
        far.send_far(paths, "two")
        assert outbox.read_bytes() == whole
