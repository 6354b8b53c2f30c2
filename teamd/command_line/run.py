"""The team and settings of one call of `teamd` or `teamctl`, and its top-level error handler."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from teamd.command_line import documents, terminal
from teamd.command_line.terminal import plain
from teamd.errors import ExitCode, SettingsError, TeamError, explain_limit
from teamd.files import find_team
from teamd.files.paths import TeamPaths, trust_folder

if TYPE_CHECKING:
    from teamd.settings import Reading, Settings

TRACEBACK_VARIABLE: Final = "TEAMD_TRACEBACK"
_STANDARD_ERROR: Final = 2
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells say it
_AGAIN_SECONDS: Final = 0.01


@dataclass(slots=True)
class TeamOptions:
    """The team and settings of one call of a command.

    Attributes:
        team_dir: the team directory; `None` for the team of the current folder.
        team: the team's name; `None` likewise.
        config: the settings file; `None` for the team's own.
        done: a sentence about a finished action, printed if the output cannot be written.
    """

    team_dir: str | None = None
    team: str | None = None
    config: str | None = None
    done: str = ""

    def take(self, *, team: str | None, team_dir: str | None, config: str | None) -> None:
        """Take the values of a command's options; an option that is not given keeps its value.

        Raises:
            click.UsageError: two teams are named; nothing has changed.
        """
        team, team_dir = team or self.team, team_dir or self.team_dir
        if team and team_dir:
            raise click.UsageError("--team and --team-dir each name a team; use only one of them")
        self.team, self.team_dir, self.config = team, team_dir, config or self.config

    def add_team_option(self, text: str) -> str:
        """Return a sentence with `--team` added to the commands in it, if they need it."""
        try:
            chosen = find_team.named(self.team_dir, self.team)
        except TeamError:  # no team can have that name
            return text
        return text if chosen is None else chosen.add_team_option(text)

    def existing(self) -> TeamPaths:
        """Return the team, which must exist, as must a settings file that is named."""
        self._check_config()
        return find_team.existing(self.team_dir, self.team)

    def existing_or_here(self) -> TeamPaths:
        """Return the team, or the place for a new one; a settings file that is named must exist."""
        self._check_config()
        return find_team.existing_or_here(self.team_dir, self.team)

    def _check_config(self) -> None:
        if self.config and not os.path.lexists(self.config):  # reading a dangling link reports it
            why = "there is no such file; `teamctl init` writes one"
            raise SettingsError(Path(self.config), [why])

    def settings_file(self, team: TeamPaths) -> Path:
        """Return the file whose settings apply; it may be missing unless `--config` names it."""
        if self.config is None:
            return team.settings
        file = Path(self.config)
        return file.parent.resolve() / file.name

    def without_settings(self, team: TeamPaths) -> bool:
        """Return whether a team has no settings file, so that all defaults apply."""
        if self.config is not None:
            return False
        try:
            team.settings.lstat()
        except FileNotFoundError:
            return True
        except OSError:  # reading the file reports it
            pass
        return False

    def settings(self, team: TeamPaths) -> Settings:
        """Return the settings that apply to a team."""
        return self.read_settings(team).settings

    def read_settings(self, team: TeamPaths) -> Reading:
        """Return the settings that apply to a team, and those that wait for trust."""
        from teamd.settings import read  # noqa: PLC0415 -- 15 ms, only where settings count

        file = self.settings_file(team)
        if os.path.isdir(file):  # noqa: PTH112 -- false where it may not be looked at
            _refuse_folder(file, team)
        found = read(file, folder=team.home)
        return found.shared if file == team.project_settings != team.own_settings else found

    def waiting(self, team: TeamPaths) -> tuple[list[str], str]:
        """Return the settings that wait for trust, and the sentence that says so.

        Both are empty if no setting waits, or if the settings cannot be read.
        """
        if self.without_settings(team) and not _has_trusted():
            return [], ""
        try:
            found = self.read_settings(team)
        except TeamError:
            return [], ""
        keys = [one.key for one in found.waiting]
        return keys, team.add_team_option(found.explain_waiting(self.config))


def _refuse_folder(file: Path, team: TeamPaths) -> None:
    """Refuse a folder in place of a settings file, unless a sandbox created it."""
    from teamd.sandbox.build import placeholders_of  # noqa: PLC0415 -- only for this mistake

    if not placeholders_of(team, file.parent).made(file):
        raise SettingsError(file, ["it is a folder; remove it, or name a file of settings"])


def _has_trusted() -> bool:
    """Return whether the person has ever trusted a file, which may be missing now."""
    folder = trust_folder()
    try:
        return folder is not None and folder.exists()
    except OSError:  # no permission to look
        return False


def run(name: str, program: click.Group) -> NoReturn:
    """Run a command line; each error becomes one line and an exit code.

    Args:
        name: the program's name.
        program: its commands.
    """
    _open_standard_streams()
    stdout = sys.stdout
    before = sys.unraisablehook
    sys.unraisablehook = partial(_interrupt_again, before)
    choice = TeamOptions()
    color = False if os.environ.get("TERM") == "dumb" else None  # None: styles on a terminal only
    try:
        status = program.main(prog_name=name, standalone_mode=False, obj=choice, color=color)
        sys.stdout.flush()
    except SystemExit as ended:
        # click exits after a completion, and when the reader of our output has gone, as `head`
        # does; then it has replaced standard output.
        status = ended.code if sys.stdout is stdout else ExitCode.DONE
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- the edge: no traceback passes
        status = _explain(error, name, choice)
    sys.unraisablehook = before
    sys.exit(status if isinstance(status, int) else ExitCode.DONE)


def _open_standard_streams() -> None:
    """Open standard streams that the shell closed (`>&-`) as /dev/null, like libc for setuid.

    Otherwise the next file that is opened would get the number, and receive the output.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(fd, True)
    os.close(fd)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 -- for good


def _interrupt_again(
    tell: Callable[[sys.UnraisableHookArgs], object], swallowed: sys.UnraisableHookArgs
) -> None:
    """Repeat a Ctrl-C that came in a finalizer, where Python would only print it."""
    if not issubclass(swallowed.exc_type, KeyboardInterrupt):
        tell(swallowed)
        return
    # Later, since it would be swallowed here as well. An alarm in another finalizer repeats too.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _explain(error: BaseException, name: str, choice: TeamOptions) -> int:
    """Explain an error on standard error; return the exit code."""
    match error:
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case BrokenPipeError():
            _give_up_output()  # the reader closed the pipe, as `head` does
            return ExitCode.DONE
        case OSError() if error.errno == errno.ENOSPC and error.filename is None:
            _give_up_output()  # only standard output is written without a name
            but = f"; {choice.done} all the same" if choice.done else ""
            _print_error(name, f"the output cannot be written: {error.strerror}{but}")
            return ExitCode.REFUSED
        case TeamError():
            _print_error(name, choice.add_team_option(error.for_person()))
            return error.exit_code
        case click.ClickException():
            # declared final, for subclasses
            vars(error)["message"] = plain(choice.add_team_option(error.message))
            if documents.json_is_asked():
                documents.print_error(error.format_message())
            else:
                error.show()
            return ExitCode.USAGE
    return _explain_other(error, name)


def _give_up_output() -> None:
    """Discard unflushed output: otherwise Python would try to write it at exit, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain_other(error: BaseException, name: str) -> int:
    """Name the machine's limit that caused an error, or else ask for a bug report."""
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exception(error)
    if (limit := explain_limit(error)) is not None:
        _print_error(name, limit)
        return ExitCode.REFUSED
    report = f"please report it with what {TRACEBACK_VARIABLE}=1 {name} … prints"
    _print_error(name, f"internal error ({type(error).__name__}: {error}); {report}")
    return ExitCode.REFUSED


def _print_error(name: str, sentence: str) -> None:
    if documents.json_is_asked():
        documents.print_error(sentence)
    else:
        terminal.echo(f"{name}: {sentence}", err=True)
