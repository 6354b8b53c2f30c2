"""The addresses of the server: the page itself, the events, and what a page asks for besides."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from importlib import resources
from typing import Any, Final

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from teamctl.web import windows
from teamctl.web.actions import ACTIONS, Asked, act
from teamctl.web.guard import Json, Tokens
from teamctl.web.mail import TeamMail
from teamctl.web.watcher import PartsWatcher
from teamd.cli import Choice
from teamd.copies import record
from teamd.copies.diff import opened_diff
from teamd.errors import ExitCode, TeamError
from teamd.files.paths import TeamPaths
from teamd.mail import trace
from teamd.messages import TEAMD, USER
from teamd.team.roster import Roster

_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_MOST_POSTED: Final = 1 << 21
_MOST_DIFF: Final = 1 << 20
_PING_SECONDS: Final = 15
_ACTIONS: Final = 16  # at a time; each may wait for teamd
_STATUS: Final = {ExitCode.USAGE: 422, ExitCode.NO_TEAMD: 503, ExitCode.DEADLINE: 504}


class Pages:
    """What is behind each address.

    Args:
        tokens: the one for reading is told to whoever may act, to hand it on.
    """

    def __init__(
        self,
        choice: Choice,
        paths: TeamPaths,
        mail: TeamMail,
        watcher: PartsWatcher,
        tokens: Tokens,
    ) -> None:
        self._choice = choice
        self._paths = paths
        self._mail = mail
        self._watcher = watcher
        self._tokens = tokens
        self._limiter = anyio.CapacityLimiter(_ACTIONS)

    def app(self) -> Starlette:
        """Return the application, which takes for granted that a request may be answered."""
        looks = {
            "session": self._session,
            "mail": self._find_mail,
            "trace": self._trace,
            "transcript": self._transcript,
            "log": self._log,
            "diff": self._diff,
        }
        routes = [Route(f"/api/{name}", look) for name, look in looks.items()]
        routes += [Route("/api/events", self._events)]
        routes += [
            Route(f"/api/do/{name}", partial(self._act, name), methods=["POST"]) for name in ACTIONS
        ]
        routes += [
            Route(address, partial(_serve, content, kind), methods=["GET"])
            for address, content, kind in static_files()
        ]
        answers: Mapping[Any, Any] = {
            TeamError: _explain,
            HTTPException: _explain_status,
            Exception: _confess,
        }
        return Starlette(routes=routes, exception_handlers=answers)

    def _session(self, request: Request) -> Response:
        acts = bool(request.scope["may_act"])
        reading = self._tokens.reading if acts else None
        boot = self._watcher.log.boot
        return Json({"may_act": acts, "reading": reading, "boot": boot})

    async def _events(self, request: Request) -> Response:
        last_id = request.headers.get("last-event-id", "")
        return EventSourceResponse(self._stream(last_id), ping=_PING_SECONDS, sep="\n")

    async def _stream(self, last_id: str) -> AsyncIterator[ServerSentEvent]:
        async with self._watcher.reader(last_id) as reader, aclosing(reader.events()) as events:
            async for one in events:
                yield ServerSentEvent(data=one.data, event=one.name, id=one.id, sep="\n")

    def _find_mail(self, request: Request) -> Response:
        self._mail.look()
        return Json(self._mail.find(request.query_params.get("words", "")))

    def _trace(self, request: Request) -> Response:
        ways = trace.trace(self._paths, request.query_params.get("id", ""))
        return Json({"id": ways[0].id, "receivers": [way.to_json() for way in ways]})

    def _transcript(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        own = USER if name.lower() == USER else self._member(name)
        return self._window(request, self._paths.transcript(own))

    def _log(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        return self._window(request, self._paths.log(name if name == TEAMD else self._member(name)))

    def _window(self, request: Request, path: Any) -> Response:
        if not path.exists():
            return Json({"start": 0, "end": 0, "records": []})
        behind, before = (_offset(request, key) for key in ("behind", "before"))
        if behind is not None:
            return Json(windows.to_json(windows.read_behind(path, behind)))
        return Json(windows.to_json(windows.read_before(path, before)))

    def _diff(self, request: Request) -> Response:
        name = self._member(request.query_params.get("name", ""))
        copy = record.get(self._paths, name)
        with opened_diff(self._paths, copy) as file:
            content = file.read(_MOST_DIFF + 1)
        text = content[:_MOST_DIFF].decode(errors="replace")
        facts = {"name": copy.name, "branch": copy.branch, "base": copy.base}
        return Json({**facts, "diff": text, "cut": len(content) > _MOST_DIFF})

    async def _act(self, name: str, request: Request) -> Response:
        values = await _read(request)
        work = partial(act, self._choice, name, Asked(values))
        said = await anyio.to_thread.run_sync(work, limiter=self._limiter)
        return Json({"text": self._paths.addressed(said)})

    def _member(self, name: str) -> str:
        """Return the name as the roster has it: no other leads to a file."""
        return Roster(self._paths).read().get(name).name


def static_files() -> list[tuple[str, bytes, str]]:
    """Return the address, content and type of each file of the page; there are no others."""
    found = []
    for file in resources.files("teamctl.web").joinpath("static").iterdir():
        kind = _TYPES.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            address = "/" if file.name == "index.html" else f"/{file.name}"
            found.append((address, file.read_bytes(), kind))
    return found


async def _serve(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind)


async def _read(request: Request) -> Mapping[str, Any]:
    """Read what was posted, as far as that is a reasonable length."""
    content = b""
    async for piece in request.stream():
        content += piece
        if len(content) > _MOST_POSTED:
            raise HTTPException(413, "that is too much for one message; put it into a file")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "what was posted is no JSON") from error
    if not isinstance(found, dict):
        raise HTTPException(400, "what was posted is no JSON object")
    return found


def _offset(request: Request, key: str) -> int | None:
    found = request.query_params.get(key, "")
    return int(found[:18]) if found.isascii() and found.isdigit() else None


async def _explain(_: Request, error: Exception) -> Response:
    """Answer what a command would print as its error."""
    assert isinstance(error, TeamError)  # noqa: S101 -- as it was registered
    status = _STATUS.get(ExitCode(error.exit_code), 409)
    return Json({"error": error.for_person(), "exit_code": error.exit_code}, status)


async def _explain_status(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 -- as it was registered
    return Json({"error": error.detail}, error.status_code)


async def _confess(_: Request, error: Exception) -> Response:
    return Json({"error": f"internal error ({type(error).__name__}: {error})"}, 500)
