"""`teamctl chat`: talk to the agent that leads the team, or give it one task."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from teamctl.actions import ensure_running, explain_delay
from teamctl.arguments import fresh_option, no_start_option, text_or_stdin, timeout_option
from teamctl.chat.lead import Lead
from teamctl.mail.receipts import wait_for_last_words
from teamctl.mail.team_rest import Crew
from teamctl.render import output
from teamctl.render.layout import Layout
from teamd.command_line.options import TextCommand, team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError
from teamd.messages import LEAD


@click.command(cls=TextCommand)
@click.argument("prompt", required=False)
@click.option(
    "--model",
    help="Use this model instead of the one in the settings, until the lead is shut down.",
)
@fresh_option
@timeout_option
@click.option(
    "--no-wait", is_flag=True, help="With a PROMPT: return after the lead's turn, not the work."
)
@no_start_option
@output.json_option
@team_options
def command(
    choice: TeamOptions,
    prompt: str | None,
    *,
    timeout: float,
    no_wait: bool,
    no_start: bool,
    as_json: bool,
    **facts: Any,
) -> None:
    """Talk to the agent that leads the team. Your first chat starts it, and teamd if needed.

    With a PROMPT the command waits until the lead and everyone working for it are idle, prints
    the lead's last words and ends; if PROMPT is -, it reads standard input. The exit status is 1 if
    anyone failed, is paused or waits for you, and 4 after --timeout; the team then carries on.

    Ctrl-C interrupts the lead's turn, not the team. When the chat ends, the team goes on, and so
    does the lead. `teamctl shutdown lead` ends the lead; then you lead the team again.
    """
    if as_json and prompt is None:
        raise click.UsageError("--json prints one document; give a PROMPT with it")
    if prompt is not None:
        prompt = text_or_stdin(prompt)
        if not prompt.strip():
            raise TeamError("a prompt is needed and must not be empty")
    paths = ensure_running(choice, no_start=no_start)
    lead = Lead(choice, **facts)
    with explain_delay():
        warning = lead.call(scripted=prompt is not None or not sys.stdin.isatty())
    if warning:
        output.warn(paths.add_team_option(warning))
    if prompt is None:
        _talk(lead)
        return
    if no_wait:
        _print_turn(lead, prompt, timeout, as_json=as_json)
    else:
        _print_work(lead, prompt, timeout, as_json=as_json)


def _print_turn(lead: Lead, prompt: str, timeout: float, *, as_json: bool) -> None:
    message = lead.tell(prompt)
    try:
        said = wait_for_last_words(lead.paths, LEAD, message, timeout)
    except KeyboardInterrupt:
        lead.interrupt()
        raise
    _print_words(said, {"text": said}, as_json=as_json)
    lead.note_heard()


def _print_words(said: str, document: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.print_json(document)
        return
    for line in Layout.of_output().markdown(said):
        click.echo(line)


def _print_work(lead: Lead, prompt: str, timeout: float, *, as_json: bool) -> None:
    from teamctl.chat.work import WorkWatch, shown_progress  # noqa: PLC0415 -- only with a PROMPT

    paths = lead.paths
    crew = Crew(paths)
    watch = WorkWatch(paths, lead.tell(prompt), crew)
    try:
        with shown_progress(paths) as show:
            done = watch.wait(timeout, show)
    except KeyboardInterrupt:
        lead.interrupt()
        said = "the lead's turn is interrupted"
        if working := watch.working():
            hint = "`teamctl wait --all` waits for them, `teamctl shutdown --all` ends them"
            said += f"; still at work: {', '.join(working)}; {hint}"
        output.warn(paths.add_team_option(said))
        raise
    if not done.trouble or (done.text and not as_json):
        states = [{"name": view.name, "state": view.state} for view in done.members]
        _print_words(done.text, {"text": done.text, "members": states}, as_json=as_json)
        lead.note_heard()
    if done.trouble:
        raise TeamError(done.trouble)


def _talk(lead: Lead) -> None:
    from teamctl.chat.console import talk  # noqa: PLC0415 -- asyncio, only for a conversation

    if sys.stdin.isatty():
        click.echo("You talk to lead; /help lists what else there is, Ctrl-D leaves.")

    group = click.get_current_context().find_root().command

    def run(argv: Sequence[str]) -> None:
        try:
            group.main(["--team-dir", str(lead.paths.root), *argv], standalone_mode=False)
        except click.ClickException as error:
            error.show()
        except TeamError as error:
            output.echo(lead.paths.add_team_option(error.for_person()), err=True)

    talk(lead, run)
