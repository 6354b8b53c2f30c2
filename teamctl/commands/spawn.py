"""`teamctl spawn`: start or wake a teammate, and on request wait for what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from teamctl import output
from teamctl.completion import teammates
from teamctl.input import text_or_stdin
from teamctl.receipts import Arrival, timeout_option, wait_for_conversation
from teamd.commandline import Choice, pass_choice, team_options
from teamd.errors import DeadlinePassed, ExitCode, TeamError
from teamd.protocol import check_name
from teamd.states import Status
from teamd.store import files, requests
from teamd.store.roster import Roster

if TYPE_CHECKING:
    from teamd.store.paths import TeamPaths
    from teamd.store.transcript import Record

REQUEST_SECONDS: Final = 30.0
_GONE: Final = (Status.FAILED, Status.SHUTDOWN)


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
    if answer.data["warning"]:
        output.warn(answer.data["warning"])
    if saved:
        file = choice.settings_file(paths)
        mode = file.stat().st_mode & 0o777 if file.exists() else files.PRIVATE_FILE
        files.replace(file, saved, mode=mode)
    said = None
    if wait:
        said = _last_words(paths, answer.data["member"]["name"], answer.data["message_id"], timeout)
    if as_json:
        output.print_json({**answer.data, "text": said})
    else:
        click.echo(answer.text if said is None else output.plain(said))
    return ExitCode.DONE


def _saved(choice: Choice, paths: TeamPaths, **facts: Any) -> bytes:
    """What team.toml will say; made before anybody is spawned, so that a mistake costs nothing."""
    from teamd.settings import Teammate, read_file  # noqa: PLC0415 -- only for --save
    from teamd.settings.writing import with_teammate  # noqa: PLC0415 -- the same

    file = choice.settings_file(paths)
    return with_teammate(read_file(file) or b"", Teammate(**facts), path=file)


def _last_words(paths: TeamPaths, name: str, message: str, seconds: float | None) -> str:
    """Wait for the end of the turn in which the message was read; returns its final text."""
    turn = _Turn(paths, name, message)
    ended = wait_for_conversation(paths, turn.end, seconds=seconds)
    if ended is None:
        raise DeadlinePassed(
            f"{name} is still at work after {seconds:g} s; `teamctl transcript {name} --follow` "
            "shows what it does"
        )
    match ended["outcome"]:
        case "paused":
            raise TeamError(f"{name} is paused: {ended['text']}")
        case "limit":
            raise TeamError(f"{name} used up the model calls of one wake; send it mail to go on")
        case "refusal":
            raise TeamError(f"the model of {name} refused the task; ask differently")
    return str(ended["text"])


class _Turn:
    """The turn of a teammate in which it reads one message."""

    def __init__(self, paths: TeamPaths, name: str, message: str) -> None:
        self._arrival = Arrival(paths.transcript(name), lambda mail: mail.get("id") == message)
        self._roster = Roster(paths)
        self._name = name

    def end(self) -> Record | None:
        """The record that ends it, if it has ended.

        Raises:
            TeamError: the teammate has gone.
        """
        member = self._roster.read().get(self._name)  # before the look: what it wrote, it wrote
        for record in self._arrival.records():
            if record.get("record") == "ended":
                return record
        if member.status in _GONE:
            why = f": {member.reason}" if member.reason else ""
            raise TeamError(f"{self._name} is {member.status}{why}; `teamctl logs {self._name}`")
        return None
