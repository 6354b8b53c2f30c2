"""Work that goes on beside the conversation: jobs, and the tools to start, see and stop them.

A job has a state and an output, both on disk.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from teamd.errors import StoreError, StrangeFile
from teamd.files import directories, files
from teamd.masking import Mask, MaskedOutput
from teamd.messages import is_moment
from teamd.programs import Sink
from teamd.sandbox.shells import Shell
from teamd.tools import NO_OUTPUT, Input, Tool, ToolError
from teamd.tools.ids import JobId
from teamd.tools.output import OutputFile, clip
from teamd.tools.shell import start_command

Work = Callable[[Sink], Awaitable[str]]

RUNNING: Final = "running"
STOPPED: Final = "stopped"
LOST: Final = "(not known any more: its file was damaged)"
INTERRUPTED: Final = "ended with the process of its teammate"
OUTPUT_BYTES: Final = 4 << 20
MOST_RUNNING: Final = 20
KEPT: Final = 100  # of those that are over


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One piece of work.

    Attributes:
        id: a number, as text; no two jobs of a teammate ever have the same id.
        what: the command, or the task.
        state: `running`, or how it ended, in words.
        started: seconds since the epoch.
        ended: likewise; `None` while it runs.
        subagent: whether it is a subagent, which ends by itself; a command may be a server.
    """

    id: str
    what: str
    state: str
    started: float
    ended: float | None = None
    subagent: bool = False

    @property
    def runs(self) -> bool:
        """Return whether it is still at work."""
        return self.state == RUNNING

    def encode(self) -> bytes:
        """The content of the job's file."""
        return json.dumps(asdict(self), ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    @classmethod
    def decode(cls, content: bytes, *, number: int) -> Job:
        """Read a job's file; if its content is damaged, return the facts that remain known."""
        try:
            fields: dict[str, Any] = json.loads(content)
            words = {key: fields[key] for key in ("what", "state")}
            started, ended = fields["started"], fields["ended"]
            whole = all(isinstance(text, str) for text in words.values())
            if not (whole and is_moment(started) and (ended is None or is_moment(ended))):
                raise ValueError(words)  # noqa: TRY301 -- handled like invalid JSON
        except (ValueError, KeyError, TypeError, RecursionError):  # a power cut left half of it
            return cls(id=str(number), what=LOST, state=INTERRUPTED, started=0.0, ended=0.0)
        subagent = fields.get("subagent") is True
        return cls(id=str(number), **words, started=started, ended=ended, subagent=subagent)


class Jobs:
    """The jobs of one teammate. They end with its process.

    folder: one file of facts and one of output per job; made on first use.
    ring: called when a job has ended.
    mask: keeps secrets out of a job's files.
    """

    def __init__(self, folder: Path, *, ring: Callable[[], None], mask: Mask | None = None) -> None:
        self._folder = folder
        self._ring = ring
        self._mask = mask or Mask()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._jobs = {job.id: job for job in sorted(self._read(), key=lambda job: int(job.id))}
        for job in self._jobs.values():
            if job.runs:  # in an earlier process, with which it ended
                self._keep(replace(job, state=INTERRUPTED, ended=time.time()))

    def start(self, what: str, work: Work, *, subagent: bool = False) -> Job:
        """Begin a job.

        Args:
            what: a description for later readers.
            work: gets a sink for its output and returns how it ended, in words.
            subagent: see `Job`.

        Raises:
            ToolError: too many jobs are running.
            StoreError: its files cannot be made.
        """
        if sum(job.runs for job in self._jobs.values()) >= MOST_RUNNING:
            mend = "wait for one, or stop one with stop_background"
            raise ToolError(f"{MOST_RUNNING} jobs run already; {mend}")
        directories.make_safe_directory(self._folder)
        number = max(map(int, self._jobs), default=0) + 1
        job = Job(id=str(number), what=what, state=RUNNING, started=time.time(), subagent=subagent)
        spool = OutputFile(self._output(job.id), OUTPUT_BYTES)
        self._keep(job)
        self._forget_old()
        self._tasks[job.id] = asyncio.create_task(self._run(job, work, spool))
        return job

    def get(self, job_id: str) -> Job:
        """Return the facts of a job.

        Raises:
            ToolError: the id is unknown.
        """
        job = self._jobs.get(job_id)
        if job is None:
            known = f"there are: {', '.join(self._jobs)}" if self._jobs else "there are none"
            raise ToolError(f"no job {job_id!r}; {known}")
        return job

    def all(self) -> list[Job]:
        """The teammate's jobs, oldest first; of those that have ended, only the latest."""
        return list(self._jobs.values())

    def output(self, job_id: str, limit: int) -> str:
        """Return a job's output; the middle of a long output is left out."""
        return clip(files.read(self._output(job_id)) or b"", limit).removesuffix("\n")

    async def stop(self, job_id: str) -> Job:
        """End a job and all its processes."""
        job = self.get(job_id)
        task = self._tasks.get(job_id)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])
            if self.get(job_id).runs:  # it was ended before it had begun
                self._end(job, STOPPED)
        return self.get(job_id)

    async def _run(self, job: Job, work: Work, spool: OutputFile) -> None:
        state = STOPPED
        try:
            with spool, MaskedOutput(self._mask, spool.take) as output:
                state = await work(output.take)
        except asyncio.CancelledError:
            pass  # stopped by name; the end of the teammate does not come here
        except Exception as error:  # noqa: BLE001 -- the edge of a job: its state tells of it
            state = self._mask.text(f"failed: {error}")
        self._end(job, state)

    def _end(self, job: Job, state: str) -> None:
        self._tasks.pop(job.id, None)
        self._keep(replace(job, state=state, ended=time.time()))
        self._ring()

    def _keep(self, job: Job) -> None:
        self._jobs[job.id] = job
        try:
            # That it began is safe: the model reads its id, which no other job may have.
            files.replace(self._folder / f"{job.id}.json", job.encode(), durable=job.runs)
        except StoreError:  # a full disk: the facts in memory are still right
            if job.runs:
                del self._jobs[job.id]
                raise

    def _forget_old(self) -> None:
        over = [job for job in self._jobs.values() if not job.runs]
        for job in over[:-KEPT]:
            del self._jobs[job.id]
            files.remove(self._folder / f"{job.id}.json")
            files.remove(self._output(job.id))

    def _read(self) -> Iterator[Job]:
        for path in directories.list_files(self._folder, "*.json"):
            # Ignores foreign files; `isdecimal` alone accepts digits of other scripts.
            if path.stem.isascii() and path.stem.isdecimal():
                yield Job.decode(self._content(path), number=int(path.stem))

    @staticmethod
    def _content(path: Path) -> bytes:
        with suppress(StrangeFile):  # a foreign file: the job is then unknown
            return files.read(path) or b""
        return b""

    def _output(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.out"


class BackgroundRunInput(Input):
    """Input of `background_run`."""

    command: str


@dataclass
class BackgroundRun(Tool[BackgroundRunInput]):
    """Starts a command without waiting for it."""

    jobs: Jobs
    shell: Shell

    name = "background_run"
    description = (
        "Run a bash command in the background, such as a server or a long test, and go on at "
        "once. Answers with a job_id for check_background and stop_background; when the job "
        "ends you are told by itself, so there is no need to wait or to look again and again."
    )

    async def call(self, arguments: BackgroundRunInput, _key: str) -> str:
        job = self.jobs.start(arguments.command, partial(self._run, arguments.command))
        await asyncio.sleep(0)  # its task comes first, so that the next command finds it started
        return f"job_id: {job.id}"

    async def _run(self, command: str, output: Sink) -> str:
        with start_command(self.shell, command, output, background=True) as program:
            status = await program.wait()
            ended = await program.end()
            program.drain()
        if ended.exceeded:
            return f"ended: {ended.exceeded}"
        return f"exit status {status}" if status >= 0 else f"killed by signal {-status}"


class CheckBackgroundInput(Input):
    """Input of `check_background`."""

    job_id: JobId | None = Field(default=None, description="without it, all jobs are listed")


@dataclass
class CheckBackground(Tool[CheckBackgroundInput]):
    """Shows the state of a job, and its output."""

    jobs: Jobs
    output_bytes: int

    name = "check_background"
    description = "See the state and the output of a background job so far."

    def is_under_way(self, arguments: CheckBackgroundInput) -> bool:
        """Return whether the job still runs, or any job if none is named."""
        running = [job.id for job in self.jobs.all() if job.runs]
        return bool(running) if arguments.job_id is None else arguments.job_id in running

    async def call(self, arguments: CheckBackgroundInput, _key: str) -> str:
        if arguments.job_id is None:
            return "\n".join(map(_line, self.jobs.all())) or "no jobs"
        job = self.jobs.get(arguments.job_id)
        output = self.jobs.output(job.id, self.output_bytes)
        return f"{_line(job)}\n{output or NO_OUTPUT}"


class StopBackgroundInput(Input):
    """Input of `stop_background`."""

    job_id: JobId


@dataclass
class StopBackground(Tool[StopBackgroundInput]):
    """Ends a job."""

    jobs: Jobs

    name = "stop_background"
    description = "End a background job and everything that it started."

    async def call(self, arguments: StopBackgroundInput, _key: str) -> str:
        """End the job; a job that has already ended is left unchanged."""
        return _line(await self.jobs.stop(arguments.job_id))


def _line(job: Job) -> str:
    return f"job_id: {job.id} [{job.state}] {job.what}"
