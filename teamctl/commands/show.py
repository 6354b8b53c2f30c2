"""`teamctl show`: everything about one teammate, on one page."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import click

from teamctl import arguments
from teamctl.mail.router import open_approvals
from teamctl.render import output
from teamd.board.files import read_all
from teamd.command_line import terminal
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.overview.members import WAITING, MemberView
from teamd.overview.overview import OverviewReader
from teamd.settings import roles
from teamd.team.member import Member
from teamd.transcript.file import Transcript
from teamd.transcript.records import Replied

_LABEL: Final = 10  # columns


@click.command()
@click.argument("name", shell_complete=arguments.teammates)
@output.json_option
@team_options
def command(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Show all about NAME: its state and why, its work, waiting mail and requests, its last words.

    The command works without teamd.
    """
    paths = choice.existing()
    seen = OverviewReader(paths).read()
    view = seen.find(seen.team.get(name).name)
    assert view is not None  # noqa: S101 -- the overview contains every member
    facts = {**_facts(paths, view), "effort": _effort(choice, paths, view.member)}
    if as_json:
        output.print_json({"member": {**view.to_json(), **facts}})
        return
    for label, text in _lines(paths, view, facts):
        shown = terminal.fit(text, sys.stdout, " " * (_LABEL + 1))
        click.echo(f"{terminal.style(f'{label:{_LABEL}}', bold=True)} {shown[_LABEL + 1 :]}")


def _facts(paths: TeamPaths, view: MemberView) -> dict[str, Any]:
    """Return the facts that are not in the overview."""
    name = view.name
    tasks = [one for one in read_all(paths).by_id.values() if one.status.open and one.is_of(name)]
    requests = [one for one in open_approvals(paths) if name in (one.asker, one.to)]
    return {
        "alive": view.alive,
        "tasks": [one.to_json() for one in tasks],
        "requests": [one.to_json() for one in requests],
        "said": _last_words(paths, name),
    }


def _last_words(paths: TeamPaths, name: str) -> str:
    records = Transcript(paths.transcript(name), durable=False).records()
    said = deque((one.text for one in records if isinstance(one, Replied) and one.text), maxlen=1)
    return said[0] if said else ""


def _lines(paths: TeamPaths, view: MemberView, facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    member = view.member
    yield "name", f"{member.name} ({member.role})"
    yield "state", _state(view)
    if view.alive:
        yield "process", f"pid {member.pid}, since {output.ago(member.since)}"
    yield "used", _used(view)
    yield "mail", f"{'?' if view.queued is None else view.queued} wait" + _rejected(paths, view)
    yield from _terms(paths, member, facts["effort"])
    for task in facts["tasks"]:
        yield "task", f"{task['id']} [{task['status']}] {task['subject']}"
    for asked in facts["requests"]:
        command = f"`teamctl approve {asked['id']}`"
        yield "request", f"{asked['type']} {asked['id']} of {asked['from']}: {command} answers it"
    if facts["said"]:
        yield "said", facts["said"]
    yield "more", f"`teamctl transcript {member.name}`, `teamctl logs {member.name}`"


def _state(view: MemberView) -> str:
    """Return its state, how long it has lasted, and its step or obstacle, as in `teamctl team`."""
    why = view.describes if view.doing or view.state == WAITING else view.member.reason
    since = "" if view.since is None else f" for {output.ago(view.since)}"
    return f"{view.state}{since}" + (f": {why}" if why else "")


def _effort(choice: TeamOptions, paths: TeamPaths, member: Member) -> str | None:
    """Return the effort of its model; `None` if a file cannot be read."""
    if member.effort:
        return member.effort
    try:
        settings = choice.settings(paths)
        folders = roles.folders(paths.agents, settings.team.workspace)
        role = roles.find(member.role, folders)
    except TeamError:  # `teamctl doctor` reports it
        return None
    return (role.effort if role else None) or settings.model.effort


def _terms(paths: TeamPaths, member: Member, effort: str | None) -> Iterator[tuple[str, str]]:
    """Yield its own settings, and its effort."""
    if member.model:
        yield "model", member.model
    if effort:
        yield "effort", f"{effort}, if the model takes one"
    if member.plan:
        yield "plan", "it acts only once a plan of its own is approved"
    if member.worktree:
        yield "copy", str(paths.copy(member.name))
    if member.sandbox:
        yield "sandbox", member.sandbox


def _used(view: MemberView) -> str:
    member, usd = view.member, view.account and view.account.known_usd
    tokens = f"{output.count(member.input_tokens)} tokens in, {output.count(member.output_tokens)}"
    cost = "an unknown cost" if usd is None else f"${usd:.4f}"
    turns = "1 turn" if member.turns == 1 else f"{member.turns} turns"
    return f"{turns}, {tokens} out, {cost}"


def _rejected(paths: TeamPaths, view: MemberView) -> str:
    if view.trouble:
        return f"; {view.trouble}"
    if not view.rejected:
        return ""
    return f"; {view.rejected} lines were not mail: {paths.rejected(view.name)}"
