"""`teamctl top` on a simulated screen: tests press keys and read the text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, cast

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
    """The program and the content of its screen; its event loop runs during each call."""

    def __init__(self, top: Top, pilot: Pilot[None], runner: asyncio.Runner) -> None:
        self.top = top
        self._pilot = pilot
        self._runner = runner

    @property
    def lines(self) -> list[str]:
        """The lines of the screen."""
        return [strip.text.rstrip() for strip in self.top.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        """The text of the screen."""
        return "\n".join(self.lines)

    def rest(self, seconds: float) -> None:
        """Let the program run for a time."""
        self._runner.run(asyncio.sleep(seconds))

    def press(self, *keys: str) -> None:
        """Press keys."""
        self._runner.run(self._pilot.press(*keys))

    def write(self, words: str) -> None:
        """Type words into the field that has the focus."""
        self.press(*("space" if one == " " else one for one in words), "enter")

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds."""
        self._runner.run(until(done, what=what))

    def sees(self, words: str) -> None:
        """Wait until the text is shown, even if wrapped, since the path of a team may be long."""
        self.until(
            lambda: words in self.text or words in " ".join(self.text.split()),
            what=f"{words!r} is shown",
        )

    def misses(self, words: str) -> None:
        """Wait until the text is no longer shown."""
        self.until(lambda: words not in self.text, what=f"{words!r} is gone")


@contextmanager
def shown(
    paths: TeamPaths, *, size: tuple[int, int] = (80, 24), calm_seconds: float = 0.0, **more: Any
) -> Iterator[Shown]:
    """Run `top` for the length of a block."""
    seen = OverviewReader(paths).read()
    with asyncio.Runner() as runner:

        async def start() -> AbstractAsyncContextManager[Pilot[None]]:
            choice = TeamOptions(team_dir=str(paths.root))
            return Top(choice, seen, calm_seconds=calm_seconds, **more).run_test(size=size)

        running = runner.run(start())
        pilot = runner.run(running.__aenter__())
        try:
            yield Shown(cast("Top", pilot.app), pilot, runner)
        finally:
            runner.run(running.__aexit__(None, None, None))


def add(paths: TeamPaths, *names: str, **facts: object) -> None:
    """Add members to the roster."""
    for name in names:
        member = Member(name=name, agent_id=f"{name}@project", role="tester", status=Status.IDLE)
        decoded = Member.decode({**member.encode(), **facts}, team="project")
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
