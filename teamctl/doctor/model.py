"""The checks of the model: the key, the server, and the name of the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import httpx2

from teamctl.doctor import Finding, Level
from teamd import control
from teamd.budget.accounts import Terms
from teamd.budget.prices import find_small_limits
from teamd.errors import TeamError
from teamd.files import pidfile
from teamd.files.paths import TeamPaths
from teamd.messages import new_id
from teamd.model_server import connection, credentials
from teamd.model_server.connection import BASE_URL_VARIABLE, DEFAULT_URL, server_address
from teamd.model_server.credentials import digest_of
from teamd.model_server.facts import ModelFacts
from teamd.model_server.pages import fetch

if TYPE_CHECKING:
    from teamd.settings import Settings

_ANSWER_SECONDS: Final = 10.0
_MOST_SHOWN: Final = 10  # names of models in one line
_NO_PAGE: Final = (404, 405)  # for one model, because many servers offer only the list


def check_model(settings: Settings, team: TeamPaths | None) -> Iterator[Finding]:
    """Look for a key and ask the server once about the model; uses no tokens.

    Args:
        settings: the settings in force here.
        team: the team whose running teamd is asked about the key that it got at its start.
    """
    if settings.model.script is not None:
        yield Finding(Level.OK, f"the model's words come from {settings.model.script}")
        return
    small = find_small_limits(Terms.of(settings), settings.models_named, settings.model.max_tokens)
    yield from (Finding.of(Level.FAIL, one) for one in small)
    base = server_address(settings.model.base_url)
    yield from (mistakes := [*_mistakes(settings)])
    running = _ask_teamd(team, base)
    yield from running.findings
    try:
        key = asyncio.run(credentials.find_key(settings.model.key_command))
    except TeamError as error:
        yield Finding(Level.FAIL, str(error), "mend [model] key_command in team.toml")
        return
    key = key or credentials.in_environment()
    if not key and running.has_key:
        what = "there is no key here, so whether the server takes that of teamd is not looked at"
        yield Finding(Level.NOTE, what, "`teamctl team` shows it once a teammate has called")
        return
    if not key:
        remedy = "export ANTHROPIC_API_KEY=…, or set [model] key_command in team.toml"
        yield Finding(Level.FAIL, "there is no key for the model in the environment", remedy)
        return
    if not credentials.plausible(key):  # an error of the client would print it
        yield Finding.of(Level.FAIL, credentials.IMPLAUSIBLE)
        return
    yield Finding(Level.OK, "there is a key")
    if running.key_digest not in (None, digest_of(key, running.salt)):
        what = "teamd runs with another key than the one here"
        yield Finding(Level.NOTE, what, "`teamd restart` takes the one here")
    if not mistakes:
        yield from _asked(settings, key, base)


def _mistakes(settings: Settings) -> Iterator[Finding]:
    for mistake in connection.mistakes(settings.model.base_url):
        yield Finding.of(Level.FAIL, mistake)


@dataclass(frozen=True, slots=True)
class _Running:
    """The answer of a running teamd about its key and model; empty without a teamd.

    Attributes:
        key_digest: the digest of its key and the salt; `None` if it did not answer.
    """

    findings: tuple[Finding, ...] = ()
    has_key: bool = False
    key_digest: str | None = None
    salt: str = ""


def _ask_teamd(team: TeamPaths | None, base: str) -> _Running:
    """Ask the running teamd, whose environment may differ from this one."""
    if team is None or pidfile.supervisor(team) is None:
        return _Running()
    salt = new_id()
    try:
        asked = {"salt": salt}
        said = control.ask(
            team, "model", asked, timeout_seconds=_ANSWER_SECONDS
        ).raise_unless_done()
    except TeamError as error:
        what = f"teamd was asked about key and model, and failed: {error}"
        return _Running((Finding(Level.NOTE, what, "`teamctl logs teamd` shows what it does"),))
    facts = said.data
    mark = Level.OK if facts["key"] else Level.FAIL
    remedy = "" if facts["key"] else "see `teamctl help models`, then `teamd restart`"
    found = [Finding(mark, said.text, remedy)]
    if (theirs := facts["base_url"] or DEFAULT_URL) != base:
        what = f"teamd asks {theirs}, and the settings and the environment here say {base}"
        found.append(Finding(Level.NOTE, what, "`teamd restart` takes what is here"))
    return _Running(tuple(found), bool(facts["key"]), facts["key_digest"], salt)


def _asked(settings: Settings, key: str, base: str) -> Iterator[Finding]:
    """Ask the server for the model, or for its list of models if it has no page per model."""
    name = settings.model.name
    ask = partial(fetch, base, key, settings.model.headers, timeout_seconds=_ANSWER_SECONDS)
    try:
        answer, said = ask(name)
        if answer.status_code in _NO_PAGE:
            answer, said = ask(None)
            listed = answer.is_success
            yield _listed(_parse(said), base, name) if listed else _status(answer, base, name)
            return
    # A failing proxy or certificate, and a header that no request can carry.
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        yield _unreachable(base, str(error) or type(error).__name__)
        return
    if not answer.is_success:
        yield _status(answer, base, name)
        return
    found = _parse(said)
    if not isinstance(found, dict) or "id" not in found:
        yield Finding(Level.NOTE, f"{base} answers, and does not tell which models it knows")
        return
    yield Finding(Level.OK, f"{base} takes the key and knows {name}")
    if warning := ModelFacts.read(name, found).warn_of_retirement(datetime.now(UTC)):
        yield Finding.of(Level.NOTE, warning)


def _parse(said: bytes) -> Any:
    """Return the JSON; `None` for anything else."""
    with suppress(ValueError, RecursionError):
        return json.loads(said)
    return None


def _listed(found: Any, base: str, name: str) -> Finding:
    """Report whether a list of models contains the model."""
    data = found.get("data") if isinstance(found, dict) else None
    entries = data if isinstance(data, list) else []
    names = [str(one["id"]) for one in entries if isinstance(one, dict) and "id" in one]
    if {name, f"{name}:latest"} & set(names):  # Ollama's default tag, which may be omitted
        return Finding(Level.OK, f"{base} takes the key and lists {name}")
    if not names:
        return _unknown(base, name)
    shown = ", ".join(names[:_MOST_SHOWN]) + (", …" if len(names) > _MOST_SHOWN else "")
    what = f"{base} knows no model {name!r}; it lists {shown}"
    return Finding(Level.NOTE, what, "check [model] name in team.toml")


def _unknown(base: str, name: str) -> Finding:
    what = f"{base} knows no model {name!r}, or does not tell"
    return Finding(Level.NOTE, what, "check [model] name in team.toml")


def _unreachable(base: str, why: str) -> Finding:
    remedy = "check the network, and [model] base_url or ANTHROPIC_BASE_URL"
    proxy = connection.find_proxy(base)
    if connection.is_untrusted(why):
        remedy = connection.certificate_remedy()
    elif proxy is not None:
        remedy = f"check the proxy: {proxy.name} is {proxy.value}"
    return Finding(Level.FAIL, f"{base} does not answer: {why}", remedy)


def _status(answer: httpx2.Response, base: str, name: str) -> Finding:
    status = answer.status_code
    match status:
        case 401 | 403:
            remedy = "check ANTHROPIC_API_KEY or [model] key_command"
            return Finding(Level.FAIL, f"{base} refuses the key ({status})", remedy)
        case 402:
            remedy = "add credit to the account, or raise its limit"
            return Finding(Level.FAIL, f"{base} refuses the account ({status})", remedy)
        case 404 | 405:
            return _unknown(base, name)
        case 301 | 302 | 303 | 307 | 308:
            target = urlsplit(urljoin(base, answer.headers.get("location", "")))
            what = f"{base} redirects to {target.scheme}://{target.netloc.rpartition('@')[2]}"
            remedy = f"give the address that answers in [model] base_url or {BASE_URL_VARIABLE}"
            return Finding(Level.FAIL, what, remedy)
    return Finding(Level.NOTE, f"{base} answered {status}", "try again later")
