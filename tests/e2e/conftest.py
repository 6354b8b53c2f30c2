"""A browser, and the page of a running team."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.browser import Browser, Server, chromium, served
from tests.e2e.harness import Project, opened
from tests.strict.replies import say, use
from tests.waiting import wait_until

HOSTILE: Final = "<img src=x onerror=\"document.title='run'\"></script><b>\x1b[31mred\u202egnp.exe"
SHOWN: Final = "<img src=x onerror=\"document.title='run'\"></script><b>\\x1b[31mred\\u202egnp.exe"
RULE: Final = '[[permission]]\ntool = "bash"\ncommand = "git push"\nthen = "ask"\n'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A running team: alice has finished a turn, and bob waits for a permission."""
    with opened(tmp_path_factory.mktemp("busy")) as made:
        made.write("team.toml", RULE)
        failing = use(("bash", {"command": "echo hello; exit 3"}))
        writing = use(("write_file", {"path": "a.txt", "content": HOSTILE}))
        made.stage.play("alice", failing, writing, say(f"Done. {HOSTILE}"))
        pushes = [use(("bash", {"command": f"git push {n}"})) for n in range(9)]
        made.stage.play("bob", *pushes, say("Done."))
        made.start()
        made.do("teamctl", "task", "add", "Write the docs", "--description", HOSTILE)
        made.do("teamctl", "spawn", "alice", "coder", "Begin.", "--wait")
        made.do("teamctl", "spawn", "bob", "tester", "Push it.")
        wait_until(lambda: asked(made), what="bob asks")
        yield made


@pytest.fixture(scope="module")
def server(busy: Project) -> Iterator[Server]:
    with served(busy) as made:
        yield made


@pytest.fixture
def page(
    browser: Browser, server: Server, request: pytest.FixtureRequest, opened_after: dict[str, int]
) -> Iterator[Browser]:
    """The page at its first view; the test fails if the console shows errors at the end.

    Loading takes most of a second. So the page of the previous test is reused, unless that test
    opened another one or failed.
    """
    failed = request.session.testsfailed
    browser.resize(1280)
    if browser.opened != server.link or opened_after.get(server.link) != failed:
        browser.open("about:blank")  # the previous page may poll a server that has ended
        browser.complaints()
        browser.open(server.link)
        opened_after[server.link] = failed
    browser.go("")
    browser.see("The team")
    yield browser
    assert browser.complaints() == []


@pytest.fixture(scope="module")
def opened_after() -> dict[str, int]:
    """For each opened link, the number of failures of other tests at that time."""
    return {}


def asked(project: Project) -> list[dict[str, Any]]:
    """Return the open permission requests."""
    found = json.loads(project.do("teamctl", "requests", "--json"))["requests"]
    return [one for one in found if one["type"] == "permission_request"]
