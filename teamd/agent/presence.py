"""Shows others a teammate's current activity; see `teamd.team.activity`."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from teamd import clocks
from teamd.masking import Mask
from teamd.models import Block
from teamd.process_id import Identity, own_memory
from teamd.team.activity import MODEL, TOOL, Activity, Doing, Retry, shorten, write_activity

# Arguments that tell the subject of a call; the first that is given counts.
_TELLING: Final = ("command", "path", "to", "subject", "task_id", "job_id", "name", "teammate")
_PURPOSE_LENGTH: Final = 50  # a model could hide the command behind a longer one
_MEMORY_SECONDS: Final = 60.0  # the kernel walks over all pages to tell: some milliseconds


@dataclass(slots=True)
class Presence:
    """Publishes one teammate's activity.

    Attributes:
        path: the file.
        process: this one.
        context: the share of the context that the last process has shown.
    """

    path: Path
    process: Identity
    mask: Mask
    context: float | None = None
    _shown: Activity = field(init=False)
    _measure: clocks.Deadline = field(default_factory=lambda: clocks.Deadline.after(0.0))

    def __post_init__(self) -> None:
        self._shown = Activity(process=self.process, since=time.time(), context=self.context)

    def go_on(self, model: str | None, context: float) -> None:
        """Show that a model is asked; without a model, show no activity."""
        doing = None if model is None else Doing(kind=MODEL, what=shorten(model))
        self._show(doing, context)

    def begin_tool(self, call: Block) -> None:
        """Show that a tool call runs."""
        what = shorten(self.mask.text(_describe(call["name"], call["input"])))
        self._show(Doing(kind=TOOL, what=what), self._shown.context)

    def rest(self) -> None:
        """Show that nothing is done, as in the process before."""
        self._show(None, self._shown.context)

    def begin_retry(self, cause: str, seconds: float | None, attempt: int, attempts: int) -> None:
        """Show that a model call has failed and is tried again, maybe in so many seconds."""
        if self._shown.doing is not None:
            cause = shorten(self.mask.text(cause))
            begins = None if seconds is None else time.time() + seconds
            retry = Retry(attempt=attempt, attempts=attempts, cause=cause, next=begins)
            self._write(replace(self._shown, retry=retry))

    def end_retry(self) -> None:
        """Show that the call is not retried any longer."""
        if self._shown.retry is not None:
            self._write(replace(self._shown, retry=None))

    def _show(self, doing: Doing | None, context: float | None) -> None:
        shown = self._shown
        self._write(replace(shown, doing=doing, since=time.time(), context=context, retry=None))

    def _write(self, activity: Activity) -> None:
        if self._measure.left <= 0:
            self._measure = clocks.Deadline.after(_MEMORY_SECONDS)
            activity = replace(activity, memory_bytes=own_memory())
        self._shown = activity
        write_activity(self.path, activity)


def _describe(tool: str, arguments: Any) -> str:
    """Return a tool's name and the subject of its call, if an argument tells it."""
    with suppress(AttributeError, StopIteration):  # a model may give anything
        told = next(arguments[key] for key in _TELLING if isinstance(arguments.get(key), str))
        if tool == "bash" and isinstance(purpose := arguments.get("description"), str):
            told = f"{purpose[:_PURPOSE_LENGTH]}: {told}"
        return f"{tool} {told}"
    return tool
