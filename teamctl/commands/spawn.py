"""`teamctl spawn`: start or wake a teammate, and on request wait for what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from teamctl import output
from teamctl.completion import teammates
from teamctl.input import text_or_stdin
from teamctl.wait import timeout_option, wait_for_last_words
from teamd.commandline import Choice, pass_choice, team_options
from teamd.errors import ExitCode, TeamError
from teamd.protocol import check_name
from teamd.store import files, requests

if TYPE_CHECKING:
    from pathlib import Path

    from teamd.store.paths import TeamPaths

REQUEST_SECONDS: Final = 30.0


@click.command()
@click.argument("name", shell_complete=teammates)
@click.argument("role")
@click.argument("prompt")
@click.option("--model", help="Another model than that of the settings.")
@click.option("--fresh", is_flag=True, help="Begin a new conversation; the old one stays on disk.")
@click.option(
    "--plan/--no-plan",
    default=None,
    help="It acts only once its plan is approved, or needs none  [default: as before].",
)
@click.option("--wait", is_flag=True, help="Wait for the end of its turn and print its last words.")
@timeout_option
@click.option("--save", is_flag=True, help="Write it into team.toml as well.")
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
    """Start NAME as ROLE, or wake it, with PROMPT as its next task.

    A PROMPT of - is read from standard input. Who is idle or shut down goes on with its memory.
    """
    check_name(name)
    paths = choice.existing()
    prompt = text_or_stdin(prompt)
    arguments = {
        "name": name,
        "role": role,
        "prompt": prompt,
        "model": model,
        "fresh": fresh,
        "plan": plan,
    }
    facts = {"name": name, "role": role, "prompt": prompt, "model": model, "plan": plan or False}
    saved = _saved(choice, paths, **facts) if save else b""
    answer = requests.ask(paths, "spawn", arguments, timeout_seconds=REQUEST_SECONDS)
    if answer.exit_code != ExitCode.DONE:
        raise TeamError(answer.text)
    choice.done = answer.text
    if answer.data["warning"]:
        output.warn(paths.addressed(answer.data["warning"]))
    if saved:
        file = _declaring(choice, paths)
        mode = file.stat().st_mode & 0o777 if file.exists() else files.PRIVATE_FILE
        files.replace(file, saved, mode=mode)
    said = None
    if wait:
        said = wait_for_last_words(
            paths, answer.data["member"]["name"], answer.data["message_id"], timeout
        )
    if as_json:
        output.print_json({**answer.data, "text": said})
    else:
        click.echo(answer.text if said is None else output.plain(said))
    return ExitCode.DONE


def _saved(choice: Choice, paths: TeamPaths, **facts: Any) -> bytes:
    """What team.toml will say; made before anybody is spawned, so that a mistake costs nothing."""
    from teamd.settings import Teammate, read_file  # noqa: PLC0415 -- only for --save
    from teamd.settings.writing import with_teammate  # noqa: PLC0415 -- the same

    file = _declaring(choice, paths)
    return with_teammate(read_file(file) or b"", Teammate(**facts), path=file)


def _declaring(choice: Choice, paths: TeamPaths) -> Path:
    """The file whose teammates are this team's: that of the project is not, for a team by name."""
    return paths.own_settings if choice.config is None else choice.settings_file(paths)
