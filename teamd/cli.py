"""The part that both commands share: options that name a team, and the edge where errors end."""

from __future__ import annotations

import errno
import functools
import math
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from teamd.errors import ExitCode, SettingsError, TeamError
from teamd.files import find_team
from teamd.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.files.paths import TeamPaths
    from teamd.settings import Reading, Settings

F = TypeVar("F", bound="Callable[..., Any]")

TRACEBACK_VARIABLE: Final = "TEAMD_TRACEBACK"
LONGEST_SECONDS: Final = 86_400
_STANDARD_ERROR: Final = 2
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells say it


@dataclass(slots=True)
class Choice:
    """The team and settings that one call of a command is about.

    Attributes:
        team_dir: a team directory; this and the others are `None` for that of the current folder.
        team: or a team's name.
        config: the settings file.
        done: what has been done and cannot be undone, in case the output cannot be written.
    """

    team_dir: str | None = None
    team: str | None = None
    config: str | None = None
    done: str = ""

    def addressed(self, text: str) -> str:
        """Return a sentence of ours with `--team` in the commands that it names, where needed."""
        try:
            chosen = find_team.named(self.team_dir, self.team)
        except TeamError:  # no team can have that name
            return text
        return text if chosen is None else chosen.addressed(text)

    def existing(self) -> TeamPaths:
        """Return the team that is meant, which must be there."""
        return find_team.existing(self.team_dir, self.team)

    def existing_or_here(self) -> TeamPaths:
        """Return the team that is meant, or the place for a new one."""
        return find_team.existing_or_here(self.team_dir, self.team)

    def settings_file(self, team: TeamPaths) -> Path:
        """Return the file whose settings apply; it may be missing unless `--config` names it.

        Raises:
            SettingsError: the file that is named is not there.
        """
        if self.config is None:
            return team.settings
        file = Path(self.config)
        file = file.parent.resolve() / file.name
        if not file.exists():
            raise SettingsError(file, ["there is no such file; `teamctl init` writes one"])
        return file

    def settings(self, team: TeamPaths) -> Settings:
        """Return the settings that apply to a team."""
        return self.read_settings(team).settings

    def read_settings(self, team: TeamPaths) -> Reading:
        """Return the settings that apply to a team, and which of them wait for trust."""
        from teamd.settings import read  # noqa: PLC0415 -- 15 ms, only where settings count

        return read(self.settings_file(team), folder=team.home)

    def waiting(self, team: TeamPaths) -> tuple[list[str], str]:
        """Return the settings that wait for trust, and the sentence that says so.

        Both are empty where nothing waits, or where the settings cannot be read at all.
        """
        try:
            found = self.read_settings(team)
        except TeamError:
            return [], ""
        keys = [one.key for one in found.waiting]
        return keys, team.addressed(found.explain_waiting(self.config))


def team_options(command: F) -> F:
    """Add the options that name a team, and pass the `Choice` that they make.

    They may stand before or behind the command's name.
    """

    @functools.wraps(command)
    def with_choice(
        *args: Any, team_dir: str | None, team: str | None, config: str | None, **kwargs: Any
    ) -> Any:
        context = click.get_current_context()
        choice = context.ensure_object(Choice)
        choice.team_dir = team_dir or choice.team_dir
        choice.team = team or choice.team
        choice.config = config or choice.config
        if choice.team_dir and choice.team:
            raise click.UsageError("--team and --team-dir name a team each: take one of them")
        return command(choice, *args, **kwargs)

    where = "The team directory  [default: $TEAMD_DIR, else .team/ here or above]."
    directory = click.option("--team-dir", metavar="DIR", help=where)
    name = click.option("--team", metavar="NAME", help="The team .teams/NAME/ of this project.")
    which = "The settings file  [default: the team's own team.toml, else the project's]."
    config = click.option("--config", metavar="FILE", help=which)
    return name(directory(config(with_choice)))  # type: ignore[return-value] # click keeps the callable


class Seconds(click.ParamType[float]):
    """A time limit in seconds: finite, and zero only where that means `now`."""

    name = "seconds"

    def __init__(self, *, zero: bool) -> None:
        self._zero = zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds, or fail with a sentence."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= LONGEST_SECONDS or (seconds == 0 and not self._zero):
            self.fail(f"{value!r} is no time; give up to {LONGEST_SECONDS} seconds", param, ctx)
        return seconds


version_option = click.version_option(
    package_name="teamd", message="%(prog)s %(version)s", help="Print the version."
)


def run(group: click.Command, name: str) -> NoReturn:
    """Run a command line; whatever goes wrong ends here as one line and an exit code."""
    _open_standard_streams()
    stdout = sys.stdout
    choice = Choice()
    try:
        status = group.main(prog_name=name, standalone_mode=False, obj=choice)
        sys.stdout.flush()
    except SystemExit as ended:
        # click's own: after a completion, or when whoever read our output has gone, as `head`
        # does; then it has put something quiet in the place of standard output.
        status = ended.code if sys.stdout is stdout else ExitCode.DONE
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- the edge: no traceback passes
        status = _explain(error, name, choice)
    sys.exit(status if isinstance(status, int) else ExitCode.DONE)


def _open_standard_streams() -> None:
    """Give what the shell closed (`>&-`) to /dev/null, as libc does for setuid programs.

    Otherwise the next file that is opened would take the number, and be written to as output.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(fd, True)
    os.close(fd)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 -- for good


def _explain(error: BaseException, name: str, choice: Choice) -> int:
    """Explain an error on standard error; return the exit code."""
    match error:
        case click.exceptions.Exit():
            code = int(error.exit_code)
        case click.ClickException():
            vars(error)["message"] = plain(error.message)  # for us to set, if not for subclasses
            error.show()
            code = ExitCode.USAGE
        case click.Abort() | KeyboardInterrupt():
            code = INTERRUPTED
        case BrokenPipeError():
            _give_up_output()  # whoever read it has gone, as `head` does
            code = ExitCode.DONE
        case OSError() if error.errno == errno.ENOSPC and error.filename is None:
            _give_up_output()  # only output is written without a name; of files the store tells
            but = f"; {choice.done} all the same" if choice.done else ""
            click.echo(f"{name}: the output cannot be written: {error.strerror}{but}", err=True)
            code = ExitCode.REFUSED
        case TeamError():
            click.echo(plain(f"{name}: {choice.addressed(error.for_person())}"), err=True)
            code = error.exit_code
        case _:
            code = _confess(error, name)
    return code


def _give_up_output() -> None:
    """Let what is still to be flushed go nowhere: Python would try again as it ends, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _confess(error: BaseException, name: str) -> int:
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exception(error)
    report = f"please report it with what {TRACEBACK_VARIABLE}=1 {name} … prints"
    what = f"{name}: internal error ({type(error).__name__}: {error}); {report}"
    click.echo(plain(what), err=True)
    return ExitCode.REFUSED
