"""`teamd start|stop|restart|status|reload`."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from teamd import control, secret_environment
from teamd.command_line import documents, terminal
from teamd.command_line.options import (
    IntRange,
    Seconds,
    SuggestingGroup,
    add_examples,
    team_options,
    version_option,
)
from teamd.command_line.run import TeamOptions, run
from teamd.errors import DeadlinePassed, ExitCode, NoTeamd, TeamError
from teamd.files import directories, pidfile
from teamd.files.paths import TeamPaths
from teamd.hosts.places import explain_renewal
from teamd.model_server.connection import check_connection, server_address
from teamd.overview.notices import NoticeKind
from teamd.overview.overview import Overview, OverviewReader
from teamd.sandbox import SANDBOXED
from teamd.service import READY, execute_again, leave_terminal, notify, start_in_background
from teamd.service import stop as stop_service
from teamd.supervisor.fork import hide_memory
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from teamd.settings import Settings

STOP_SECONDS: Final = 15.0
_EXAMPLES: Final = {
    "start": ("teamd start", "teamd start --foreground     # for a service manager"),
    "stop": ("teamd stop", "teamd stop --timeout 60"),
    "restart": ("teamd restart", "teamd --team website restart"),
    "status": ("teamd status", "teamd status --json"),
    "reload": ("teamd reload", "teamd --team website reload"),
}
_DESCRIPTOR: Final = IntRange(min=0)

timeout_option = click.option(
    "--timeout",
    type=Seconds(zero=False),
    default=STOP_SECONDS,
    show_default=True,
    help="How many seconds to wait before using force.",
)


class _Program(SuggestingGroup):
    def describe_known(self, ctx: click.Context) -> str:
        """Return the hint that lists the commands, and names the other program."""
        return f"{super().describe_known(ctx)}; `teamctl --help` lists those for the team"


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@version_option
@team_options
def program(_: TeamOptions) -> None:
    """Supervise a team of agents: one process for each teammate, mail in files."""


@program.command()
@click.option("--foreground", is_flag=True, help="Stay in the foreground, for service managers.")
@click.option("--ready-fd", type=_DESCRIPTOR, hidden=True)
@click.option(secret_environment.OPTION, type=_DESCRIPTOR, hidden=True)
@documents.json_option
@team_options
def start(
    choice: TeamOptions,
    *,
    foreground: bool,
    ready_fd: int | None,
    secrets_fd: int | None,
    as_json: bool,
) -> int:
    """Start the supervisor, and return once it serves requests."""
    if foreground and as_json:
        raise click.UsageError(
            "--foreground never returns and --json is one document: use only one of them"
        )
    if foreground:
        _hide_secrets(handed_over=secrets_fd is not None)
    if secrets_fd is not None:
        os.environ.update(secret_environment.receive(secrets_fd))  # in memory only
    team = choice.existing_or_here()
    if not foreground:
        return _start_in_background(choice, team, as_json=as_json)
    if ready_fd is not None:
        os.set_inheritable(ready_fd, False)  # the postman would keep it open
    else:  # otherwise the process that waits for `ready_fd` prints it
        _print_waiting(choice.waiting(team)[1])
    if not choice.without_settings(team):
        choice.settings(team)  # report mistakes before the slow imports
    if ready_fd is None:
        _Models(team, choice.settings(team)).warn()
    from teamd.daemon import serve  # noqa: PLC0415 -- the SDK takes half a second

    serve(team, choice.settings_file(team), ready=lambda: _ready(team, ready_fd))
    return ExitCode.DONE


@program.command()
@timeout_option
@documents.json_option
@team_options
def stop(choice: TeamOptions, *, timeout: float, as_json: bool) -> int:
    """End the supervisor and all teammates; the next start resumes them."""
    said, team = _stop(choice.existing(), timeout), str(choice.existing().root)
    documents.print_either(said, {"running": False, "pid": None, "team": team}, as_json=as_json)
    return ExitCode.DONE


@program.command()
@timeout_option
@documents.json_option
@team_options
def restart(choice: TeamOptions, *, timeout: float, as_json: bool) -> int:
    """Stop the supervisor if it runs, then start it."""
    team = choice.existing_or_here()
    # A mistake in the settings or the environment must not cost a running team.
    model = choice.settings(team).model
    if model.asks_server:
        check_connection(model.base_url)
    with suppress(NoTeamd):
        said = _stop(team, timeout)
        if not as_json:
            click.echo(said)
    return _start_in_background(choice, team, as_json=as_json)


@program.command()
@documents.json_option
@team_options
def status(choice: TeamOptions, as_json: bool) -> int:  # noqa: FBT001 -- click's
    """Show whether a supervisor runs, the states of its team, and who needs you."""
    paths = choice.existing()
    seen = OverviewReader(paths, costs=False, copies=False).read(choice.waiting(paths))
    pid, notices = seen.supervisor, list(seen.notices)
    if as_json:
        facts: dict[str, Any] = {"running": pid is not None, "pid": pid, "team": str(paths.root)}
        facts |= {"sandbox": seen.team.sandbox or None, "untrusted": list(seen.untrusted)}
        facts["notices"] = [notice.to_json() for notice in notices]
        documents.print_json(facts)
    else:
        lines = []
        if pid is not None:
            lines.append(f"teamd (pid {pid}) runs for {paths.root}; {_summary(seen)}")
        notices.sort(key=lambda notice: notice.kind is not NoticeKind.TEAMD)
        lines += [line for notice in notices for line in notice.lines]
        lines += [f"sandbox: {seen.team.sandbox}"] * (pid is not None)
        lines += filter(None, [seen.untrusted_sentence])
        terminal.echo("\n".join(lines))
    return ExitCode.NO_TEAMD if pid is None else ExitCode.DONE


@program.command()
@documents.json_option
@team_options
def reload(choice: TeamOptions, *, as_json: bool) -> int:
    """Read team.toml again, and say what changed and what waits for a restart."""
    reply = control.ask(choice.existing(), "reload", {}, timeout_seconds=STOP_SECONDS)
    said = reply.raise_unless_done().text
    documents.print_either(said, {"text": said, **reply.data}, as_json=as_json)
    return ExitCode.DONE


def _hide_secrets(*, handed_over: bool) -> None:
    """Prevent other processes from reading the secrets of this one.

    The initial environment of a process can always be read. If it holds secrets, the process
    executes itself again without them.
    """
    if not handed_over and secret_environment.split(os.environ)[1]:
        execute_again()
    hide_memory()


def _start_in_background(choice: TeamOptions, team: TeamPaths, *, as_json: bool) -> int:
    file = choice.settings_file(team)
    directories.make_private_directory(team.home)  # missing only if --team-dir named the team
    running = pidfile.supervisor(team)
    if running is not None and running.at_work:  # a new supervisor waits until a dying one is gone
        choice.settings(team)  # report mistakes in the settings first
        raise pidfile.AlreadyRunning(team, running.pid)
    waiting: list[str] = []
    models: list[_Models] = []
    git: list[str] = []

    def look() -> None:
        """Collect warnings while the supervisor starts; it reports invalid settings itself."""
        waiting.append(choice.waiting(team)[1])
        import_module("teamd.team.roster")  # for the warning
        with suppress(TeamError):
            settings = choice.settings(team)
            git.extend(_explain_git(settings))
            models.append(_Models(team, settings))
            models[0].begin_fetch()

    code = start_in_background(team, file if choice.config else None, meanwhile=look)
    if code == ExitCode.DONE:  # otherwise the error must be the last line
        _print_waiting(*waiting)
        pid = pidfile.check(team).pid
        said = f"teamd (pid {pid}) runs for {team.root}; `teamctl team` shows the team"
        facts = {"running": True, "pid": pid, "team": str(team.root)}
        documents.print_either(team.add_team_option(said), facts, as_json=as_json)
        _warn_of_sandbox(team)
        if (renewal := explain_renewal(team)) is not None:
            terminal.echo(f"teamd: {renewal}", err=True)
        for warning in git:
            terminal.echo(f"teamd: {warning}", err=True)
        for named in models:
            named.warn()
    return code


class _Models:
    """The models that the settings and the roster name, and warnings of their retirement."""

    def __init__(self, team: TeamPaths, settings: Settings) -> None:
        model = settings.model
        declared = (one.model for one in settings.teammates)
        own = (one.model for one in Roster(team).read().members)
        names = dict.fromkeys(filter(None, (model.name, *declared, *own)))
        self._names = tuple(names) if model.asks_server else ()
        self._team, self._model = team, model
        self._server = server_address(model.base_url)
        self._wait: Callable[[], None] = lambda: None

    def begin_fetch(self) -> None:
        """Begin to ask the server, once a day, unless the key would have to be unlocked."""
        from teamd.model_server import credentials  # noqa: PLC0415 -- only for a start
        from teamd.model_server import pages as model_pages  # noqa: PLC0415 -- only for a start

        key = None if self._model.key_command else credentials.in_environment()
        if key is not None and self._names:
            self._wait = model_pages.begin_fetch(
                self._team, self._server, self._names, key, self._model.headers
            )

    def warn(self) -> None:
        """Print a warning for each model that retires soon."""
        from teamd.model_server.pages import warn_of_retirements  # noqa: PLC0415 -- only for a start

        self._wait()
        for sentence in warn_of_retirements(self._team, self._server, self._names):
            terminal.echo(f"teamd: {sentence}", err=True)


def _explain_git(settings: Settings) -> list[str]:
    """Return a sentence if git does not work for teammates in the shared folder."""
    from teamd.sandbox.git_repository import explain_git  # noqa: PLC0415 -- only for a start

    sentence = explain_git(settings.tools, settings.team.workspace)
    return [sentence] if sentence and not settings.team.worktree else []


def _warn_of_sandbox(team: TeamPaths) -> None:
    """Warn if the commands of agents run without a sandbox."""
    sandbox = Roster(team).read().sandbox
    if not sandbox.startswith(SANDBOXED):
        terminal.echo(f"teamd: sandbox {sandbox}", err=True)


def _print_waiting(waiting: str) -> None:
    if waiting:
        terminal.echo(f"teamd: {waiting}", err=True)


def _stop(team: TeamPaths, seconds: float) -> str:
    """Stop the supervisor and return the sentence that says so."""
    begun = time.monotonic()
    took_force = stop_service(team, timeout_seconds=seconds)
    took = time.monotonic() - begun
    if took_force:
        raise DeadlinePassed(f"teamd did not end within {seconds:g} s and was killed")
    return f"teamd has stopped ({took:.1f} s); the next start goes on where it was"


def _ready(team: TeamPaths, ready_fd: int | None) -> None:
    notify("READY=1")
    if ready_fd is None:
        return
    leave_terminal(team)
    os.write(ready_fd, READY)
    os.close(ready_fd)


def _summary(seen: Overview) -> str:
    counts = Counter(view.state for view in seen.members)
    return ", ".join(f"{count} {word}" for word, count in counts.items()) or "nobody in it yet"


add_examples(program, _EXAMPLES, "")


def main() -> None:
    """The entry point of `teamd`."""
    run("teamd", program)


if __name__ == "__main__":
    main()
