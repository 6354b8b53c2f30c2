"""Open requests and their answers: `teamctl requests`, `approve` and `reject`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from teamctl import arguments
from teamctl.actions import Outcome, TeamActions, describe_approval, kind_word
from teamctl.mail.router import team_post
from teamctl.render import output
from teamd.approvals.approval import CALLS, Approval, NoSuchApproval
from teamd.approvals.store import Approvals
from teamd.command_line import terminal
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.messages import USER
from teamd.overview.members import PAUSING, STOPPED, MemberView, OpenRequest, read_requests
from teamd.overview.overview import Overview, OverviewReader
from teamd.team.roster import Roster
from teamd.team.states import Status

_MOST_NAMED: Final = 5
_STATES: Final[dict[str, str]] = {
    Status.WORKING: "works; `teamctl transcript {0} -f` shows at what",
    PAUSING: "pauses once its step has ended",
    STOPPED: "is stopped in the middle of its work",
    Status.IDLE: "is idle; `teamctl send {0} TEXT` gives it something to do",
    Status.SHUTDOWN: "is shut down; `teamctl spawn {0} ROLE TASK` wakes it",
}
_id_argument = click.argument("request_id", metavar="ID|NAME", shell_complete=arguments.approvals)


@click.command()
@output.json_option
@team_options
def command(choice: TeamOptions, *, as_json: bool) -> None:
    """List the open requests, such as plans and permissions, and the permanent permissions.

    `teamctl approve ID` and `teamctl reject ID` answer those that are addressed to you.
    """
    store, paths = _approvals(choice), choice.existing()
    found = read_requests(paths, Roster(paths).read())
    always = store.grants()
    if as_json:
        requests = [request.to_json() for request in found]
        output.print_json({"requests": requests, "always": [one.to_json() for one in always]})
        return
    for request in found:
        _show(request)
    if not found:
        click.echo("no open requests")
    for approval in always:
        what = output.plain("; ".join(map(str, approval.grants)))
        click.echo(f"{terminal.style(approval.id, bold=True)} allowed for good: {what}")
        take_back = paths.add_team_option(f"`teamctl reject {approval.id}` takes it back")
        output.echo(take_back, indent="  ")


@click.command()
@_id_argument
@click.option("--feedback", help="What the teammate should keep in mind; - reads standard input.")
@click.option("--always", is_flag=True, help="Of a permission or push: for this team, from now on.")
@output.json_option
@team_options
def approve(
    choice: TeamOptions, request_id: str, *, feedback: str | None, always: bool, as_json: bool
) -> None:
    """Approve the request ID, such as a plan or a permission, or the one that NAME waits for.

    The teammate that asked gets your answer and goes on. `teamctl requests` lists the ids; the
    first characters of one are enough if no other id begins with them.
    """
    outcome = _answer(choice, request_id, approve=True, reason=feedback, always=always)
    outcome.print(as_json=as_json)


@click.command()
@_id_argument
@click.argument("words", metavar="[REASON]", required=False)
@click.option("--reason", help="The same as REASON; - reads standard input.")
@output.json_option
@team_options
def reject(
    choice: TeamOptions, request_id: str, words: str | None, *, reason: str | None, as_json: bool
) -> None:
    """Reject the request ID, such as a plan, or the one that NAME waits for.

    REASON says why, and what should change. The teammate that asked gets your answer and may ask
    again; without a reason a terminal asks you for one. `teamctl requests` lists the ids; the first
    characters of one are enough if no other id begins with them. The id of a permission that you
    gave with `teamctl approve --always` takes it back.
    """
    if words is not None and reason is not None:
        raise click.UsageError("give the reason once: as REASON or with --reason")
    said = reason if words is None else words
    _answer(choice, request_id, approve=False, reason=said).print(as_json=as_json)


def _approvals(choice: TeamOptions) -> Approvals:
    post = team_post(choice)
    return Approvals(post.paths, post)


def _answer(
    choice: TeamOptions, beginning: str, *, approve: bool, reason: str | None, always: bool = False
) -> Outcome:
    """Answer the request whose id starts with `beginning`.

    Raises:
        TeamError: the request does not exist, is closed, or is not for the person.
    """
    asked = _approvals(choice)
    approval = _find(choice.existing(), asked, beginning)
    if approval.always and not approve:
        asked.take_back(approval.id)
        said = f"took back {describe_approval(approval)}: it is asked for again"
        return Outcome(said, {"id": approval.id, "status": "taken back"})
    if always and approval.type not in CALLS:
        raise TeamError(
            f"--always is for permissions and pushes, and {approval.id} is a {kind_word(approval)}"
        )
    if reason is None and not approve:
        reason = arguments.ask("Why, and what should change? (Enter for no reason)")
    words = arguments.text_or_stdin(reason or "").strip()
    return TeamActions(choice).answer(approval.id, words, approve=approve, always=always)


def _find(paths: TeamPaths, asked: Approvals, word: str) -> Approval:
    """Return the approval with that id, or the only one that a teammate of that name waits for.

    Raises:
        TeamError: none or several match.
    """
    exact = asked.find(word)
    if exact is not None:
        return exact
    waiting = [one for one in asked.open_ones() if not one.overdue]
    yours = [one for one in waiting if one.may_be_answered_by(USER)]
    found = [one for one in yours if one.asker.lower() == word.lower()]
    if not found:  # a teammate's name takes precedence over the start of an id
        _refuse_teammate(paths, word, waiting)
        return asked.match(word)
    if len(found) > 1:
        ids = ", ".join(f"{one.id} ({kind_word(one)})" for one in found)
        raise TeamError(f"{found[0].asker} waits for several answers: {ids}; name one by its id")
    return found[0]


def _refuse_teammate(paths: TeamPaths, name: str, waiting: Sequence[Approval]) -> None:
    """Explain why the person has no request from this teammate, and name the open requests.

    Raises:
        NoSuchApproval: there is a teammate of that name.
    """
    if Roster(paths).read().find(name) is None:
        return
    seen = OverviewReader(paths, costs=False, copies=False).read()
    mate = seen.find(name)
    assert mate is not None  # noqa: S101 -- the overview contains every member
    yours = [one for one in waiting if one.may_be_answered_by(USER)]
    asking = ", ".join(f"{one.asker} ({kind_word(one)} {one.id})" for one in yours[:_MOST_NAMED])
    others = f"open are those of {asking}" if asking else "nobody else waits for you"
    raise NoSuchApproval(f"{_explain(seen, mate, waiting)}; {others}")


def _explain(seen: Overview, mate: MemberView, waiting: Sequence[Approval]) -> str:
    """Return why the person has no request from a teammate, and the next step."""
    asked = next((one for one in waiting if one.asker == mate.name), None)
    if asked is not None:
        return f"{mate.name} waits for {asked.to} to answer its {kind_word(asked)}, not for you"
    nothing = f"{mate.name} asks for nothing"
    if mate.state in _STATES:
        found = f"{nothing}: it {_STATES[mate.state].format(mate.name)}"
        return found if seen.supervisor else f"{found}; no teamd runs, `teamd start` starts it"
    notes = [line for one in seen.notices if one.about == mate.name for line in one.lines]
    return "; ".join([nothing, *notes])


def _show(request: OpenRequest) -> None:
    approval = request.approval
    who = f"{output.plain(approval.asker)} → {output.plain(approval.to)}"
    about = f"[{output.plain(approval.type)}] {output.ago(approval.asked)} ago"
    click.echo(f"{terminal.style(output.plain(approval.id), bold=True)} {who} {about}")
    output.echo(approval.content, indent="  ")
    if request.yours and request.approve not in approval.content:
        answers = f"`{request.approve}` approves it, `{request.reject} --reason …` rejects it"
        output.echo(answers, indent="  ")
