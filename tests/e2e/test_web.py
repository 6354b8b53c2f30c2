"""The page of `teamctl web` in Debian's chromium, on a team that runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser import Browser, chromium
from tests.e2e.harness import opened
from tests.e2e.served import served
from tests.strict.replies import say, use
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.harness import Project

HOSTILE = "<img src=x onerror=alert(1)></script><b>\x1b[31m\u202egnp.exe"
RULE = '[[permission]]\ntool = "bash"\ncommand = "git push"\nthen = "ask"\n'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A team that runs: alice has done something, and what bob wants to do has to be allowed."""
    with opened(tmp_path_factory.mktemp("busy")) as made:
        made.write("team.toml", RULE)
        made.stage.play("alice", use(("bash", {"command": "echo hello; exit 3"})), say("Done."))
        pushes = [use(("bash", {"command": f"git push {n}"})) for n in range(5)]
        made.stage.play("bob", *pushes, say("Done."))
        made.start()
        made.do("teamctl", "task", "add", "Write the docs")
        made.do("teamctl", "spawn", "alice", "coder", "Begin.", "--wait")
        made.do("teamctl", "spawn", "bob", "tester", "Push it.")
        wait_until(lambda: "git push" in made.do("teamctl", "requests"), what="bob asks")
        yield made


@pytest.fixture(scope="module")
def link(busy: Project) -> Iterator[str]:
    with served(busy) as server:
        yield server.link


@pytest.fixture
def page(browser: Browser, link: str) -> Iterator[Browser]:
    """The page, just opened; its console holds no error in the end."""
    browser.open(link)
    browser.see("The team")
    yield browser
    assert browser.complaints() == []


def test_the_page_shows_the_team(page: Browser, busy: Project) -> None:
    for words in ("alice", "coder", "bob", "tester", "waiting", "git push 0"):
        page.see(words)
    assert "token" not in page.run("return location.href")
    assert page.run("return document.cookie") == ""


def test_every_width_and_view_is_looked_at(
    page: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For a person to look at; what can be told of it is that nothing is wider than the window."""
    import os

    folder = os.environ.get("SHOTS")
    for view in (
        "",
        "mail",
        "board",
        "queue",
        "usage",
        "roster",
        "way",
        "lesson",
        "member/alice",
        "member/alice%7Clog",
        "member/alice%7Climits",
    ):
        for width in (360, 1280, 2560):
            page.driver.set_window_size(width, 900)
            page.driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
            )
            page.go(view)
            import time

            time.sleep(0.3)
            wide = page.run("return document.documentElement.scrollWidth")
            if folder:
                name = view.replace("/", "-").replace("%7C", "-") or "overview"
                page.driver.save_screenshot(f"{folder}/{name}-{width}.png")
            assert wide <= width, (view, width, wide)
