"""The pages of models: what `GET /v1/models/NAME` of a server answered, kept for a day.

One file for each model and server: whoever asks first, a teammate, `teamd start` or
`teamctl doctor`, spares the others the question.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from os import environ

from teamd.credentials import BASE_URL_VARIABLE, without_login
from teamd.errors import StoreError
from teamd.files import directories, files
from teamd.model_facts import ModelFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Final

    from teamd.files.paths import TeamPaths

DEFAULT_URL: Final = "https://api.anthropic.com"
KEPT_SECONDS: Final = 86_400.0
_MOST_BYTES: Final = 1 << 16  # of a page; one of the API has 3,000
_DAMAGED: Final = (ValueError, KeyError, TypeError, RecursionError)


def server_address(base_url: str | None) -> str:
    """Return the address of the server that is asked, without a login."""
    base = base_url or environ.get(BASE_URL_VARIABLE) or DEFAULT_URL
    return without_login(base).rstrip("/")


def read_kept(paths: TeamPaths, server: str, model: str) -> ModelFacts | None:
    """Return the facts of a page that was kept within the last day, if there is one."""
    try:
        found = json.loads(files.read(_path(paths, server, model)) or b"null")
        whose, asked = (found["server"], found["model"]), found["asked"]
        if whose != (server, model) or not 0 <= time.time() - asked < KEPT_SECONDS:
            return None
        return ModelFacts.read(model, found["page"])
    except (StoreError, *_DAMAGED):  # it is asked for again
        return None


def keep(paths: TeamPaths, server: str, model: str, page: Any) -> ModelFacts:
    """Keep a page for the next who needs it; return its facts.

    Args:
        paths: the team's.
        server: its address, see `server_address`.
        model: the name that it was asked for.
        page: the answer as JSON; any other than an object says nothing of the model.
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
    import hashlib  # noqa: PLC0415 -- 4 ms, only for this

    digest = hashlib.sha256(f"{server}\n{model}".encode(errors="replace")).hexdigest()
    return paths.models / f"{digest[:32]}.json"
