"""`teamctl demo`: a team builds and tests a small program while the person watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from teamctl.demo.copy_round import CopyRound, Evidence, find_lack, find_missing_step
from teamctl.demo.demo_progress import ProgressFollower, ProgressPrinter
from teamctl.demo.stage import (
    Interrupted,
    Stage,
    Story,
    describe_end,
    failure,
    interruptible,
    open_stage,
    temporary_folder,
)
from teamctl.render import output
from teamctl.render.roster_table import show_now
from teamd.errors import ExitCode, TeamError
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD
from teamd.team.roster import Roster

_INTRO: Final = "Only the model's words are scripted; processes, mail, tools and files are real."
_PROGRAM: Final = "roman.py"


@click.command()
@click.option("--fast", is_flag=True, help="Leave out the pauses that make it easier to follow.")
@click.option("--keep", is_flag=True, help="Keep the folder, and say where it is.")
@click.option("--script", type=click.Path(path_type=Path), hidden=True)
def command(*, fast: bool, keep: bool, script: Path | None) -> int:
    """Watch a coder and a tester build a small program in a temporary folder.

    Then a third one adds to it in a working copy, until a check passes, and it is merged. Their
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
                _Play(stage, story, ProgressPrinter(), check).run()
            check()
    except Interrupted as error:
        click.echo(f"teamctl: {error}; {describe_end(folder, kept=keep)}", err=True)
        return error.exit_status
    end = describe_end(folder, kept=keep)
    click.echo(f"\nAll of it happened, in {time.time() - begun:.1f} s; {end}.")
    return ExitCode.DONE


@dataclass(slots=True)
class _Play:
    """The scenes of the demo, on a stage.

    Attributes:
        check: raises `Interrupted` if the demo was interrupted; called often.
    """

    stage: Stage
    story: Story
    teller: ProgressPrinter
    check: Callable[[], None]

    def run(self) -> None:
        """Play all scenes, and check that each step happened.

        Raises:
            TeamError: a step did not happen.
            Interrupted: the demo was interrupted.
        """
        self._begin()
        self._work()
        lack = find_lack()
        if not lack:
            self._work_in_copy()
        click.echo("\n$ teamctl team")
        show_now(self.stage.paths)
        click.echo("\n$ teamctl inbox")
        for message in Mailbox(self.stage.paths, LEAD).peek():
            output.show_message(message)
        self._show_run("the program works", "MCMXCIV", _PROGRAM, "1994")
        self._show_run("its tests pass", "OK", "-m", "unittest")
        if lack:
            click.echo(f"\nA working copy with a check and a merge was left out: {lack}.")
        else:
            self._show_run("what was merged works", "1994", _PROGRAM, "MCMXCIV")

    def _begin(self) -> None:
        self.teller.lead(f"starts teamd in {self.stage.folder}")
        self.stage.start()
        for part in self.story.parts:
            self.check()
            given = self.stage.spawn(part)
            if given.exit_code != ExitCode.DONE:
                raise self._failure(f"lead spawns {part.name}", given.text)
            self.teller.colours[part.name] = given.data["member"]["color"]
            pid = given.data["member"]["pid"]
            self.teller.lead(f"spawns {part.name}, {part.role} (pid {pid})")

    def _work(self) -> None:
        names = [part.name for part in self.story.parts]
        onlooker = ProgressFollower(self.stage.paths, names, self.teller, self.check)
        onlooker.follow()
        team = Roster(self.stage.paths).read()
        mail = onlooker.mail.values()
        step = find_missing_step(Evidence(self.stage.workspace, onlooker.records, mail, team))
        if step is not None or onlooker.trouble:
            raise self._failure(step or "all come to rest", onlooker.trouble)

    def _work_in_copy(self) -> None:
        played = CopyRound(self.stage, self.story.task, self.teller, self.check)
        step = played.run()
        if step or played.trouble:
            raise self._failure(step or "all come to rest", played.trouble)

    def _show_run(self, step: str, wanted: str, *arguments: str) -> None:
        """Run Python, show the last line of its output, and check that it is the wanted one."""
        self.check()
        ended = self.stage.run(*arguments)
        said = (ended.stdout + ended.stderr).decode("utf-8", "replace").strip()
        last = output.plain(said.rpartition("\n")[2])
        click.echo(f"\n$ python3 {' '.join(arguments)}\n{last}")
        if ended.status or last != wanted:
            raise self._failure(step, f"exit status {ended.status}, last line {last!r}")

    def _failure(self, step: str, why: str) -> TeamError:
        return failure(self.stage.folder, step, why, kept=self.stage.kept)
