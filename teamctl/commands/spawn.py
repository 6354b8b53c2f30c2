"""Requests to teamd about the life of a teammate: `teamctl spawn`, `resume` and `shutdown`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from teamctl import arguments
from teamctl.actions import (
    MARGIN_SECONDS,
    Outcome,
    TeamActions,
    act_on_each,
    act_on_host,
    act_where_it_is,
    ensure_running,
    explain_delay,
    split_host,
)
from teamctl.render import output
from teamd.command_line.options import FloatRange, IntRange, TextCommand, team_options
from teamd.command_line.run import INTERRUPTED, TeamOptions
from teamd.errors import ExitCode, TeamError
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.files.safe_open import PRIVATE_FILE
from teamd.messages import check_name
from teamd.model_server.facts import EFFORTS
from teamd.overview.members import read_requests
from teamd.settings import Teammate, read_file
from teamd.settings.kinds import MAX_TOKENS, MAX_USD
from teamd.settings.trust import TrustStore
from teamd.team.roster import Roster

_OPTIONS: Final = ("wait", "save", "model", "effort", "plan", "worktree", "fresh")


@click.command(cls=TextCommand)
@click.argument("name", shell_complete=arguments.everywhere)
@click.argument("role")
@click.argument("prompt")
@click.option("--model", help="Use this model instead of the one in the settings.")
@click.option(
    "--effort",
    type=click.Choice(EFFORTS),
    help="How much effort its model takes  [default: that of the role or the settings].",
)
@arguments.fresh_option
@click.option(
    "--plan/--no-plan",
    default=None,
    help="Let it act only after its plan is approved, or without one  [default: as before].",
)
@arguments.copy_option
@click.option("--wait", is_flag=True, help="Wait until its turn ends, and print its final text.")
@arguments.timeout_option
@arguments.no_start_option
@click.option("--save", is_flag=True, help="Also write it into the team's team.toml.")
@output.json_option
@team_options
def command(
    choice: TeamOptions,
    *,
    wait: bool,
    timeout: float,
    no_start: bool,
    save: bool,
    as_json: bool,
    **facts: Any,
) -> None:
    """Start or wake NAME as ROLE, with PROMPT as its next task.

    If PROMPT is -, the command reads it from standard input. A teammate that is idle or shut down
    remembers its conversation. If no teamd runs, the command starts it. NAME@HOST is spawned on
    another host: its settings must allow that, and decide all but name, role and prompt.
    """
    facts["name"], host = split_host(choice, facts["name"])
    check_name(facts["name"])
    if host is not None:
        _refuse_options(host)
    facts["prompt"] = arguments.text_or_stdin(facts["prompt"])
    if not facts["prompt"].strip():
        raise TeamError("a prompt is needed and must not be empty")
    if host is not None:
        asked = {key: facts[key] for key in ("name", "role", "prompt")}
        act_on_host(choice, host, "spawn", asked).print(as_json=as_json)
        return
    paths = ensure_running(choice, no_start=no_start)
    saved = _saved(choice, paths, facts) if save else None
    with explain_delay():
        outcome = TeamActions(choice).spawn(**facts)
    choice.done = outcome.text
    if outcome.warning:
        output.warn(paths.add_team_option(outcome.warning))
    if saved is not None:
        file, content = saved
        directories.remove_placeholder(file)
        mode = file.stat().st_mode & 0o777 if file.exists() else PRIVATE_FILE
        files.replace(file, content, mode=mode)
    said = None
    if wait:
        said = _await(paths, outcome.data, timeout)
    shown = outcome.text if said is None else said
    output.print_either(shown, {**outcome.data, "text": said}, as_json=as_json)


def _await(paths: TeamPaths, spawned: Mapping[str, Any], seconds: float) -> str:
    """Wait for the last words of a new teammate, and warn if it waits for the person."""
    from teamctl.mail.receipts import wait_for_last_words  # noqa: PLC0415 -- only for --wait

    name = spawned["member"]["name"]
    try:
        said = wait_for_last_words(paths, name, spawned["message_id"], seconds)
    except KeyboardInterrupt:
        hint = f"{name} works on; `teamctl wait {name}` waits for it again"
        click.echo(f"teamctl: {paths.add_team_option(hint)}", err=True)
        raise
    for one in read_requests(paths, Roster(paths).read()):
        if one.yours and one.approval.asker == name:
            answers = f"`{one.approve}` or `{one.reject}`"
            output.warn(paths.add_team_option(f"{name} waits for your answer: {answers}"))
    return said


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=arguments.everywhere)
@click.option(
    "--usd",
    type=FloatRange(0, MAX_USD, min_open=True),
    help="Raise the limits on money.",
)
@click.option(
    "--tokens",
    type=IntRange(1, MAX_TOKENS),
    help="Raise the limits on tokens.",
)
@output.json_option
@team_options
def resume(
    choice: TeamOptions, names: tuple[str, ...], *, as_json: bool, **more: float | None
) -> int:
    """Read team.toml again, then let NAMES continue where they were paused.

    With --usd or --tokens, the limits that stop each of them are first raised by that much: a daily
    limit for today, the others permanently. team.toml stays as it is. NAME@HOST is on another
    host, whose settings must let this one resume; limits are raised there.
    """
    given = {unit: most for unit, most in more.items() if most is not None}

    def here(name: str) -> Outcome:
        return TeamActions(choice).resume(name, **given)

    def resume_one(name: str) -> Outcome:
        if given and "@" in name:
            raise TeamError(f"the limits of {name} can be raised on its host only")
        return act_where_it_is(choice, name, "resume", here)

    return act_on_each(choice, names, resume_one, as_json=as_json)


@click.command()
@click.argument("names", nargs=-1, shell_complete=arguments.everywhere)
@click.option("--all", "everybody", is_flag=True, help="Ask every teammate.")
@click.option("--force", is_flag=True, help="Kill at once, without asking.")
@arguments.grace_option(help="How many seconds a teammate has to answer before it is ended.")
@output.json_option
@team_options
def shutdown(
    choice: TeamOptions,
    names: tuple[str, ...],
    *,
    everybody: bool,
    force: bool,
    timeout: float,
    as_json: bool,
) -> int:
    """Ask NAMES to end. They keep their conversations, which `teamctl spawn NAME …` continues.

    A working teammate approves, or rejects with a reason and goes on. An idle one approves. The
    exit status is 0 if all approved, 1 if one rejected, and otherwise 4 if the deadline or force
    ended one. NAME@HOST is on another host, whose settings must let this one shut down; --all asks
    those of this host only.
    """
    if (not names) == (not everybody):
        raise click.UsageError("name a teammate, or give --all")
    placed = [split_host(choice, name) for name in names]
    if hosts := [(name, host) for name, host in placed if host is not None]:
        if len(placed) > 1:
            raise click.UsageError(
                "a teammate on another host must be shut down in a separate call"
            )
        [(name, host)] = hosts
        asked = {"name": name, "seconds": timeout, "force": force}
        limit = (0.0 if force else timeout) + MARGIN_SECONDS
        act_on_host(choice, host, "shutdown", asked, seconds=limit).print(as_json=as_json)
        return ExitCode.DONE
    try:
        own = [name for name, _ in placed]
        outcome = TeamActions(choice).shutdown(*own, force=force, seconds=timeout)
    except KeyboardInterrupt:
        what = "a teammate that does not reject it is shut down, at the deadline at the latest"
        standing = f"teamctl: the request stands: {what}; `teamctl team` shows it"
        click.echo(choice.add_team_option(standing), err=True)
        return INTERRUPTED
    choice.done = "the shutdown is done" if outcome.exit_code == ExitCode.DONE else ""
    if as_json:
        output.print_json(outcome.data or {"members": []})
    else:
        _print_ends(outcome)
    return outcome.exit_code


def _refuse_options(host: str) -> None:
    """Refuse the options that the settings of another host decide."""
    source = click.get_current_context().get_parameter_source
    if given := [f"--{one}" for one in _OPTIONS if source(one) is ParameterSource.COMMANDLINE]:
        why = f"cannot be used for a teammate on {host}: the settings of {host} decide there"
        raise click.UsageError(f"{', '.join(given)} {why}")


def _saved(choice: TeamOptions, paths: TeamPaths, facts: dict[str, Any]) -> tuple[Path, bytes]:
    """Return the file that declares this team's teammates, and its text with the new one.

    A named team has its own file. The text is made before the spawn, so that a mistake has no
    effect. A trusted file stays trusted, before and after it is written.
    """
    from teamd.settings.write import with_teammate  # noqa: PLC0415 -- the same

    file = paths.own_settings if choice.config is None else choice.settings_file(paths)
    declared = {key: facts[key] for key in ("name", "role", "prompt", "model", "effort")}
    teammate = Teammate(**declared, plan=facts["plan"] or False, worktree=facts["worktree"])
    old = read_file(file) or b""
    new = with_teammate(old, teammate, path=file)
    TrustStore().extend(file, old, new)
    return file, new


def _print_ends(outcome: Outcome) -> None:
    """Print a line for each teammate: on standard error unless it shut down as asked."""
    members = outcome.data.get("members")
    if members is None:
        output.echo(outcome.text)
        return
    for member in members:
        output.echo(member["text"], err=member["exit_code"] != ExitCode.DONE)
