"""The pages of models: what `GET /v1/models/NAME` of a server answered, kept for a day.

One file for each model and server: a teammate or `teamd start`, whichever asks first, saves the
others the request.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from teamd.errors import StoreError
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.model_server.connection import make_tls
from teamd.model_server.facts import ModelFacts

if TYPE_CHECKING:
    import httpx2


API_VERSION: Final = "2026-10-21"
KEPT_SECONDS: Final = 86_400.0
_MOMENT_SECONDS: Final = 1.0
_MOST_BYTES: Final = 1 << 16  # of a page; one of the API has 3,000
_MOST_LIST_BYTES: Final = 1 << 20
_DAMAGED: Final = (ValueError, KeyError, TypeError, RecursionError)


def is_local(address: str) -> bool:
    """Return whether a server is on this machine or its network, so that its calls are free."""
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:  # `check_address` names the mistake
        return False
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:  # a name
        return "." not in host or host.endswith((".local", ".lan", ".internal"))


def fetch(
    server: str, key: str, headers: Mapping[str, str], model: str | None, *, timeout_seconds: float
) -> tuple[httpx2.Response, bytes]:
    """Ask a server for the page of a model, or for its list of models if `model` is `None`.

    The SDK is not used: it takes a second to load. The request uses the proxy and the
    certificates of teammates. It follows no redirect, which might take the key elsewhere.

    Returns:
        The response, and at most a megabyte of its body.

    Raises:
        OSError, httpx2.HTTPError: the server cannot be reached.
        httpx2.InvalidURL, ValueError: a header or the address is invalid.
    """
    import httpx2  # noqa: PLC0415

    if not server.startswith(("http://", "https://")):
        raise ValueError(f"{server!r} is not the address of a server")
    own = {"Authorization": f"Bearer {key}", "anthropic-version": API_VERSION}
    which = "?limit=1000" if model is None else f"/{quote(model, safe='')}"
    url = f"{server}/v1/models{which}"
    with (
        httpx2.Client(verify=make_tls(), timeout=timeout_seconds) as client,
        client.stream("GET", url, headers={**own, **headers}) as answer,
    ):
        return answer, next(answer.iter_bytes(_MOST_LIST_BYTES), b"")


def begin_fetch(
    paths: TeamPaths, server: str, models: Iterable[str], key: str, headers: Mapping[str, str]
) -> Callable[[], None]:
    """Begin to fetch the pages that are not stored yet.

    Args:
        paths: the team's.
        server: its address, see `connection.server_address`.
        models: their names.
        key: for the server.
        headers: sent with each request.

    Returns:
        A function that waits a moment for the answers, and stores those that have arrived.
    """
    missing = [model for model in models if read_kept(paths, server, model) is None]
    found: dict[str, Any] = {}

    def fetch_all() -> None:
        with suppress(MemoryError, ImportError):  # too little memory, which the start names
            for model in missing:
                found[model] = _fetch_page(server, model, key, headers)

    # A daemon: a name server that does not answer must not keep the process.
    thread = threading.Thread(target=fetch_all, daemon=True)
    thread.start()

    def wait() -> None:
        thread.join(_MOMENT_SECONDS)
        for model, page in dict(found).items():
            if page is not None:
                keep(paths, server, model, page)

    return wait


def _fetch_page(server: str, model: str, key: str, headers: Mapping[str, str]) -> Any:
    import httpx2  # noqa: PLC0415 -- see `fetch`

    try:
        answer, page = fetch(server, key, headers, model, timeout_seconds=_MOMENT_SECONDS)
        return json.loads(page) if answer.is_success else None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RecursionError):
        return None  # a teammate asks again


def warn_of_retirements(paths: TeamPaths, server: str, models: Iterable[str]) -> list[str]:
    """Return a sentence for each model that retires soon, if its page is stored."""
    now = datetime.now(UTC)
    kept = (read_kept(paths, server, model) for model in models)
    return [said for one in kept if one is not None and (said := one.warn_of_retirement(now))]


def read_kept(paths: TeamPaths, server: str, model: str) -> ModelFacts | None:
    """Return the facts of a page that was stored within the last day, if there is one."""
    try:
        found = json.loads(files.read(_path(paths, server, model)) or b"null")
        if not 0 <= time.time() - found["asked"] < KEPT_SECONDS:
            return None
        return ModelFacts.read(model, found["page"])
    except (StoreError, *_DAMAGED):  # it is asked for again
        return None


def keep(paths: TeamPaths, server: str, model: str, page: Any) -> ModelFacts:
    """Store a page for later readers; return its facts.

    Args:
        paths: the team's.
        server: its address, see `connection.server_address`.
        model: the name that it was asked for.
        page: the answer as JSON; anything but an object gives no facts.
    """
    page = page if isinstance(page, dict) else {}
    facts = ModelFacts.read(model, page)
    whole = {"server": server, "model": model, "asked": time.time(), "page": page}
    if len(data := json.dumps(whole).encode()) > _MOST_BYTES:
        data = json.dumps({**whole, "page": {}}).encode()
        facts = ModelFacts.read(model, {})
    with suppress(StoreError):  # then it is asked for again
        path = _path(paths, server, model)
        directories.make_private_directory(path.parent)
        files.replace(path, data, durable=False)
    return facts


def _path(paths: TeamPaths, server: str, model: str) -> Path:
    digest = hashlib.sha256(f"{server}\n{model}".encode(errors="replace")).hexdigest()
    return paths.models / f"{digest[:32]}.json"
