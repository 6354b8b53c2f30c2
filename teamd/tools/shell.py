"""The `bash` tool: one command, run to its end in the workspace; no process outlives it."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from teamd.approvals.approval import id_of_call
from teamd.masking import Mask, MaskedOutput
from teamd.programs import Sink
from teamd.programs.reaped import ExitInfo
from teamd.sandbox.shells import Command, NoSandbox, Shell
from teamd.tools import Input, Tool, ToolError
from teamd.tools.output import Clip
from teamd.tools.push import Pushes

_DAY_SECONDS = 86_400


class BashInput(Input):
    """A command, and for how long it may run."""

    command: str
    timeout: Annotated[int, Field(gt=0, le=_DAY_SECONDS, description="seconds")] | None = None
    description: Annotated[str, Field(description="its purpose, for the person")] | None = None

    def identity(self) -> dict[str, Any]:
        """Return the command alone, without white space around it."""
        return {"command": self.command.strip()}


@dataclass(kw_only=True)
class Bash(Tool[BashInput]):
    """Runs commands.

    Attributes:
        shell: starts them.
        timeout_seconds: the time limit of a command that does not ask for another.
        output_bytes: how much of its output the model sees.
        mask: keeps secrets out of it, even half of a secret at the cut in a long output.
        pushes: those of a teammate with a working copy, which are not run as commands.
        secret: returns the secret of the conversation, see `id_of`.
    """

    shell: Shell
    timeout_seconds: float
    output_bytes: int
    mask: Mask = field(default_factory=Mask)
    pushes: Pushes | None = None
    secret: Callable[[], str] = str

    name = "bash"
    description = (
        "Run a bash command in the workspace and wait for its end. Gives standard output and "
        "standard error, in the order written, and the exit status if it is not 0. Each command "
        "gets a new shell without input; whatever it leaves running is ended with it."
    )

    async def recall(self, _arguments: BashInput, key: str) -> str:
        return await self.pushes.find_done(id_of_call(key, self.secret())) if self.pushes else ""

    async def call(self, arguments: BashInput, key: str) -> str:
        if self.pushes and (push := self.pushes.ready.pop(key, None)):
            return await self.pushes.carry_out(push)
        seconds = arguments.timeout or self.timeout_seconds
        clip = Clip(self.output_bytes)
        try:
            with (
                MaskedOutput(self.mask, clip.take) as output,
                start_command(self.shell, arguments.command, output.take) as program,
            ):
                status = await _wait(program, seconds)
                ended = await program.end()
                program.drain()
        except OSError as error:
            raise self._refusal(arguments.command, error, clip.text()) from error
        notes = _notes(status, seconds, ended)
        text = "\n".join([clip.text().removesuffix("\n"), *notes]).removeprefix("\n")
        if status is None:
            raise ToolError(text)
        return text

    def _refusal(self, command: str, error: OSError, said: str) -> ToolError:
        if error.errno == errno.E2BIG:
            mend = "put it into a file with write_file and run that"
            return ToolError(f"the command is too long ({len(command)} characters); {mend}")
        why = ": ".join(filter(None, [error.strerror, said.strip()]))
        return ToolError(f"bash could not be started in the workspace: {why}")


def start_command(shell: Shell, command: str, output: Sink, *, background: bool = False) -> Command:
    """Start a command, and do not wait for it.

    Raises:
        ToolError: the text cannot be a command, or no command may run here.
        OSError: it could not be started.
    """
    try:
        return shell.start(command, output, background=background)
    except NoSandbox as error:
        raise ToolError(str(error)) from error
    except ValueError as error:
        raise ToolError("a command cannot hold NULs or lone surrogates") from error


async def _wait(program: Command, seconds: float) -> int | None:
    """Return the status as `wait` gives it, or `None` after this many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await program.wait()
    except TimeoutError:
        return None


def _notes(status: int | None, seconds: float, ended: ExitInfo) -> list[str]:
    """Return the notes below the output, a line each."""
    notes = []
    if ended.exceeded:
        notes.append(f"[all of it was ended: {ended.exceeded}]")
    elif status is None:
        mend = "give a longer `timeout` if it needs one"
        notes.append(f"[ended after {seconds:g} s, its time limit; {mend}]")
    elif status < 0:
        notes.append(f"[killed by {_signal_name(-status)}]")
    elif status > 0:
        notes.append(f"[exit status {status}]")
    if status is not None and ended.background and not ended.exceeded:
        which = "process was" if ended.background == 1 else "processes were"
        notes.append(f"[{ended.background} background {which} ended with the command]")
    if ended.taken:
        notes.append(f"[taken away, since it is protected: {', '.join(ended.taken)}]")
    if ended.left:
        notes.append(f"[could not be ended: pid {', '.join(map(str, sorted(ended.left)))}]")
    return notes


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
