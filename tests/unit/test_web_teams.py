"""The person's other teams on the page: each is opened once, and closed when nobody looks at it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from teamctl.web.guard import Tokens
from teamctl.web.pages import Pages
from teamctl.web.projects import key_of
from teamd.command_line.run import TeamOptions
from teamd.files.paths import STATE_VARIABLE, TeamPaths
from teamd.team import teams
from tests.waiting import until


def make(folder: Path) -> TeamPaths:
    """Make a team with five members, each with a conversation."""
    paths = TeamPaths(folder / ".team")
    paths.create()
    names = [f"m{n}" for n in range(5)]
    members = [{"name": name, "role": "coder", "status": "idle"} for name in names]
    paths.config.write_text(json.dumps({"team_name": folder.name, "members": members}))
    for name in names:
        paths.transcript(name).write_text("{}\n")
    teams.remember(paths)
    return paths


class Page:
    """The routes of one server, without sockets."""

    def __init__(self, own: TeamPaths, **options: Any) -> None:
        choice = TeamOptions(team_dir=str(own.root))
        self._app = Pages(choice, own, Tokens.made(readonly=False), **options).app()

    async def ask(self, team: TeamPaths, what: str) -> dict[str, Any]:
        """Return the answer of a team's route."""
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope(team, what), asyncio.Event().wait, send)  # type: ignore[arg-type]
        assert sent[0]["status"] == 200, sent
        found: dict[str, Any] = json.loads(b"".join(one["body"] for one in sent[1:]))
        return found

    @asynccontextmanager
    async def followed(self, team: TeamPaths) -> AsyncIterator[None]:
        """Follow the events of a team during the block, as an open page does."""
        gone, began = asyncio.Event(), asyncio.Event()

        async def receive() -> Any:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message.get("body"):
                began.set()

        task = asyncio.create_task(self._app(scope(team, "events"), receive, send))
        await began.wait()
        yield
        gone.set()
        with suppress(asyncio.CancelledError):
            await task


def scope(team: TeamPaths, what: str) -> dict[str, Any]:
    path = f"/api/team/{key_of(team)}/{what}"
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": [],
        "may_act": True,
    }


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TeamPaths:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return make(tmp_path / "own")


def test_requests_at_the_same_time_open_a_team_once(own: TeamPaths, tmp_path: Path) -> None:
    other = make(tmp_path / "other")

    async def life() -> None:
        page = Page(own)
        answers = await asyncio.gather(*(page.ask(other, "session") for _ in range(5)))
        assert len({one["boot"] for one in answers}) == 1

    asyncio.run(life())


def test_a_team_is_closed_when_nobody_looks_at_it_and_not_before(
    own: TeamPaths, tmp_path: Path
) -> None:
    """Each open file of a team is a descriptor, and the server has a limit on them."""
    other = make(tmp_path / "other")

    async def life() -> None:
        page, process = Page(own, idle_seconds=0.0), psutil.Process()
        await page.ask(own, "session")
        before = process.num_fds()
        async with page.followed(other):
            boots = [(await page.ask(other, "session"))["boot"] for _ in range(2)]
            assert boots[0] == boots[1]
            await page.ask(other, "mail")
            await page.ask(other, "history")
            assert process.num_fds() > before + 15
        await until(lambda: process.num_fds() == before, what="its files are closed")
        assert (await page.ask(other, "session"))["boot"] != boots[0]

    asyncio.run(life())


def test_a_team_too_many_closes_one_that_nobody_looks_at(own: TeamPaths, tmp_path: Path) -> None:
    others = [make(tmp_path / f"team{n}") for n in range(18)]

    async def life() -> None:
        page = Page(own)
        async with page.followed(others[0]):
            boots = [(await page.ask(team, "session"))["boot"] for team in others]
            assert (await page.ask(others[0], "session"))["boot"] == boots[0]
            assert (await page.ask(others[17], "session"))["boot"] == boots[17]
            assert (await page.ask(others[1], "session"))["boot"] != boots[1]

    asyncio.run(life())
