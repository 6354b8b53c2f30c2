"""From `team.toml` to `Settings`: the only module that opens and parses it."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from teamd.errors import SettingsError
from teamd.messages import TEAMS_FOLDER
from teamd.settings.checking import Checking
from teamd.settings.schema import TEAMMATE

if TYPE_CHECKING:
    from pathlib import Path

    from teamd.settings.schema import Settings

FILE_NAME: Final = "team.toml"
MAX_FILE_BYTES: Final = 1_048_576


def load(path: Path | None, *, folder: Path, required: bool = False) -> Settings:
    """Return what the file says, and the defaults for what it does not say.

    The file of a team by name that says nothing but who is in the team leaves the rest to the
    project's.

    Args:
        path: the file; `None` for none.
        folder: what the workspace is relative to where there is no file.
        required: a file that is not there is an error, because a person named it.

    Raises:
        SettingsError: with every mistake, or why the file cannot be read.
    """
    data = None if path is None else read_file(path)
    if path is not None and data is not None:
        # What a team by name does not say of its workspace is the project's, not its own folder.
        of_team = path.parent.parent.name == TEAMS_FOLDER
        found = parse(data, path=path, default_folder=folder if of_team else None)
        if of_team and _document(data, path).keys() == {TEAMMATE}:
            return replace(load(folder / FILE_NAME, folder=folder), teammates=found.teammates)
        return found
    missing = path or folder / FILE_NAME
    if required:
        raise SettingsError(missing, ["there is no such file; `teamctl init` writes one"])
    return _checked({}, path=missing, folder=folder, default_folder=folder)


def parse(data: bytes, *, path: Path, default_folder: Path | None = None) -> Settings:
    """Return what these bytes say; paths in them are relative to the folder of `path`.

    Args:
        data: of the file.
        path: its name, for the mistakes.
        default_folder: what paths that are not given are relative to, if not to that folder.

    Raises:
        SettingsError: with every mistake.
    """
    return _checked(
        _document(data, path),
        path=path,
        folder=path.parent,
        default_folder=default_folder or path.parent,
    )


def read_file(path: Path) -> bytes | None:
    """Return the file's bytes, but at most one more than `parse` takes; `None` if there is none.

    Raises:
        SettingsError: it cannot be read, is no regular file or belongs to another user.
    """
    try:
        with open(path, "rb", opener=_at_once) as file:
            _refuse_strange(os.fstat(file.fileno()), path)
            return file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(path, [f"it cannot be read: {error.strerror}"]) from error


def _at_once(path: str, flags: int) -> int:
    """Open without waiting: a pipe of that name may never have a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _refuse_strange(status: os.stat_result, path: Path) -> None:
    """Asked of the descriptor: the path may name another file a moment later."""
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError(path, ["it is no regular file; name a file of settings"])
    if status.st_uid != os.geteuid():
        raise SettingsError(
            path,
            [f"it belongs to another user (uid {status.st_uid}); copy it to a file of your own"],
        )


def _document(data: bytes, path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 -- 3 ms that only a file pays

    if len(data) > MAX_FILE_BYTES:
        raise SettingsError(path, [f"it is larger than {MAX_FILE_BYTES} bytes; shorten it"])
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(path, [f"it is not UTF-8 (at line {line}); save it as such"]) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(path, [f"it is not TOML: {error}"]) from error
    except ValueError as error:  # Python refuses to read a number of thousands of digits
        raise SettingsError(path, ["a number in it has too many digits; shorten it"]) from error
    except RecursionError as error:
        raise SettingsError(path, ["its lists or tables are nested too deeply"]) from error


def _checked(
    document: dict[str, Any], *, path: Path, folder: Path, default_folder: Path
) -> Settings:
    checking = Checking(folder, default_folder)
    settings = checking.settings(document)
    if checking.mistakes:
        raise SettingsError(path, checking.mistakes)
    return settings
