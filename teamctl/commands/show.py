"""`teamctl show`: all that is known of one teammate, on one page."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from teamctl import arguments, output
from teamctl.post import open_approvals
from teamd import commandline, terminal
from teamd.board.files import read_all
from teamd.budget.accounts import NOTHING
from teamd.budget.ledger import Ledger
from teamd.commandline import team_options
from teamd.mail import lines
from teamd.mail.mailbox import Mailbox
from teamd.team.roster import Roster
from teamd.transcript.file import Transcript
from teamd.transcript.records import Replied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.cli import Choice
    from teamd.files.paths import TeamPaths
    from teamd.team.member import Member


@commandline.command()
@commandline.argument("name", shell_complete=arguments.teammates)
@output.json_option
@team_options
def command(choice: Choice, name: str, *, as_json: bool) -> None:
    """Show all about NAME: how it is and why, its work, what waits, what it said last.

    The command works without teamd.
    """
    paths = choice.existing()
    member = Roster(paths).read().get(name)
    facts = _facts(paths, member)
    if as_json:
        output.print_json({"member": {**member.encode(), **facts}})
        return
    for label, text in _lines(paths, member, facts):
        first, *rest = output.plain(text).splitlines() or [""]
        terminal.echo(f"{terminal.style(f'{label:10}', bold=True)} {first}")
        for line in rest:
            terminal.echo(f"{'':10} {line}")


def _facts(paths: TeamPaths, member: Member) -> dict[str, Any]:
    """Return what other files than the roster say."""
    name, process = member.name, member.process
    account = Ledger(paths.ledger).read().used.get(name, NOTHING)
    tasks = [one for one in read_all(paths).by_id.values() if one.status.open and one.is_of(name)]
    requests = [one for one in open_approvals(paths) if name in (one.asker, one.to)]
    return {
        "alive": process is not None and process.alive,
        "usd": account.known_usd,
        "queued": Mailbox(paths, name).queued(),
        "rejected": lines.count(paths.rejected(name)),
        "tasks": [one.to_json() for one in tasks],
        "requests": [one.to_json() for one in requests],
        "said": _last_words(paths, name),
    }


def _last_words(paths: TeamPaths, name: str) -> str:
    records = Transcript(paths.transcript(name), durable=False).records()
    said = deque((one.text for one in records if isinstance(one, Replied) and one.text), maxlen=1)
    return said[0] if said else ""


def _lines(paths: TeamPaths, member: Member, facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "name", f"{member.name} ({member.role})"
    yield "state", f"{member.status}" + (f": {member.reason}" if member.reason else "")
    if facts["alive"]:
        yield "process", f"pid {member.pid}, since {output.ago(member.since)}"
    yield "used", _used(member, facts)
    yield "mail", f"{facts['queued']} wait" + _rejected(paths, member, facts)
    yield from _terms(paths, member)
    for task in facts["tasks"]:
        yield "task", f"{task['id']} [{task['status']}] {task['subject']}"
    for asked in facts["requests"]:
        command = f"`teamctl approve {asked['id']}`"
        yield "request", f"{asked['type']} {asked['id']} of {asked['from']}: {command} answers it"
    if facts["said"]:
        yield "said", facts["said"]
    yield "more", f"`teamctl transcript {member.name}`, `teamctl logs {member.name}`"


def _terms(paths: TeamPaths, member: Member) -> Iterator[tuple[str, str]]:
    """Yield how it works, where that is not as the settings say for all."""
    if member.model:
        yield "model", member.model
    if member.plan:
        yield "plan", "it acts only once a plan of its own is approved"
    if member.worktree:
        yield "copy", str(paths.copy(member.name))
    if member.sandbox:
        yield "sandbox", member.sandbox


def _used(member: Member, facts: dict[str, Any]) -> str:
    tokens = f"{output.count(member.input_tokens)} tokens in, {output.count(member.output_tokens)}"
    usd = "an unknown cost" if facts["usd"] is None else f"${facts['usd']:.4f}"
    return f"{member.turns} turns, {tokens} out, {usd}"


def _rejected(paths: TeamPaths, member: Member, facts: dict[str, Any]) -> str:
    if not facts["rejected"]:
        return ""
    return f"; {facts['rejected']} lines were no mail: {paths.rejected(member.name)}"
