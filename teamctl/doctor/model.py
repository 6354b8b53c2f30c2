"""The model's server: is there a key, does the server take it, does it know the model."""

from __future__ import annotations

import asyncio
import json
import os
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from teamctl.doctor import Finding, Level
from teamd import credentials
from teamd.errors import TeamError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.settings import Settings

DEFAULT_URL: Final = "https://api.anthropic.com"
API_VERSION: Final = "2026-10-21"
_SECONDS: Final = 10.0
_REFUSED: Final = (401, 403)
_UNKNOWN: Final = 404


def model(settings: Settings) -> Iterator[Finding]:
    """Look for a key and ask the server once about the model; costs no tokens."""
    if settings.model.script is not None:
        yield Finding(Level.OK, f"the model's words come from {settings.model.script}")
        return
    try:
        key = asyncio.run(credentials.find_key(settings.model.key_command))
    except TeamError as error:
        yield Finding(Level.FAIL, str(error), "mend [model] key_command in team.toml")
        return
    key = key or _from_environment()
    if key is None:
        yield Finding(
            Level.FAIL,
            "there is no key for the model in the environment",
            "export ANTHROPIC_API_KEY=…, or set [model] key_command in team.toml",
        )
        return
    yield Finding(Level.OK, "there is a key")
    yield _asked(settings, key)


def _from_environment() -> str | None:
    names = (credentials.CREDENTIAL, credentials.TOKEN_VARIABLE)
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _asked(settings: Settings, key: str) -> Finding:
    base = settings.model.base_url or os.environ.get("ANTHROPIC_BASE_URL") or DEFAULT_URL
    url = f"{base.rstrip('/')}/v1/models/{quote(settings.model.name, safe='')}"
    headers = {"Authorization": f"Bearer {key}", "anthropic-version": API_VERSION}
    request = Request(url, headers={**headers, **settings.model.headers})  # noqa: S310 -- http(s) only, by the settings
    try:
        with urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 -- the same
            found: Any = json.load(answer)
        known = isinstance(found, dict) and "id" in found
    except HTTPError as error:
        error.close()
        return _status(error.code, base, settings.model.name)
    except (URLError, HTTPException, TimeoutError, OSError) as error:
        reason = getattr(error, "reason", error)
        return Finding(
            Level.FAIL,
            f"{base} does not answer: {reason}",
            "check the network, and [model] base_url or ANTHROPIC_BASE_URL",
        )
    except ValueError:
        known = False
    if known:
        return Finding(Level.OK, f"{base} takes the key and knows {settings.model.name}")
    return Finding(Level.NOTE, f"{base} answers, and does not tell which models it knows")


def _status(status: int, base: str, name: str) -> Finding:
    if status in _REFUSED:
        return Finding(
            Level.FAIL,
            f"{base} refuses the key ({status})",
            "check ANTHROPIC_API_KEY or [model] key_command",
        )
    if status == _UNKNOWN:
        return Finding(
            Level.NOTE,
            f"{base} knows no model {name!r}, or does not tell",
            "check [model] name in team.toml",
        )
    return Finding(Level.NOTE, f"{base} answered {status}", "try again later")
