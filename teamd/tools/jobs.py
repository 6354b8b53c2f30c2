"""Tools for commands in the background: begun, looked at, stopped."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from teamd.tools import Input, Tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.programs.program import Sink
    from teamd.programs.reaped import Reaped
    from teamd.tools.background import Job, Jobs

    Start = Callable[[str, Sink], Reaped]


class BackgroundRunInput(Input):
    """What `background_run` takes."""

    command: str


class BackgroundRun(Tool[BackgroundRunInput]):
    """Begins a command and does not wait for it.

    Args:
        start: starts a command as the `bash` tool does.
    """

    name: ClassVar[str] = "background_run"
    description: ClassVar[str] = (
        "Run a bash command in the background, such as a server or a long test, and go on at "
        "once. Answers with a job_id for check_background and stop_background; when the job "
        "ends you are told by itself, so there is no need to wait or to look again and again."
    )
    Input = BackgroundRunInput
    acts: ClassVar[bool] = True
    grantable: ClassVar[bool] = True

    def __init__(self, jobs: Jobs, start: Start) -> None:
        self._jobs = jobs
        self._start = start

    async def call(self, arguments: BackgroundRunInput) -> str:
        """Begin it; the words name its id."""
        job = self._jobs.start(arguments.command, partial(self._run, arguments.command))
        return f"job_id: {job.id}"

    async def _run(self, command: str, output: Sink) -> str:
        with self._start(command, output) as program:
            status = await program.wait()
            await program.end()
            program.drain()
        return f"exit status {status}" if status >= 0 else f"killed by signal {-status}"


class CheckBackgroundInput(Input):
    """What `check_background` takes."""

    job_id: str | None = Field(default=None, description="without it, all jobs are listed")


class CheckBackground(Tool[CheckBackgroundInput]):
    """Tells how a job is, and what it wrote."""

    name: ClassVar[str] = "check_background"
    description: ClassVar[str] = "See the state and the output of a background job so far."
    Input = CheckBackgroundInput
    acts: ClassVar[bool] = False
    grantable: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True

    def __init__(self, jobs: Jobs, *, output_bytes: int) -> None:
        self._jobs = jobs
        self._output_bytes = output_bytes

    async def call(self, arguments: CheckBackgroundInput) -> str:
        """Its state and output, or a line a job."""
        if arguments.job_id is None:
            return "\n".join(map(_line, self._jobs.all())) or "no jobs"
        job = self._jobs.get(arguments.job_id)
        output = self._jobs.output(job.id, self._output_bytes)
        return f"{_line(job)}\n{output or '(no output)'}"


class StopBackgroundInput(Input):
    """What `stop_background` takes."""

    job_id: str


class StopBackground(Tool[StopBackgroundInput]):
    """Ends a job."""

    name: ClassVar[str] = "stop_background"
    description: ClassVar[str] = "End a background job and everything that it started."
    Input = StopBackgroundInput
    acts: ClassVar[bool] = False
    grantable: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def call(self, arguments: StopBackgroundInput) -> str:
        """End it; one that is over already stays as it was."""
        return _line(await self._jobs.stop(arguments.job_id))


def _line(job: Job) -> str:
    return f"job {job.id}: {job.state}: {job.what}"
