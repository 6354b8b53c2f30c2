"""The part that both programs share: which team is meant, and the edge where errors end."""

from __future__ import annotations

import errno
import gc
import os
import sys
from functools import partial
from pathlib import Path

from teamd.commandline import TEAM_NAMES, split_team_options
from teamd.dataclass import dataclass
from teamd.errors import ExitCode, SettingsError, TeamError, WrongUsage
from teamd.files import find_team
from teamd.files.paths import trust_folder
from teamd.terminal import echo, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Final, NoReturn, TypeAlias

    import click

    from teamd.commandline import Command
    from teamd.files.paths import TeamPaths
    from teamd.settings import Reading, Settings

    Find: TypeAlias = Callable[[Sequence[str]], tuple[Command, Sequence[str]] | None]
    Build: TypeAlias = Callable[[], click.Group]

TRACEBACK_VARIABLE: Final = "TEAMD_TRACEBACK"
_STANDARD_ERROR: Final = 2
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells say it
_AGAIN_SECONDS: Final = 0.01


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

    def take(self, said: dict[str, Any]) -> bool:
        """Take out of a command's values what its options say of the team.

        Returns:
            Whether that is one team at most; otherwise nothing has changed.
        """
        chosen = {name: said.pop(name) or getattr(self, name) for name in TEAM_NAMES}
        if chosen["team_dir"] and chosen["team"]:
            return False
        for name, value in chosen.items():
            setattr(self, name, value)
        return True

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

    def without_settings(self, team: TeamPaths) -> bool:
        """Return whether nothing but the defaults applies to a team, since there is no file."""
        if self.config is not None:
            return False
        try:
            team.settings.lstat()
        except FileNotFoundError:
            return True
        except OSError:  # for whoever reads it to tell
            pass
        return False

    def settings(self, team: TeamPaths) -> Settings:
        """Return the settings that apply to a team."""
        return self.read_settings(team).settings

    def read_settings(self, team: TeamPaths) -> Reading:
        """Return the settings that apply to a team, and which of them wait for trust."""
        from teamd.settings import read  # noqa: PLC0415 -- 15 ms, only where settings count

        file = self.settings_file(team)
        found = read(file, folder=team.home)
        return found.shared if file == team.project_settings != team.own_settings else found

    def waiting(self, team: TeamPaths) -> tuple[list[str], str]:
        """Return the settings that wait for trust, and the sentence that says so.

        Both are empty where nothing waits, or where the settings cannot be read at all.
        """
        if self.without_settings(team) and not _has_trusted():
            return [], ""
        try:
            found = self.read_settings(team)
        except TeamError:
            return [], ""
        keys = [one.key for one in found.waiting]
        return keys, team.addressed(found.explain_waiting(self.config))


def _has_trusted() -> bool:
    """Return whether the person has ever trusted a file; one that is gone may be missed."""
    folder = trust_folder()
    try:
        return folder is not None and folder.exists()
    except OSError:  # it may not be looked into
        return False


def run(name: str, find: Find, build: Build) -> NoReturn:
    """Run a command line; whatever goes wrong ends here as one line and an exit code.

    Args:
        name: of the program.
        find: returns the command that words begin with, and what follows it.
        build: makes click's group of all commands, for whatever is no plain call of one.
    """
    _open_standard_streams()
    stdout = sys.stdout
    before = sys.unraisablehook
    sys.unraisablehook = partial(_interrupt_again, before)
    choice = Choice()
    try:
        status = _run(name, find, build, choice)
        sys.stdout.flush()
    except SystemExit as ended:
        # click's own: after a completion, or when whoever read our output has gone, as `head`
        # does; then it has put something quiet in the place of standard output.
        status = ended.code if sys.stdout is stdout else ExitCode.DONE
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- the edge: no traceback passes
        status = _explain(error, name, choice)
    sys.unraisablehook = before
    # All that there is ends now: to look through it for garbage takes a tenth of a command.
    gc.freeze()
    sys.exit(status if isinstance(status, int) else ExitCode.DONE)


def _run(name: str, find: Find, build: Build, choice: Choice) -> object:
    """Run a plain call without click, any other with it; see `commandline`."""
    completing = f"_{name.upper()}_COMPLETE" in os.environ
    call = None if completing else _plain_call(find, choice)
    if call is not None:
        try:
            return call()
        except WrongUsage:
            pass  # nothing was done: click tells it with the usage of the command
        except (EOFError, KeyboardInterrupt) as error:
            echo(err=True)  # as click does: what a terminal shows of a Ctrl-C ends there
            raise KeyboardInterrupt from error
    return build().main(prog_name=name, standalone_mode=False, obj=choice)


def _plain_call(find: Find, choice: Choice) -> Callable[[], object] | None:
    """Return what a plain call does; `None` where the words are for click to understand."""
    before, words = split_team_options(sys.argv[1:])
    found = find(words)
    if found is None:
        return None
    command, rest = found
    values = command.read(rest)
    if values is None or not choice.take(before):
        return None
    if not command.for_team:
        return partial(command.run, **values)
    return partial(command.run, choice, **values) if choice.take(values) else None


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


def _interrupt_again(
    tell: Callable[[sys.UnraisableHookArgs], object], swallowed: sys.UnraisableHookArgs
) -> None:
    """Have a Ctrl-C that came in a finalizer come again: there Python prints it and goes on."""
    if not issubclass(swallowed.exc_type, KeyboardInterrupt):
        tell(swallowed)
        return
    import signal  # noqa: PLC0415 -- 4 ms, only for this

    # Not at once: here it would be swallowed as well. An alarm that meets another comes again too.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _explain(error: BaseException, name: str, choice: Choice) -> int:
    """Explain an error on standard error; return the exit code."""
    code: int | None
    match error:
        case KeyboardInterrupt():
            code = INTERRUPTED
        case BrokenPipeError():
            _give_up_output()  # whoever read it has gone, as `head` does
            code = ExitCode.DONE
        case OSError() if error.errno == errno.ENOSPC and error.filename is None:
            _give_up_output()  # only output is written without a name; of files the store tells
            but = f"; {choice.done} all the same" if choice.done else ""
            echo(f"{name}: the output cannot be written: {error.strerror}{but}", err=True)
            code = ExitCode.REFUSED
        case TeamError():
            echo(plain(f"{name}: {choice.addressed(error.for_person())}"), err=True)
            code = error.exit_code
        case _:
            code = _explain_clicks(error)
            code = _confess(error, name) if code is None else code
    return code


def _explain_clicks(error: BaseException) -> int | None:
    """Explain what click raises; returns the exit code, or `None` where it is not click's."""
    import click  # noqa: PLC0415 -- loaded already, if it is click's

    match error:
        case click.exceptions.Exit():
            return int(error.exit_code)
        case click.ClickException():
            vars(error)["message"] = plain(error.message)  # for us to set, if not for subclasses
            error.show()
            return ExitCode.USAGE
        case click.Abort():
            return INTERRUPTED
    return None


def _give_up_output() -> None:
    """Let what is still to be flushed go nowhere: Python would try again as it ends, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _confess(error: BaseException, name: str) -> int:
    if os.environ.get(TRACEBACK_VARIABLE):
        import traceback  # noqa: PLC0415 -- only for whoever mends us

        traceback.print_exception(error)
    report = f"please report it with what {TRACEBACK_VARIABLE}=1 {name} … prints"
    what = f"{name}: internal error ({type(error).__name__}: {error}); {report}"
    echo(plain(what), err=True)
    return ExitCode.REFUSED
