"""The model: is there a key, does the server take it, does it know the model."""

from __future__ import annotations

import asyncio
import json
import re
from http.client import HTTPException
from os import environ
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from teamctl.doctor import Finding, Level
from teamd import credentials
from teamd.errors import TeamError
from teamd.secret_environment import KEY_VARIABLE, TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.settings import Settings

_DEFAULT_URL: Final = "https://api.anthropic.com"
_API_VERSION: Final = "2026-10-21"
_ANSWER_SECONDS: Final = 10.0
_LOGIN: Final = re.compile(r"//[^/@]*@")


def check_model(settings: Settings) -> Iterator[Finding]:
    """Look for a key and ask the server once about the model; costs no tokens."""
    if settings.model.script is not None:
        yield Finding(Level.OK, f"the model's words come from {settings.model.script}")
        return
    try:
        key = asyncio.run(credentials.find_key(settings.model.key_command))
    except TeamError as error:
        yield Finding(Level.FAIL, str(error), "mend [model] key_command in team.toml")
        return
    key = key or environ.get(KEY_VARIABLE) or environ.get(TOKEN_VARIABLE)
    if not key:
        remedy = "export ANTHROPIC_API_KEY=…, or set [model] key_command in team.toml"
        yield Finding(Level.FAIL, "there is no key for the model in the environment", remedy)
        return
    yield Finding(Level.OK, "there is a key")
    yield _asked(settings, key)


def _asked(settings: Settings, key: str) -> Finding:
    base = settings.model.base_url or environ.get("ANTHROPIC_BASE_URL") or _DEFAULT_URL
    base = _LOGIN.sub("//", base)  # it may hold a proxy's password, which is not to be shown
    url = f"{base.rstrip('/')}/v1/models/{quote(settings.model.name, safe='')}"
    headers = {"Authorization": f"Bearer {key}", "anthropic-version": _API_VERSION}
    request = Request(url, headers={**headers, **settings.model.headers})  # noqa: S310 -- http(s) only, by the settings
    try:
        with urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 -- the same
            found: Any = json.load(answer)
    except HTTPError as error:
        error.close()
        return _status(error.code, base, settings.model.name)
    except (URLError, HTTPException, TimeoutError, OSError) as error:
        what = f"{base} does not answer: {getattr(error, 'reason', error)}"
        remedy = "check the network, and [model] base_url or ANTHROPIC_BASE_URL"
        return Finding(Level.FAIL, what, remedy)
    except ValueError:
        found = None
    if isinstance(found, dict) and "id" in found:
        return Finding(Level.OK, f"{base} takes the key and knows {settings.model.name}")
    return Finding(Level.NOTE, f"{base} answers, and does not tell which models it knows")


def _status(status: int, base: str, name: str) -> Finding:
    match status:
        case 401 | 403:
            remedy = "check ANTHROPIC_API_KEY or [model] key_command"
            return Finding(Level.FAIL, f"{base} refuses the key ({status})", remedy)
        case 404:
            what = f"{base} knows no model {name!r}, or does not tell"
            return Finding(Level.NOTE, what, "check [model] name in team.toml")
    return Finding(Level.NOTE, f"{base} answered {status}", "try again later")
