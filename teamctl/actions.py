"""The person's actions on a team, shared by the commands, `top` and the web page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Timer
from typing import TYPE_CHECKING, Any, Final, Self

from teamctl.arguments import COPY_SECONDS, REQUEST_SECONDS, not_empty, without_secrets
from teamctl.mail.router import other_hosts, team_post, team_queue
from teamctl.render import output
from teamd import control
from teamd.approvals.approval import CALLS, Approval, Kind
from teamd.approvals.store import Approvals
from teamd.command_line import documents, terminal
from teamd.command_line.run import INTERRUPTED, TeamOptions
from teamd.control import ControlReply
from teamd.errors import BadName, ExitCode, TeamError
from teamd.files import directories, pidfile
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD, USER, Message, check_name, new_id
from teamd.team import teams
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from teamd.board.board import Board
    from teamd.board.rules import Change

_GRACE_SECONDS: Final = 10.0  # the default of `teamctl shutdown`
_PATIENCE_SECONDS: Final = 1.0
MARGIN_SECONDS: Final = 10.0  # from the deadline until the kill and the answer
_KINDS: Final[dict[str, str]] = {
    Kind.PLAN: "plan",
    Kind.SHUTDOWN: "shutdown",
    Kind.PERMISSION: "permission",
    Kind.PUSH: "push",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an action.

    Attributes:
        text: a sentence for the person.
        data: the facts, as `--json` prints them.
        exit_code: the exit status of the command.
    """

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    exit_code: ExitCode = ExitCode.DONE

    @classmethod
    def of(cls, reply: ControlReply) -> Self:
        """Return the outcome of a request to teamd.

        Raises:
            TeamError: teamd refused it, or failed.
        """
        reply.raise_unless_done()
        return cls(reply.text, reply.data)

    @property
    def warning(self) -> str | None:
        """A sentence about a problem that does not stop the action."""
        found: str | None = self.data.get("warning")
        return found

    def print(self, *, as_json: bool) -> None:
        """Print the result of a command, and its warning on standard error."""
        if self.warning:
            output.warn(self.warning)
        output.print_either(self.text, self.data, as_json=as_json)

    def sentence(self) -> str:
        """Return the whole result as one sentence.

        Raises:
            TeamError: the action was refused.
        """
        if self.exit_code is ExitCode.REFUSED:
            raise TeamError(self.text)
        return f"{self.text}; {self.warning}" if self.warning else self.text


def act_on_each(
    choice: TeamOptions,
    names: Sequence[str],
    act: Callable[[str], Outcome],
    *,
    as_json: bool,
) -> ExitCode:
    """Act on each name and print the results; return the worst exit status.

    For one name, the errors and the document are those of the action itself. With several, one
    failure does not stop the others; the document is then `{"members": [...]}`.

    Raises:
        TeamError: all of them failed, and the output is a document (`--json`).
    """
    if len(names) == 1:
        outcome = act(names[0])
        outcome.print(as_json=as_json)
        return outcome.exit_code
    worst, rows, errors = ExitCode.DONE, list[dict[str, Any]](), list[str]()
    for name in dict.fromkeys(names):
        try:
            outcome = act(name)
        except TeamError as error:
            worst = max(worst, error.exit_code)
            sentence = choice.add_team_option(error.for_person())
            errors.append(error.for_person())
            rows.append({"name": name, "error": sentence})
            if not as_json:
                _say(sentence)
            continue
        worst = max(worst, outcome.exit_code)
        rows.append({"name": name, **outcome.data})
        if not as_json:
            outcome.print(as_json=False)
    if as_json and len(errors) == len(rows):
        refusal = TeamError("; ".join(errors))
        refusal.exit_code = worst
        raise refusal
    if as_json:
        output.print_json({"members": rows})
    return worst


@dataclass(frozen=True, slots=True)
class TeamActions:
    """The person's actions on one team. Each raises a `TeamError` if it fails."""

    choice: TeamOptions

    def answer(
        self, request: str, reason: str = "", *, approve: bool, always: bool = False
    ) -> Outcome:
        """Answer a request; `always` allows the permission for this team from now on."""
        post = team_post(self.choice)
        words = without_secrets(reason).strip()
        answered = Approvals(post.paths, post).answer(
            request, by=USER, approve=approve, reason=words, always=always
        )
        facts = {"id": answered.id, "status": str(answered.status), "from": answered.asker}
        said = f"{answered.status} {describe_approval(answered)}"
        asker = Roster(post.paths).read().find(answered.asker)
        if approve and answered.type in CALLS and not (asker and asker.status.wants_process):
            said += f"; {answered.asker} does not run now, and goes on with it when it runs again"
        return Outcome(said, facts)

    def send(self, to: str, text: str, key: str = "") -> Outcome:
        """Send mail; mail that is sent again with the same key arrives once."""
        post = team_post(self.choice)
        content = without_secrets(not_empty(text))
        message = Message(id=key or new_id(), sender=post.person(), to=to, content=content)
        sent = post.send(message)
        return Outcome(f"sent to {sent.to}", {"warning": sent.warning})

    def broadcast(self, text: str) -> Outcome:
        """Send mail to every teammate."""
        post = team_post(self.choice)
        content = without_secrets(not_empty(text))
        message = Message(type="broadcast", sender=post.person(), to="all", content=content)
        sent = post.broadcast(message)
        if not sent:
            raise TeamError("there is nobody to send to; spawn a teammate first")
        return Outcome(f"sent to {', '.join(one.to for one in sent)}")

    def spawn(self, name: str, role: str, prompt: str, **options: Any) -> Outcome:
        """Start or wake a teammate.

        Args:
            name: the name of the teammate.
            role: its role.
            prompt: its next task.
            options: `model`, `effort`, `fresh`, `plan` and `worktree`, as in the command.
        """
        check_name(name)
        facts = {"name": name, "role": role, "prompt": without_secrets(prompt)}
        defaults = {"model": None, "effort": None, "fresh": False, "plan": None, "worktree": None}
        seconds = COPY_SECONDS if options.get("worktree") else REQUEST_SECONDS
        return self._ask("spawn", facts | defaults | options, seconds)

    def shutdown(
        self, *names: str, force: bool = False, seconds: float = _GRACE_SECONDS
    ) -> Outcome:
        """Ask teammates to shut down, or kill them.

        Args:
            names: their names; if empty, all teammates.
            force: whether to kill them at once, without asking.
            seconds: how long each has to answer before it is killed.
        """
        whom: dict[str, Any] = {"names": names} if names else {"all": True}
        if len(names) == 1:
            whom = {"name": names[0]}
        asked = {**whom, "seconds": seconds, "force": force}
        limit = (0.0 if force else seconds) + MARGIN_SECONDS
        reply = control.ask(self.choice.existing(), "shutdown", asked, timeout_seconds=limit)
        members = reply.data.get("members")
        if members is None:
            return Outcome.of(reply)
        text = "; ".join(member["text"] for member in members)
        return Outcome(text, reply.data, reply.exit_code)

    def interrupt(self, name: str, text: str = "") -> Outcome:
        """Interrupt the current turn; the teammate then reads the text, if any."""
        return self._ask("interrupt", {"name": name, "text": without_secrets(text).strip()})

    def pause(self, name: str) -> Outcome:
        return self._ask("pause", {"name": name})

    def resume(self, name: str, **more: float) -> Outcome:
        """Let a teammate continue, after raising its limits on `usd` and `tokens` by `more`."""
        return self._ask("resume", {"name": name, **more})

    def tell_lead(self, text: str, key: str = "") -> Outcome:
        """Send the person's text to the agent that leads the team, which is started if needed."""
        content = without_secrets(not_empty(text))
        started = self._ask(LEAD, {"fresh": False, "model": None})
        message = Message(id=key or new_id(), sender=USER, to=LEAD, content=content)
        team_post(self.choice).send(message)
        return Outcome("sent to lead", {"warning": started.warning})

    def add_task(self, subject: str, **options: Any) -> Outcome:
        """Add a task to the board; `options` as for `Board.add`."""
        task = self._board().add(without_secrets(subject), **options)
        return Outcome(f"task {task.id} is on the board")

    def claim_task(self, task_id: str, owner: str) -> Outcome:
        """Start a task for a teammate."""
        task = self._board().claim(task_id, owner=owner).task
        return Outcome(f"{task.owner} has task {task.id}")

    def change_task(self, task_id: str, change: Change) -> Outcome:
        """Change a task, even if a teammate owns it."""
        task = self._board().update(task_id, change).task
        return Outcome(f"task {task.id} is {str(task.status).replace('_', ' ')}")

    def note_seen(self) -> Outcome:
        """Clear the notice that the work is done, because the person looks at it."""
        self.choice.existing().note_seen()
        return Outcome("noted that you have looked")

    def enqueue(self, name: str) -> Outcome:
        """Queue the commits of a teammate for the merge."""
        from teamd.merges import enqueue  # noqa: PLC0415 -- 20 ms

        queue = team_queue(self.choice)
        paths = queue.board.paths
        entry = enqueue.add(queue, Roster(paths).read().get(name).name, self.choice.settings(paths))
        return Outcome(f"{entry.teammate}'s work is in the queue: {entry.id}", entry.to_json())

    def dequeue(self, entry_id: str) -> Outcome:
        """Remove an entry from the merge queue."""
        from teamd.copies.source import Source  # noqa: PLC0415 -- 20 ms
        from teamd.merges import enqueue  # noqa: PLC0415 -- the same

        queue = team_queue(self.choice)
        paths = queue.board.paths
        source = Source.of(self.choice.settings(paths).team.workspace, [paths.work])
        entry = enqueue.remove(queue, entry_id, source)
        return Outcome(f"{entry.id} is not in the queue now", entry.to_json())

    def _board(self) -> Board:
        from teamd.board.board import Board  # noqa: PLC0415 -- only to change it

        post = team_post(self.choice)
        paths = post.paths
        bare = self.choice.without_settings(paths)
        check = "" if bare else self.choice.settings(paths).tasks.check
        return Board(paths, post, LEAD, check=check, durable=post.durable)

    def _ask(
        self, command: str, facts: dict[str, Any], seconds: float = REQUEST_SECONDS
    ) -> Outcome:
        paths = self.choice.existing()
        return Outcome.of(control.ask(paths, command, facts, timeout_seconds=seconds))


def describe_approval(approval: Approval) -> str:
    """Return the phrase by which sentences name a request."""
    return f"the {kind_word(approval)} of {approval.asker} ({approval.id})"


def kind_word(approval: Approval) -> str:
    """Return the kind of a request in one word."""
    return _KINDS.get(approval.type, approval.type)


def split_host(choice: TeamOptions, name: str) -> tuple[str, str | None]:
    """Split `NAME@HOST` into the teammate's name and the other host, `None` for this host.

    Raises:
        BadName: the name is not valid, or belongs to another team.
        TeamError: `[hosts]` gives this host no name.
        UnknownHost: no host has that name.
    """
    if "@" not in name:
        return name, None
    hosts = other_hosts(choice)
    own, _, place = name.partition("@")
    team, at, host = place.rpartition("@")
    ours = Roster(hosts.paths).read().name
    if at and team.lower() != ours.lower():
        raise BadName(name, f"commands reach the team {ours!r} only: write {own}@{host}")
    check_name(own)
    return own, None if host.lower() == hosts.name.lower() else hosts.check(host)


def act_where_it_is(
    choice: TeamOptions, name: str, command: str, act: Callable[[str], Outcome], **facts: Any
) -> Outcome:
    """Act on a teammate of this host, or have its host execute the command if it is NAME@HOST."""
    own, host = split_host(choice, name)
    if host is None:
        return act(own)
    return act_on_host(choice, host, command, {"name": own, **facts})


def act_on_host(
    choice: TeamOptions,
    host: str,
    command: str,
    facts: Mapping[str, Any],
    *,
    seconds: float = REQUEST_SECONDS,
) -> Outcome:
    """Have another host execute a command.

    Raises:
        DeadlinePassed: the host did not answer in time.
        TeamError: the host refuses, or fails; the error has its exit code.
        SystemExit: the person pressed Ctrl-C, and was told that the request stays valid.
    """
    from teamd.command_line.installation import (  # noqa: PLC0415 -- only for other hosts
        load_for_hosts,
    )

    ask = load_for_hosts("teamd.postman.commands").ask
    try:
        answer = ask(other_hosts(choice), host, command, facts, seconds=seconds)
    except KeyboardInterrupt as stopped:
        standing = f"the request stands: {host} may do it within {seconds:g} s"
        _say(choice.add_team_option(f"{standing}; `teamctl team --hosts` shows it"))
        raise SystemExit(INTERRUPTED) from stopped
    if answer.exit_code is not ExitCode.DONE:
        refusal = TeamError(f"{host} says: {answer.text}")
        refusal.exit_code = answer.exit_code
        raise refusal
    choice.done = f"{host} has done it"
    return Outcome(f"{host}: {answer.text}", {"host": host, "text": answer.text})


def ensure_running(choice: TeamOptions, *, no_start: bool) -> TeamPaths:
    """Return the chosen team, after starting its teamd unless `no_start` is set.

    Progress goes to standard error, since the output belongs to the command.

    Raises:
        TeamError: teamd did not start, or a setting is wrong.
    """
    if no_start:
        return choice.existing()
    # A misspelt name must not create a team.
    paths = choice.existing() if choice.team or choice.team_dir else choice.existing_or_here()
    if pidfile.supervisor(paths) is not None:
        return paths
    file = choice.settings_file(paths)
    directories.make_private_directory(paths.home)
    if not choice.without_settings(paths):
        choice.settings(paths)  # report a mistake before anything is created
    say = (lambda _: None) if documents.json_is_asked() else _say
    say(f"no teamd runs for {paths.root}; starting it")
    import asyncio  # noqa: PLC0415 -- 40 ms, only to start a teamd

    for line in asyncio.run(teams.start(paths, file if choice.config else None)):
        say(line)
    stop = paths.add_team_option("`teamd stop` ends it")
    say(f"teamd (pid {pidfile.check(paths).pid}) runs; {stop}")
    return paths


@contextmanager
def explain_delay() -> Iterator[None]:
    """Say on a terminal why teamd does not answer within a second; its first spawn takes longer."""
    why = "waiting for teamd: after its start it loads the model's client …"
    timer = Timer(_PATIENCE_SECONDS, _say, [why])
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(text: str) -> None:
    terminal.echo(f"teamctl: {text}", err=True)
