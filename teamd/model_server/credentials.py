"""The key: it comes from a command, systemd's credentials, or the SDK's environment variables."""

from __future__ import annotations

import hashlib
import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Final

from teamd.errors import TeamError
from teamd.programs import capture
from teamd.secret_environment import KEY_VARIABLE, TOKEN_VARIABLE, secrets_in

CREDENTIAL: Final = KEY_VARIABLE  # the name in LoadCredential=, and of the variable
COMMAND_TIMEOUT_SECONDS: Final = 30.0
_OWN: Final = frozenset({KEY_VARIABLE, TOKEN_VARIABLE})
RESTART: Final = "teamd restart"  # the command that the sentences below name
MISSING: Final = (
    "no key for the model: set ANTHROPIC_API_KEY (or [model] key_command in team.toml) "
    "and run `teamd restart`"
)
IMPLAUSIBLE: Final = (
    "the key for the model cannot be one: it holds a space, a line end or a character outside "
    "ASCII; correct ANTHROPIC_API_KEY (or [model] key_command in team.toml) and run `teamd restart`"
)


class KeyCommandError(TeamError):
    """`key_command` did not print a key, or systemd's credential file does not contain one."""


async def find_key(
    key_command: str | None, *, timeout_seconds: float = COMMAND_TIMEOUT_SECONDS
) -> str | None:
    """Return the key that settings or systemd give; `None` leaves it to the environment.

    Raises:
        KeyCommandError: the command failed, took too long or printed nothing; the file of
            systemd cannot be read.
    """
    if key_command is not None:
        return await _ask(key_command, timeout_seconds)
    return _from_systemd()


def at_hand() -> bool:
    """Return whether systemd or the environment holds a key, without asking any server."""
    with suppress(KeyCommandError):  # the first use of the key reports it
        if _from_systemd() is not None:
            return True
    return any(os.environ.get(name) for name in _OWN)


def in_environment() -> str | None:
    """Return the key that the SDK finds in the environment, if there is one."""
    return os.environ.get(KEY_VARIABLE) or os.environ.get(TOKEN_VARIABLE) or None


def known_secrets() -> list[str]:
    """Return the secrets that this process was given: in its environment, or by systemd."""
    secrets = secrets_in(os.environ)
    with suppress(KeyCommandError):  # the first use of the key reports it
        if (key := _from_systemd()) is not None:
            secrets.append(key)
    return secrets


def digest_of(key: str, salt: str) -> str:
    """Return a digest by which two keys can be compared, and which reveals neither."""
    return hashlib.sha256(f"{salt}\n{key}".encode(errors="replace")).hexdigest()[:16]


def plausible(key: str) -> bool:
    """Return whether a header can carry the key: ASCII without white space or control codes."""
    return key.isascii() and key.isprintable() and " " not in key


def _from_systemd() -> str | None:
    """The key that `LoadCredential=` put into a folder of its own, see systemd.exec(5)."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder or not (file := Path(folder, CREDENTIAL)).is_file():
        return None
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError) as error:
        raise KeyCommandError(f"{file} of LoadCredential= cannot be read: {error}") from error


async def _ask(key_command: str, timeout_seconds: float) -> str:
    try:
        argv = shlex.split(key_command)
        if not argv:
            raise KeyCommandError(f"key_command {key_command!r} failed: it names no program")
        # It may need the person's secrets: it gets the environment, except for a key.
        env = {key: value for key, value in os.environ.items() if key not in _OWN}
        ended = await capture(argv, timeout_seconds=timeout_seconds, env=env, bound=True)
    except (OSError, ValueError, TimeoutError) as error:
        raise KeyCommandError(f"key_command {key_command!r} failed: {error}") from error
    if ended.status != 0:
        # Its output may be part of a key, so the error has only the status.
        raise KeyCommandError(
            f"key_command {key_command!r} exited with {ended.status}; run it by hand to see why"
        )
    key = ended.stdout.decode("utf-8", "replace").strip()
    if not key:
        raise KeyCommandError(f"key_command {key_command!r} printed nothing; it must print the key")
    return key
