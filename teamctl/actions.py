"""What a person does to a team from `top` or the page: the calls behind the commands, no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from teamctl.arguments import COPY_SECONDS, REQUEST_SECONDS, not_empty, without_secrets
from teamctl.mail.router import team_post
from teamctl.render import output
from teamd import control
from teamd.approvals.approval import Approval, Kind
from teamd.approvals.store import Approvals
from teamd.command_line import terminal
from teamd.command_line.run import INTERRUPTED, TeamOptions
from teamd.errors import BadName, ExitCode, TeamError
from teamd.files import directories, pidfile
from teamd.files.paths import TeamPaths
from teamd.messages import USER, Message, check_name, new_id
from teamd.team import teams
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from teamd.command_line.run import TeamOptions


class FarRefusal(TeamError):
    """Another host's refusal, in its words and with its exit code."""

    def __init__(self, host: str, text: str, code: ExitCode) -> None:
        super().__init__(f"{host} says: {text}")
        self.exit_code = code


def split_host(choice: TeamOptions, name: str) -> tuple[str, str | None]:
    """Return a teammate's name, and the other host it is on; `None` for one of this host.

    Raises:
        BadName: that is no name, of another team, or this host has no name among hosts.
        UnknownHost: no host has that name.
    """
    if "@" not in name:
        return name, None
    from teamctl.mail.router import other_hosts  # noqa: PLC0415 -- only for other hosts

    hosts = other_hosts(choice)
    own, _, place = name.partition("@")
    team, at, host = place.rpartition("@")
    ours = Roster(hosts.paths).read().name
    if at and team.lower() != ours.lower():
        raise BadName(name, f"commands reach the team {ours!r} only: write {own}@{host}")
    check_name(own)
    return own, None if host.lower() == hosts.name.lower() else hosts.check(host)


def refuse_options(host: str, given: Mapping[str, bool]) -> None:
    """Refuse options whose values do not cross, before anything is asked.

    Args:
        host: the other host.
        given: whether each was given, by its name.

    Raises:
        click.UsageError: one is set.
    """
    if found := [name for name, said in given.items() if said]:
        why = f"the settings of {host} decide there"
        raise click.UsageError(f"{', '.join(found)} cannot be said of a teammate on {host}: {why}")


def ask_host(
    choice: TeamOptions, host: str, command: str, arguments: Mapping[str, Any], *, seconds: float
) -> str:
    """Have another host do something; return what it says.

    Raises:
        DeadlinePassed: it is not there, or did not answer in time.
        FarRefusal: it refuses, or failed.
        SystemExit: a person broke it off, and was told that the request stands.
    """
    from teamctl.mail.router import other_hosts  # noqa: PLC0415 -- only for other hosts
    from teamd.hosts.asking import ask  # noqa: PLC0415 -- the same

    try:
        answer = ask(other_hosts(choice), host, command, arguments, seconds=seconds)
    except KeyboardInterrupt as stopped:
        standing = f"teamctl: the request stands: {host} may do it within {seconds:g} s"
        click.echo(choice.add_team_option(f"{standing}; `teamctl team --hosts` shows it"), err=True)
        raise SystemExit(INTERRUPTED) from stopped
    if answer.exit_code is not ExitCode.DONE:
        raise FarRefusal(host, answer.text, answer.exit_code)
    choice.done = f"{host} has done it"
    return answer.text


def print_answer(host: str, text: str, *, as_json: bool) -> None:
    """Print what another host says."""
    output.print_either(f"{host}: {text}", {"host": host, "text": text}, as_json=as_json)


no_start_option = click.option(
    "--no-start", is_flag=True, help="Do not start teamd where none runs: fail with status 3."
)


def ensure_running(choice: TeamOptions, *, no_start: bool) -> TeamPaths:
    """Return the team that is meant; a teamd serves it then, unless it is not to be started.

    What is said goes to standard error: the output is the command's own.

    Raises:
        TeamError: teamd did not start, or a setting is wrong.
    """
    if no_start:
        return choice.existing()
    # A name that is misspelt must not make a team.
    paths = choice.existing() if choice.team or choice.team_dir else choice.existing_or_here()
    if pidfile.supervisor(paths) is not None:
        return paths
    file = choice.settings_file(paths)
    directories.make_private_directory(paths.home)
    if not choice.without_settings(paths):
        choice.settings(paths)  # a mistake is told before anything is begun
    _say(f"no teamd runs for {paths.root}; starting it")
    import asyncio  # noqa: PLC0415 -- 40 ms, only where a teamd is started

    for line in asyncio.run(teams.start(paths, file if choice.config else None)):
        _say(line)
    stop = paths.add_team_option("`teamd stop` ends it")
    _say(f"teamd (pid {pidfile.check(paths).pid}) runs; {stop}")
    return paths


def _say(text: str) -> None:
    click.echo(terminal.plain(f"teamctl: {text}"), err=True)


_GRACE_SECONDS: Final = 10.0  # as `teamctl shutdown` gives
_MARGIN_SECONDS: Final = 10.0
_KINDS: Final[dict[str, str]] = {
    Kind.PLAN: "plan",
    Kind.SHUTDOWN: "shutdown",
    Kind.PERMISSION: "permission",
}


@dataclass(frozen=True, slots=True)
class Deeds:
    """The person's calls to one team; each returns the sentence that says what was done.

    All raise a `TeamError` where it was not.
    """

    choice: TeamOptions

    def answer(self, request: str, reason: str = "", *, approve: bool, always: bool = False) -> str:
        """Answer a request; with `always`, a permission is granted for good."""
        post = team_post(self.choice)
        words = without_secrets(reason).strip()
        done = Approvals(post.paths, post).answer(
            request, by=USER, approve=approve, reason=words, always=always
        )
        return f"{done.status} {title(done)}"

    def send(self, to: str, text: str, key: str = "") -> str:
        """Send mail; what is sent again with the same key arrives once."""
        post = team_post(self.choice)
        content = without_secrets(not_empty(text))
        message = Message(id=key or new_id(), sender=post.person(), to=to, content=content)
        sent = post.send(message)
        return f"sent to {sent.to}" + (f"; {sent.warning}" if sent.warning else "")

    def broadcast(self, text: str) -> str:
        """Send mail to everybody."""
        post = team_post(self.choice)
        content = without_secrets(not_empty(text))
        message = Message(type="broadcast", sender=post.person(), to="all", content=content)
        sent = post.broadcast(message)
        if not sent:
            raise TeamError("there is nobody to send to; spawn a teammate first")
        return f"sent to {', '.join(one.to for one in sent)}"

    def spawn(self, name: str, role: str, prompt: str, **how: Any) -> str:
        """Start or wake a teammate.

        Args:
            name: the teammate's.
            role: what it is.
            prompt: its next task.
            how: `model`, `effort`, `fresh`, `plan` and `worktree`, as the command has them.
        """
        check_name(name)
        facts = {"name": name, "role": role, "prompt": without_secrets(prompt)}
        left_out = {"model": None, "effort": None, "fresh": False, "plan": None, "worktree": None}
        seconds = COPY_SECONDS if how.get("worktree") else REQUEST_SECONDS
        return self._ask("spawn", facts | left_out | how, seconds)

    def shutdown(self, name: str, *, force: bool = False) -> str:
        """Ask a teammate to end, or end it."""
        asked = {"name": name, "seconds": _GRACE_SECONDS, "force": force}
        limit = (0.0 if force else _GRACE_SECONDS) + _MARGIN_SECONDS
        paths = self.choice.existing()
        reply = control.ask(paths, "shutdown", asked, timeout_seconds=limit)
        members = reply.data.get("members")
        if members is None:
            return reply.raise_unless_done().text
        said = "; ".join(member["text"] for member in members)
        if reply.exit_code is ExitCode.REFUSED:
            raise TeamError(said)
        return said

    def interrupt(self, name: str, text: str = "") -> str:
        """Break off the turn that runs; the text, if there is one, is what it reads next."""
        return self._ask("interrupt", {"name": name, "text": without_secrets(text).strip()})

    def pause(self, name: str) -> str:
        """Hold a teammate until it is resumed."""
        return self._ask("pause", {"name": name})

    def resume(self, name: str, **more: float) -> str:
        """Let a teammate go on, with limits on `usd` and `tokens` that are raised by so much."""
        return self._ask("resume", {"name": name, **more})

    def _ask(self, command: str, facts: dict[str, Any], seconds: float = REQUEST_SECONDS) -> str:
        reply = control.ask(self.choice.existing(), command, facts, timeout_seconds=seconds)
        warning = reply.raise_unless_done().data.get("warning")
        return f"{reply.text}; {warning}" if warning else reply.text


def title(approval: Approval) -> str:
    """Return what a request is called in sentences."""
    return f"the {kind_word(approval)} of {approval.asker} ({approval.id})"


def kind_word(approval: Approval) -> str:
    """Return what is asked for, in a word."""
    return _KINDS.get(approval.type, approval.type)
