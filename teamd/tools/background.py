"""Work that goes on beside the conversation: jobs, each with a state and an output on disk."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from teamd.errors import StoreError
from teamd.files import directories, files
from teamd.files.os_errors import translate_os_errors
from teamd.messages import is_moment
from teamd.tools import ToolError
from teamd.tools.clip import Clip

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from teamd.programs.program import Sink

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
        id: a number, as text; no two jobs of a teammate ever have the same.
        what: the command, or the task.
        state: `running`, or how it ended, in words.
        started: seconds since the epoch.
    """

    id: str
    what: str
    state: str
    started: float
    ended: float | None = None

    @property
    def runs(self) -> bool:
        """Whether it is still at work."""
        return self.state == RUNNING

    def encode(self) -> bytes:
        """The content of the job's file."""
        fields = {
            "id": self.id,
            "what": self.what,
            "state": self.state,
            "started": self.started,
            "ended": self.ended,
        }
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    @classmethod
    def decode(cls, content: bytes, *, number: int) -> Job:
        """Read a job's file; where it holds none, what is known of the job all the same."""
        try:
            fields: dict[str, Any] = json.loads(content)
            words = {key: fields[key] for key in ("what", "state")}
            started, ended = fields["started"], fields["ended"]
            whole = all(isinstance(text, str) for text in words.values())
            if not (whole and is_moment(started) and (ended is None or is_moment(ended))):
                raise ValueError(words)  # noqa: TRY301 -- the same as what is no JSON
        except (ValueError, KeyError, TypeError, RecursionError):  # a power cut left half of it
            return cls(id=str(number), what=LOST, state=INTERRUPTED, started=0.0, ended=0.0)
        return cls(id=str(number), **words, started=started, ended=ended)


class Jobs:
    """The jobs of one teammate. They end with its process.

    Args:
        folder: one file of facts and one of output a job; made at need.
        ring: called when one has ended.
    """

    def __init__(self, folder: Path, *, ring: Callable[[], None]) -> None:
        self._folder = folder
        self._ring = ring
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._jobs = {job.id: job for job in sorted(self._read(), key=lambda job: int(job.id))}
        for job in self._jobs.values():
            if job.runs:  # in an earlier process, with which it ended
                self._keep(replace(job, state=INTERRUPTED, ended=time.time()))

    def start(self, what: str, work: Work) -> Job:
        """Begin a job.

        Args:
            what: in words, for whoever reads of it later.
            work: gets a sink for its output and returns how it ended, in words.

        Raises:
            ToolError: too many run already.
            StoreError: its files cannot be made.
        """
        if sum(job.runs for job in self._jobs.values()) >= MOST_RUNNING:
            raise ToolError(
                f"{MOST_RUNNING} jobs run already; wait for one, or stop one with stop_background"
            )
        directories.make_safe_directory(self._folder)
        number = max(map(int, self._jobs), default=0) + 1
        job = Job(id=str(number), what=what, state=RUNNING, started=time.time())
        spool = Spool(self._output(job.id), OUTPUT_BYTES)
        self._keep(job)
        self._forget_old()
        self._tasks[job.id] = asyncio.create_task(self._run(job, work, spool))
        return job

    def get(self, job_id: str) -> Job:
        """One job's facts.

        Raises:
            ToolError: there is none of that id.
        """
        job = self._jobs.get(job_id)
        if job is None:
            known = f"there are: {', '.join(self._jobs)}" if self._jobs else "there are none"
            raise ToolError(f"no job {job_id!r}; {known}")
        return job

    def all(self) -> list[Job]:
        """The teammate's jobs, oldest first; of those that are over, only the last."""
        return list(self._jobs.values())

    def output(self, job_id: str, limit: int) -> str:
        """What a job has written, its middle left out if need be."""
        clip = Clip(limit)
        clip.take(files.read(self._output(job_id)) or b"")
        return clip.text().removesuffix("\n")

    async def stop(self, job_id: str) -> Job:
        """End a job and all that it runs."""
        job = self.get(job_id)
        task = self._tasks.get(job_id)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])
            if self.get(job_id).runs:  # it was ended before it had begun
                self._end(job, STOPPED)
        return self.get(job_id)

    async def _run(self, job: Job, work: Work, spool: Spool) -> None:
        state = STOPPED
        try:
            with spool:
                state = await work(spool.take)
        except asyncio.CancelledError:
            pass  # stopped by name; a teammate that ends does not come here any more
        except Exception as error:  # noqa: BLE001 -- the edge of a job: its state tells of it
            state = f"failed: {error}"
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
        except StoreError:  # a full disk: what is known here is right all the same
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
        for path in self._folder.glob("*.json"):
            # What others put there is none; `isdecimal` alone takes digits of other scripts.
            if path.stem.isascii() and path.stem.isdecimal():
                yield Job.decode(files.read(path) or b"", number=int(path.stem))

    def _output(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.out"


class Spool:
    """A file that takes output without end: when it is full, its older half goes.

    Args:
        path: made anew.
        limit: how many bytes it may have.
    """

    def __init__(self, path: Path, limit: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with translate_os_errors(path):
            self._fd = os.open(path, flags, files.PRIVATE_FILE)
        self._limit = limit
        self._size = 0

    def take(self, chunk: bytes) -> None:
        """Add what came; where it cannot be written it is lost, and the job goes on."""
        chunk = chunk[-self._limit // 2 :]
        if self._size + len(chunk) > self._limit:
            self._halve()
        with suppress(OSError):
            self._size += os.pwrite(self._fd, chunk, self._size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def _halve(self) -> None:
        kept = os.pread(self._fd, self._limit // 2, self._size - self._limit // 2)
        kept = kept[kept.find(b"\n") + 1 :]  # from the start of a line
        os.pwrite(self._fd, kept, 0)
        os.ftruncate(self._fd, len(kept))
        self._size = len(kept)
