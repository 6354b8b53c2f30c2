"""`teamctl top` on a simulated screen: tests press keys and read the text."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from teamctl.top.app import Top
from teamd.approvals.approval import Approval, Kind, describe_call
from teamd.approvals.store import Approvals
from teamd.command_line.run import TeamOptions
from teamd.files.paths import TeamPaths
from teamd.mail.routing import MailRouter
from teamd.messages import LEAD, MAX_MESSAGE_BYTES
from teamd.overview.overview import OverviewReader
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.waiting import until


class Shown:
    """The program and the content of its screen."""

    def __init__(self, top: Top, pilot: Pilot[None]) -> None:
        self.top = top
        self._pilot = pilot

    @property
    def lines(self) -> list[str]:
        """The lines of the screen."""
        return [strip.text.rstrip() for strip in self.top.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        """The text of the screen."""
        return "\n".join(self.lines)

    async def press(self, *keys: str) -> None:
        """Press keys; a word of several letters is typed."""
        await self._pilot.press(*keys)

    async def write(self, words: str) -> None:
        """Type words into the field that has the focus."""
        await self._pilot.press(*("space" if one == " " else one for one in words), "enter")

    async def sees(self, words: str) -> None:
        """Wait until the text is shown, even if wrapped, since the path of a team may be long."""
        await until(
            lambda: words in self.text or words in " ".join(self.text.split()),
            what=f"{words!r} is shown",
        )

    async def misses(self, words: str) -> None:
        """Wait until the text is no longer shown."""
        await until(lambda: words not in self.text, what=f"{words!r} is gone")


@asynccontextmanager
async def shown(
    paths: TeamPaths, *, size: tuple[int, int] = (80, 24), calm_seconds: float = 0.0, **more: Any
) -> AsyncIterator[Shown]:
    """Run `top` for the length of a block."""
    seen = OverviewReader(paths).read()
    top = Top(TeamOptions(team_dir=str(paths.root)), seen, calm_seconds=calm_seconds, **more)
    async with top.run_test(size=size) as pilot:
        yield Shown(top, pilot)


def add(paths: TeamPaths, *names: str, **facts: object) -> None:
    """Add members to the roster."""
    for name in names:
        member = Member(name=name, agent_id=f"{name}@default", role="tester", status=Status.IDLE)
        decoded = Member.decode({**member.encode(), **facts}, team="default")
        Roster(paths).update(lambda team, one=decoded: team.with_member(one))  # type: ignore[misc]


def approvals(paths: TeamPaths) -> Approvals:
    """The store of approvals of a team."""
    return Approvals(paths, MailRouter(paths, durable=False, max_bytes=MAX_MESSAGE_BYTES))


def ask(paths: TeamPaths, name: str, command: str) -> Approval:
    """Ask the person for a permission, as a teammate does."""
    now = time.time()
    text = f"{name} asks to run bash:\ncommand: {command}\nbecause of a rule"
    return approvals(paths).ask(
        Approval(
            type=Kind.PERMISSION,
            asker=name,
            to=LEAD,
            content=text,
            asked=now,
            deadline=now + 1000,
            told=True,
            extra=describe_call("bash", {"command": command}),
        )
    )
