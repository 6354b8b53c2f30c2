"""From the bytes of `team.toml` to `Settings`: the only module that opens and parses it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from teamd.errors import SettingsError
from teamd.settings.validation import Validation

if TYPE_CHECKING:
    from teamd.settings.schema import Settings

MAX_FILE_BYTES: Final = 1_048_576


def parse(data: bytes, *, path: Path, default_folder: Path | None = None) -> Settings:
    """Return what these bytes say; paths in them are relative to the folder of `path`.

    Args:
        data: of the file.
        path: its name, for the mistakes.
        default_folder: what paths that are not given are relative to, if not to that folder.

    Raises:
        SettingsError: with every mistake.
    """
    validation = Validation(path.parent, default_folder or path.parent)
    settings = validation.settings(_document(data, path))
    if validation.mistakes:
        raise SettingsError(path, validation.mistakes)
    return settings


def parse_leniently(data: bytes, *, path: Path, default_folder: Path | None = None) -> Settings:
    """Return what can be understood of these bytes, and the defaults for the rest.

    Raises:
        SettingsError: nothing can.
    """
    validation = Validation(path.parent, default_folder or path.parent)
    return validation.settings(_document(data, path))


def sections_in(data: bytes, path: Path) -> set[str]:
    """Return the names of the sections and tables in these bytes."""
    return set(_document(data, path))


def read_file(path: Path) -> bytes | None:
    """Return the file's bytes, but at most one more than `parse` takes; `None` if there is none.

    Raises:
        SettingsError: it cannot be read, is no regular file or belongs to another user.
    """
    try:
        with open(path, "rb", opener=_at_once) as file:
            _refuse_strange(os.fstat(file.fileno()), path)
            return file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        if not path.is_symlink():
            return None
        why = f"it is a link to {path.readlink()}, which does not exist; mend or remove the link"
        raise SettingsError(path, [why]) from error
    except IsADirectoryError as error:
        if not any(path.iterdir()):  # the placeholder of a sandbox: there is no file
            return None
        raise SettingsError(path, ["it is a folder; name a file of settings"]) from error
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
        why = f"it belongs to another user (uid {status.st_uid}); copy it to a file of your own"
        raise SettingsError(path, [why])


def _document(data: bytes, path: Path) -> dict[str, Any]:
    if not data:
        return {}
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
