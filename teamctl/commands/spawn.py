"""`teamctl spawn`: start or wake a teammate, and on request wait for what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from teamctl import output
from teamctl.completion import teammates
from teamctl.input import text_or_stdin
from teamctl.wait import timeout_option, wait_for_last_words
from teamd import control
from teamd.cli import Choice, pass_choice, team_options
from teamd.errors import ExitCode
from teamd.files import files
from teamd.messages import check_name

if TYPE_CHECKING:
    from pathlib import Path

    from teamd.files.paths import TeamPaths

REQUEST_SECONDS: Final = 30.0


@click.command()
@click.argument("name", shell_complete=teammates)
@click.argument("role")
@click.argument("prompt")
@click.option("--model", help="Use this model instead of the one in the settings.")
@click.option(
    "--fresh", is_flag=True, help="Begin a new conversation; the transcript keeps the old one."
)
@click.option(
    "--plan/--no-plan",
    default=None,
    help="Let it act only after its plan is approved, or without one  [default: as before].",
)
@click.option("--wait", is_flag=True, help="Wait until its turn ends, and print its final text.")
@timeout_option
@click.option("--save", is_flag=True, help="Also write it into the team's team.toml.")
@output.json_option
@team_options
@pass_choice
def command(
    choice: Choice,
    name: str,
    role: str,
    prompt: str,
    *,
    model: str | None,
    fresh: bool,
    plan: bool | None,
    wait: bool,
    timeout: float | None,
    save: bool,
    as_json: bool,
) -> int:
    """Start or wake NAME as ROLE, with PROMPT as its next task.

    If PROMPT is -, the command reads it from standard input. A teammate that is idle or shut down
    remembers its conversation.
    """
    check_name(name)
    paths = choice.existing()
    prompt = text_or_stdin(prompt)
    facts = {"name": name, "role": role, "prompt": prompt, "model": model}
    arguments = {**facts, "fresh": fresh, "plan": plan}
    saved = _saved(choice, paths, **facts, plan=plan or False) if save else b""
    reply = control.ask(paths, "spawn", arguments, timeout_seconds=REQUEST_SECONDS)
    reply.raise_unless_done()
    choice.done = reply.text
    if reply.data["warning"]:
        output.warn(paths.addressed(reply.data["warning"]))
    if saved:
        file = _declaring(choice, paths)
        mode = file.stat().st_mode & 0o777 if file.exists() else files.PRIVATE_FILE
        files.replace(file, saved, mode=mode)
    said = None
    if wait:
        said = wait_for_last_words(
            paths, reply.data["member"]["name"], reply.data["message_id"], timeout
        )
    if as_json:
        output.print_json({**reply.data, "text": said})
    else:
        click.echo(reply.text if said is None else output.plain(said))
    return ExitCode.DONE


def _saved(choice: Choice, paths: TeamPaths, **facts: Any) -> bytes:
    """Return the new team.toml; made before the spawn, so that a mistake costs nothing."""
    from teamd.settings import Teammate, read_file  # noqa: PLC0415 -- only for --save
    from teamd.settings.write import with_teammate  # noqa: PLC0415 -- the same

    file = _declaring(choice, paths)
    return with_teammate(read_file(file) or b"", Teammate(**facts), path=file)


def _declaring(choice: Choice, paths: TeamPaths) -> Path:
    """Return the file that declares this team's teammates; a team by name has its own."""
    return paths.own_settings if choice.config is None else choice.settings_file(paths)
