"""The `bash` tool: one command, run to its end in the workspace; nothing of it runs on."""

from __future__ import annotations

import asyncio
import errno
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from teamd.masking import Mask, MaskedOutput
from teamd.programs.reaped import Ended, Reaped
from teamd.tools import Input, Tool, ToolError
from teamd.tools.output import Clip

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from teamd.programs import Sink

_DAY_SECONDS = 86_400


class BashInput(Input):
    """A command, and for how long it may run."""

    command: str
    timeout: Annotated[int, Field(gt=0, le=_DAY_SECONDS, description="seconds")] | None = None


@dataclass(kw_only=True)
class Bash(Tool[BashInput]):
    """Runs commands.

    Attributes:
        workspace: where they run.
        environment: all they get of it; no secrets.
        timeout_seconds: how long one may take that asks for nothing else.
        output_bytes: how much of its output the model sees.
        mask: keeps secrets out of it, also half of one where its middle is left out.
    """

    workspace: Path
    environment: Mapping[str, str]
    timeout_seconds: float
    output_bytes: int
    mask: Mask = field(default_factory=Mask)

    name = "bash"
    description = (
        "Run a bash command in the workspace and wait for its end. Gives standard output and "
        "standard error, in the order written, and the exit status if it is not 0. Each command "
        "gets a new shell without input; whatever it leaves running is ended with it."
    )
    acts = True
    grantable = True

    async def call(self, arguments: BashInput, _key: str) -> str:
        """Run it and return what it wrote, then in brackets what else is to be known."""
        seconds = arguments.timeout or self.timeout_seconds
        clip = Clip(self.output_bytes)
        try:
            with (
                MaskedOutput(self.mask, clip.take) as output,
                self.start(arguments.command, output.take) as program,
            ):
                status = await _wait(program, seconds)
                ended = await program.end()
                program.drain()
        except OSError as error:
            raise self._refusal(arguments.command, error) from error
        notes = _notes(status, seconds, ended)
        text = "\n".join([clip.text().removesuffix("\n"), *notes]).removeprefix("\n")
        if status is None:
            raise ToolError(text)
        return text

    def start(self, command: str, output: Sink) -> Reaped:
        """Start a command, and do not wait for it.

        Raises:
            ToolError: no command can be that.
            OSError: it could not be started.
        """
        bash = ["bash", "-c", "--", command]  # "--": a command may begin with a dash
        try:
            return Reaped(bash, output=output, cwd=self.workspace, env=self.environment)
        except ValueError as error:
            raise ToolError("a command cannot hold NULs or lone surrogates") from error

    def _refusal(self, command: str, error: OSError) -> ToolError:
        if error.errno == errno.E2BIG:
            mend = "put it into a file with write_file and run that"
            return ToolError(f"the command is too long ({len(command)} characters); {mend}")
        return ToolError(f"bash could not be started in {self.workspace}: {error.strerror}")


async def _wait(program: Reaped, seconds: float) -> int | None:
    """The status as `Reaped.wait` gives it, or `None` after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await program.wait()
    except TimeoutError:
        return None


def _notes(status: int | None, seconds: float, ended: Ended) -> list[str]:
    """Return what stands below the output, a line each."""
    notes = []
    if status is None:
        mend = "give a longer `timeout` if it needs one"
        notes.append(f"[ended after {seconds:g} s, its time limit; {mend}]")
    elif status < 0:
        notes.append(f"[killed by {_signal_name(-status)}]")
    elif status > 0:
        notes.append(f"[exit status {status}]")
    if status is not None and ended.background:
        which = "process was" if ended.background == 1 else "processes were"
        notes.append(f"[{ended.background} background {which} ended with the command]")
    if ended.left:
        notes.append(f"[could not be ended: pid {', '.join(map(str, sorted(ended.left)))}]")
    return notes


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
