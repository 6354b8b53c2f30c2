"""The settings that count: what the file says, as far as it may say it, see `trust`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from teamd.errors import SettingsError
from teamd.files.paths import SETTINGS_FILE
from teamd.messages import TEAMS_FOLDER
from teamd.settings.hosts import HostSettings
from teamd.settings.kinds import printable
from teamd.settings.load import parse, parse_leniently, read_file, sections_in
from teamd.settings.schema import HOSTS, TEAMMATE
from teamd.settings.trust import TrustStore
from teamd.settings.untrusted import confine, list_keys

if TYPE_CHECKING:
    from teamd.settings.schema import Settings
    from teamd.settings.untrusted import Loosened


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """A settings file that was read.

    Attributes:
        data: the bytes that were parsed; `None` where there is no such file.
        trusted: whether the person has confirmed them.
        loosened: what in them counts only then.
    """

    path: Path
    data: bytes | None
    trusted: bool
    loosened: tuple[Loosened, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Settings as they count, and where they come from.

    Attributes:
        files: those that were read, the team's own first.
    """

    settings: Settings
    files: tuple[SettingsFile, ...] = ()

    @property
    def shared(self) -> Reading:
        """The same for a team by name that has no file: what `[hosts]` says is of another team."""
        return replace(self, settings=replace(self.settings, hosts=HostSettings()))

    @property
    def waiting(self) -> tuple[Loosened, ...]:
        """The settings that do not count, since the person has not confirmed them."""
        return tuple(one for file in self.files if not file.trusted for one in file.loosened)

    def explain_waiting(self, config: str | Path | None) -> str:
        """Return the sentence about what waits, and for which command; empty if nothing does.

        Args:
            config: the file that `--config` names, if it does.
        """
        waiting = self.waiting
        if not waiting:
            return ""
        where = " and ".join(str(f.path) for f in self.files if f.loosened and not f.trusted)
        option = "" if config is None else f" --config {shlex.quote(str(config))}"
        return (
            f"not in force until you confirm {printable(where)} with `teamctl trust{option}`: "
            f"{list_keys(waiting)}"
        )


def load(path: Path, *, folder: Path) -> Settings:
    """Return the settings that count, see `read`."""
    return read(path, folder=folder).settings


def read(path: Path, *, folder: Path) -> Reading:
    """Return what the file says, and the defaults for what it does not say.

    What loosens is left out unless the person has confirmed the very bytes that are read here. The
    file of a team by name that says no more than who is in the team, and on which machines, leaves
    the rest to the project's.

    Args:
        path: the file; it may be missing.
        folder: what the workspace is relative to where there is no file.

    Raises:
        SettingsError: with every mistake, or why the file cannot be read.
    """
    data = read_file(path)
    # What a team by name does not say of its workspace is the project's, not its own folder.
    of_team = path.parent.parent.name == TEAMS_FOLDER
    default_folder = folder if of_team or data is None else None
    found = _judge(path, data, default_folder)
    if of_team and data is not None and set() < sections_in(data, path) <= {TEAMMATE, HOSTS}:
        rest = read(folder / SETTINGS_FILE, folder=folder)
        own = found.settings
        settings = replace(rest.settings, teammates=own.teammates, hosts=own.hosts)
        return Reading(settings=settings, files=found.files + rest.files)
    return found


def _judge(path: Path, data: bytes | None, default_folder: Path | None) -> Reading:
    """Return what counts of a file's bytes by what the person has confirmed of it."""
    found = parse(data or b"", path=path, default_folder=default_folder)
    default = parse(b"", path=path, default_folder=default_folder)
    last = TrustStore().find(path)
    trusted = last is not None and last.covers(path, data or b"")
    before = None if last is None else _parse_before(last.content, path, default)
    confined, loosened = confine(found, default, before)
    file = SettingsFile(path=path, data=data, trusted=trusted, loosened=loosened)
    return Reading(settings=found if trusted else confined, files=(file,))


def _parse_before(data: bytes, path: Path, default: Settings) -> Settings | None:
    """Return what the person has confirmed, as far as it can still be understood.

    A folder that it names may be gone: the rest bounds what is written now all the same.
    """
    try:
        found = parse_leniently(data, path=path, default_folder=default.team.workspace)
    except SettingsError:
        return None
    there = found.team.workspace.is_absolute()
    return found if there else replace(found, team=default.team)
