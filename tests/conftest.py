"""Fixtures and the order of tests."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from teamd.files.paths import STATE_VARIABLE
from tests.e2e.harness import Project, opened
from tests.forked.client import SHARED_VARIABLE

settings.register_profile("teamd", deadline=None, max_examples=40)  # busy machines fail no test
settings.register_profile("thorough", deadline=None, max_examples=1000)  # --hypothesis-profile
settings.load_profile("teamd")

_SLOW: Final = "slow and not long"  # the markers that `.ci/run` selects after the usual tests
_USUAL: Final = "not long and not slow"
_ALL_SLOW: Final = re.compile(r"^pytestmark = .*mark\.(slow|long)\b", re.MULTILINE)
_LONGEST_FIRST: Final = ("process", "e2e", "unit")
_WORKERS: Final = "PYTEST_XDIST_WORKER_COUNT"
_MOST_LOGGED: Final = 30
# Run by one worker, since loading the SDK takes 3 seconds.
_WITH_SDK: Final = frozenset(
    f"tests/process/test_{name}.py"
    for name in (
        "claude", "claude_failures", "connections", "model_pages", "odd_replies", "strict_server",
    )
)  # fmt: skip
_TOOLS: Final = ("strace", "faketime", "tmux")  # each has a marker
# A PATH folder under one of these adds up to ten mounts to every sandbox, and no test needs it.
_VERSION_MANAGERS: Final = frozenset({".cargo", ".pyenv", ".rbenv", ".asdf"})


def _keep_from_midnight() -> None:
    """Set the time zone to noon if the day would end during the run.

    After midnight, times are printed with a date and budgets start a new day.
    """
    if not 1 <= time.localtime().tm_hour < 23:
        os.environ["TZ"] = f"NOON{time.gmtime().tm_hour - 12:+d}"  # POSIX: hours to add for UTC
        time.tzset()


_keep_from_midnight()  # before any code reads the clock; workers and programs inherit it


def pytest_configure(config: pytest.Config) -> None:
    """Let each worker compile a share of the test files; the others read its bytecode.

    Every worker imports all test files, and compiling takes twice as long as all other work before
    its first test. So each worker starts at a different file. Import errors are reported later,
    when tests are collected.
    """
    if config.option.markexpr == _SLOW:
        # Tests of 20 s stand in files of minutes; few of these tests share a fixture of their file.
        config.option.dist = "worksteal"
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker:
        gc.disable()  # until collection ends: none of these objects becomes garbage
    if not worker or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    root = config.rootpath
    names = sorted(
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in root.glob("tests/*/test_*.py")
        if not _has_no_selected_test(path, config)
    )
    first = len(names) * int(worker.removeprefix("gw")) // int(os.environ[_WORKERS])
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="error"):
        patch.setattr(sys, "dont_write_bytecode", False)  # otherwise each run compiles again
        for name in (*names[first:], *names[:first]):
            with suppress(Exception):
                import_module(name)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file in vain: one in three has slow tests, and some have no others."""
    return _has_no_selected_test(collection_path, config) or None


def _has_no_selected_test(path: Path, config: pytest.Config) -> bool:
    """Return whether a file has only slow tests, or none, while the others are selected."""
    selected = config.option.markexpr
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if selected not in (_SLOW, _USUAL) or not path.match("test_*.py"):
        return False
    text = path.read_text(encoding="utf-8")
    if selected == _SLOW:
        return "mark.slow" not in text
    return whole and _ALL_SLOW.search(text) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return two per core, since most tests wait; with more, tests with deadlines would fail.

    Slow tests wait still more, and longer.
    """
    return (3 if config.option.markexpr == _SLOW else 2) * (os.cpu_count() or 1)


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Each worker gets whole files; one worker gets all files that load the SDK."""

    def _split_scope(self, nodeid: str) -> str:
        path: str = super()._split_scope(nodeid)
        return "SDK" if path in _WITH_SDK else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling | None:
    return _Scheduling(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest tests, so that no worker is left alone with them at the end."""
    items.sort(key=lambda item: _rank(item.path.parts))


def pytest_collection_finish() -> None:
    """Exempt the million collected objects from garbage collection.

    Many tests fork this process, and each fork copies its page table: 8 ms, and as much for the
    child's exit, where a quarter of that would do.
    """
    gc.freeze()
    gc.enable()


def _rank(parts: tuple[str, ...]) -> int:
    return next(n for n, room in enumerate((*_LONGEST_FIRST, parts[-1])) if room in parts)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that proves nothing without a missing tool; the tools exist only on Linux."""
    for tool in _TOOLS:
        if item.get_closest_marker(tool) is None or shutil.which(tool):
            continue
        if sys.platform != "linux":
            pytest.skip(f"{tool} is for Linux")
        pytest.fail(f"{tool} is not installed: `apt-get install {tool}`", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of teamd's log after a failed test, because CI keeps no files."""
    report = yield
    for project in map(getattr(item, "funcargs", {}).get, ("project", "running")):
        log = project and report.failed and call.when == "call" and project.paths.log("teamd")
        if log and log.exists():
            told = log.read_text(encoding="utf-8", errors="replace").splitlines()
            report.sections.append(("end of teamd.log", "\n".join(told[-_MOST_LOGGED:])))
    return report


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the tests their own trust store, apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE_VARIABLE, str(tmp_path_factory.mktemp("state")))
        patch.setenv("PATH", _path_without_version_managers(os.environ["PATH"]))
        yield


def _path_without_version_managers(path: str) -> str:
    folders = path.split(os.pathsep)
    own = os.pathsep.join(one for one in folders if _VERSION_MANAGERS.isdisjoint(Path(one).parts))
    return own if shutil.which("python3", path=own) else path


@pytest.fixture(scope="session", autouse=True)
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Share one process that has imported the commands among all workers of a run.

    To measure each worker alone, give each its own process: `TESTS_SHARE= pytest`.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ and SHARED_VARIABLE not in os.environ:
            patch.setenv(SHARED_VARIABLE, str(tmp_path_factory.getbasetemp().parent))
        yield


@pytest.fixture(autouse=True)
def turn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Run a test marked `alone`, which measures, while no other worker runs a test.

    A test that waits to be alone holds the lock for entering until the running tests finish.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    above = tmp_path_factory.getbasetemp().parent
    alone = request.node.get_closest_marker("alone") is not None
    with (above / "door").open("w") as door, (above / "inside").open("w") as inside:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(inside, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield


@pytest.fixture
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Project]:
    """A folder with the installed commands and a strict server; teamd is not started yet."""
    with opened(tmp_path, installed=_installed(request)) as made:
        yield made


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Project]:
    """A project with a running teamd, shared by the tests of a file; each uses its own names."""
    with opened(tmp_path_factory.mktemp("running"), installed=_installed(request)) as made:
        made.start()
        yield made


@pytest.fixture
def team(running: Project) -> Iterator[Project]:
    """The running project; fails if the server has refused a request by the end of the test."""
    yield running
    assert [str(error) for error in running.server.refused] == []


def _installed(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("installed") is not None
