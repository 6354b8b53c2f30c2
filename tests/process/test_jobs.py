"""Background jobs with real processes: state, output, end, and cleanup."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from teamd.masking import MASK, Mask
from teamd.process_id import Identity
from teamd.tools import Result, Toolbox
from teamd.tools.background import (
    INTERRUPTED,
    LOST,
    MOST_RUNNING,
    STOPPED,
    BackgroundRun,
    CheckBackground,
    Jobs,
    StopBackground,
)
from teamd.tools.output import OutputFile
from teamd.tools.shell import Bash
from tests.shells import open_shell
from tests.waiting import until

P = ParamSpec("P")
FACTS = {"id": "3", "what": "make", "state": "done", "started": 1.0, "ended": 2.0}


class Bench:
    """The three tools over a folder, with the number of rings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rings = 0
        self.jobs = Jobs(folder / "jobs", ring=self._ring, mask=Mask("sk-0123456789"))
        shell = open_shell(folder)
        self.box = Toolbox(
            [
                BackgroundRun(self.jobs, shell),
                CheckBackground(self.jobs, output_bytes=2000),
                StopBackground(self.jobs),
                Bash(shell=shell, timeout_seconds=60, output_bytes=2000),
            ]
        )

    async def run(self, command: str) -> Result:
        return await self.box.run("background_run", {"command": command})

    async def check(self, job_id: str) -> str:
        return (await self.box.run("check_background", {"job_id": job_id})).text

    async def ended(self, job_id: str) -> None:
        await until(lambda: not self.jobs.get(job_id).runs, what=f"job {job_id} has ended")

    def pid(self, name: str) -> int:
        return int((self.folder / name).read_text())

    def _ring(self) -> None:
        self.rings += 1


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a coroutine a test."""

    @wraps(test)
    def run(*given: P.args, **more: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*given, **more), timeout=60))

    return run


@in_a_loop
async def test_a_job_runs_during_other_calls_and_rings_the_bell_when_it_ends(bench: Bench) -> None:
    begun = await bench.run("echo first; while [ ! -e go ]; do sleep 0.01; done; exit 3")
    assert begun.text == "job_id: 1"
    await until(lambda: "first" in bench.jobs.output("1", 100), what="its first words")
    assert (await bench.check("1")).startswith("job_id: 1 [running] ")
    assert (await bench.box.run("bash", {"command": "touch go"})).is_error is False
    await bench.ended("1")
    assert (await bench.check("1")).startswith("job_id: 1 [exit status 3] ")
    assert bench.rings == 1


@in_a_loop
async def test_stopping_a_job_ends_all_its_processes_even_in_a_session_of_their_own(
    bench: Bench,
) -> None:
    await bench.run("setsid bash -c 'echo $$ > deep; sleep 1000' & echo $$ > top; wait")
    pids = [bench.folder / name for name in ("deep", "top")]
    await until(lambda: all(p.exists() and p.read_text().strip() for p in pids), what="pids")
    running = [Identity.of(bench.pid(name)) for name in ("deep", "top")]
    assert None not in running
    stopped = await bench.box.run("stop_background", {"job_id": "1"})
    assert stopped.text.startswith(f"job_id: 1 [{STOPPED}] ")
    again = await bench.box.run("stop_background", {"job_id": "1"})
    assert again.text == stopped.text
    for name, before in zip(("deep", "top"), running, strict=True):
        assert Identity.of(bench.pid(name)) != before


@in_a_loop
async def test_a_job_of_an_earlier_process_is_reported_as_ended_with_it(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    await first.run("sleep 1000")
    second = Bench(tmp_path)
    assert second.jobs.get("1").state == INTERRUPTED
    assert (await second.run("true")).text == "job_id: 2"
    await second.ended("2")
    await first.jobs.stop("1")


@in_a_loop
async def test_the_number_of_running_jobs_is_limited(bench: Bench) -> None:
    async def work(_: object) -> str:
        await asyncio.Event().wait()
        return ""

    for _ in range(MOST_RUNNING):
        bench.jobs.start("wait", work)
    refused = await bench.run("true")
    assert refused.is_error
    assert f"{MOST_RUNNING} jobs run already" in refused.text
    await bench.jobs.stop("1")
    assert (await bench.run("true")).text == f"job_id: {MOST_RUNNING + 1}"
    await bench.ended(str(MOST_RUNNING + 1))


@in_a_loop
async def test_an_unknown_job_is_an_error_that_lists_the_known_ones(bench: Bench) -> None:
    assert await bench.check("7") == "no job '7'; there are none"
    await bench.run("true")
    await bench.ended("1")
    for tool in ("check_background", "stop_background"):
        answer = await bench.box.run(tool, {"job_id": "7"})
        assert answer == Result(text="no job '7'; there are: 1", is_error=True)
    listed = await bench.box.run("check_background", {})
    assert listed.text == "job_id: 1 [exit status 0] true"


def test_endless_output_stays_within_its_limit_and_keeps_the_newest_lines(tmp_path: Path) -> None:
    with OutputFile(tmp_path / "out", 1000) as spool:
        for number in range(10_000):
            spool.take(f"line {number}\n".encode())
            assert (tmp_path / "out").stat().st_size <= 1000
            assert (tmp_path / "out").read_bytes().startswith(b"line "), "no line is cut"
        spool.take(b"x" * 5000 + b"\nthe last\n")
    kept = (tmp_path / "out").read_bytes()
    assert len(kept) <= 1000
    assert kept.endswith(b"\nthe last\n")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[]", b"7", b"{}", json.dumps({**FACTS, "state": 1}).encode(),
     json.dumps({**FACTS, "ended": "x"}).encode(), b"[" * 100_000],
)  # fmt: skip
def test_a_damaged_job_file_breaks_nothing_and_its_number_is_not_reused(
    tmp_path: Path, content: bytes
) -> None:
    """The file is not synced, so a power cut can empty it.

    That once crashed a teammate for good.
    """
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "3.json").write_text(json.dumps(FACTS))
    (folder / "4.json").write_bytes(content)
    (folder / "notes.json").write_text("{}")

    async def scenario() -> None:
        bench = Bench(tmp_path)
        assert [(job.id, job.what) for job in bench.jobs.all()] == [("3", "make"), ("4", LOST)]
        assert "job_id: 4 [ended with the process of its teammate]" in await bench.check("4")
        assert (await bench.run("true")).text.startswith("job_id: 5")
        await bench.ended("5")

    asyncio.run(scenario())


@in_a_loop
async def test_a_secret_in_the_output_never_reaches_the_disk_however_it_is_split(
    bench: Bench,
) -> None:
    job = await bench.run("printf 'is sk-01234'; sleep 0.2; printf '56789.'; echo sk-0123456789")
    assert job.text == "job_id: 1"
    await bench.ended("1")
    assert (bench.folder / "jobs" / "1.out").read_text() == f"is {MASK}.{MASK}\n"
    await bench.run("printf sk-01234")
    await bench.ended("2")
    assert await bench.check("2") == "job_id: 2 [exit status 0] printf sk-01234\nsk-01234"
