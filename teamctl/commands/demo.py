"""`teamctl demo`: a team builds and tests a small program while the person watches."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from teamctl.demo.demo_progress import ProgressPrinter
from teamctl.demo.play import Play
from teamctl.demo.stage import (
    Interrupted,
    Story,
    describe_end,
    interruptible,
    open_stage,
    temporary_folder,
)
from teamctl.render import output
from teamd.errors import ExitCode

_INTRO: Final = "Only the model's words are scripted; processes, mail, tools and files are real."


@click.command()
@click.option("--fast", is_flag=True, help="Leave out the pauses that make it easier to follow.")
@click.option("--keep", is_flag=True, help="Keep the folder, and say where it is.")
@click.option("--script", type=click.Path(path_type=Path), hidden=True)
def command(*, fast: bool, keep: bool, script: Path | None) -> int:
    """Watch a coder and a tester build a small program in a temporary folder.

    Then a third extends it in a working copy until a check passes, and the work is merged. Their
    words come from a script. Everything else is real, and the demo checks it at the end.
    """
    begun = time.time()
    story = Story.read(script)
    click.echo(_INTRO + "\n")
    try:
        with interruptible() as check:
            with (
                temporary_folder(keep=keep) as folder,
                open_stage(folder, story.script(paced=not fast), kept=keep) as stage,
            ):
                Play(stage, story, ProgressPrinter(), check).run()
            check()
    except Interrupted as error:
        click.echo(f"teamctl: {error}; {describe_end(folder, kept=keep)}", err=True)
        return error.exit_status
    end = describe_end(folder, kept=keep)
    output.echo(f"\nAll of it happened, in {time.time() - begun:.1f} s; {end}.")
    output.echo("Next, in your folder: `teamctl doctor` says what is missing for a real team.")
    return ExitCode.DONE
