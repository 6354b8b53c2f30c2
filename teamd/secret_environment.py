"""Recognizes environment variables that hold secrets, and passes them to another process.

`/proc/PID/environ` shows the environment with which a process was started, even after the process
changed it. So our processes start without these variables. They read them from a descriptor and
keep them only in memory.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote, urlsplit

from teamd.errors import TeamError

OPTION: Final = "--secrets-fd"  # of `teamd start`: the descriptor with the secrets
KEY_VARIABLE: Final = "ANTHROPIC_API_KEY"
TOKEN_VARIABLE: Final = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105 -- a variable's name
_HEADERS_VARIABLE: Final = "ANTHROPIC_CUSTOM_HEADERS"  # of the SDK, one header per line
_ADDRESSES: Final = re.compile(r"ANTHROPIC_BASE_URL|\w+_PROXY", re.IGNORECASE)
# Names from the SDK and common names in other programs: a process that can read the key of one
# service can read the keys of others.
_NAMES: Final = re.compile(
    r"(?:\w*_)?(?:API_?KEY|ACCESS_KEY|SECRET_KEY|SIGNING_KEY|PRIVATE_KEY|SECRET|TOKEN|PASSWORD"
    r"|PASSWD|PASSPHRASE)",
    re.IGNORECASE,
)
_PLAIN_HEADERS: Final = re.compile(
    r"anthropic-(?:beta|version)|accept(?:-\w+)?|content-type|user-agent", re.IGNORECASE
)


def split(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables without secrets, and those with secrets."""
    secret = {name: value for name, value in environment.items() if secrets_of(name, value)}
    plain = {name: value for name, value in environment.items() if name not in secret}
    return plain, secret


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """Return all secrets in an environment."""
    return [secret for name, value in environment.items() for secret in secrets_of(name, value)]


def secrets_of(name: str, value: str) -> list[str]:
    """Return the secrets in a variable, such as the password in a URL."""
    if _ADDRESSES.fullmatch(name):
        return secrets_in_address(value)
    if name == _HEADERS_VARIABLE:
        lines = (line.partition(":") for line in value.split("\n"))
        return secrets_in_headers({name.strip(): text.strip() for name, _, text in lines})
    # The path of a file with a secret is not a secret.
    return [value] if value and _NAMES.fullmatch(name) and not value.startswith("/") else []


def secrets_in_headers(headers: Mapping[str, str]) -> list[str]:
    """Return the secret header values, and also the key alone in values such as `Bearer KEY`."""
    values = [value for name, value in headers.items() if not _PLAIN_HEADERS.fullmatch(name)]
    keys = [value.partition(" ")[2].strip() for value in values]
    return [secret for secret in (*values, *keys) if secret]


def secrets_in_address(address: str) -> list[str]:
    """Return the password in a URL, both as written and with URL quoting decoded."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        password = parts.username if parts.password is None else parts.password  # or a bare token
    except ValueError:  # not a URL; the code that uses the variable reports it
        return []
    return [] if not password else list(dict.fromkeys((password, unquote(password))))


@contextmanager
def handed_over(environment: Mapping[str, str]) -> Iterator[int]:
    """Yield a descriptor that a child inherits and from which `receive` reads the secrets.

    Raises:
        TeamError: the secrets are too long for a pipe.
        OSError: no more descriptors can be opened.
    """
    data = json.dumps(split(environment)[1]).encode()
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)  # nothing reads the pipe yet
        with os.fdopen(writer, "wb", buffering=0) as file:
            if file.write(data) != len(data):
                size = f"{len(data)} bytes"
                raise TeamError(
                    f"the secrets in the environment are too long to be handed over ({size}); "
                    "unset those that teamd does not need"
                )
        yield reader
    finally:
        os.close(reader)


def receive(fd: int) -> dict[str, str]:
    """Read the secret variables from a descriptor, and close it.

    Raises:
        TeamError: the descriptor does not contain variables.
    """
    try:
        with os.fdopen(fd, "rb") as file:
            found: dict[str, str] = json.loads(file.read())
    except (OSError, ValueError) as error:
        raise TeamError(f"{OPTION} is an option of teamd's own; leave it out") from error
    return found
