"""The routes of the server: static files, and for each team its events, reads and actions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any, Final, TypeAlias

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from teamctl.actions import TeamActions
from teamctl.mail.team_mail import TeamMail
from teamctl.web.changes import diff_of_copy, diff_of_entry
from teamctl.web.guard import Json, Tokens
from teamctl.web.history import TeamHistory
from teamctl.web.page_actions import ACTIONS, ActionValues
from teamctl.web.parts import parts
from teamctl.web.projects import find_team, key_of, list_teams
from teamctl.web.watcher import EventLog, PartsWatcher
from teamctl.web.windows import read_at, read_before, read_behind, to_json
from teamd.command_line.run import TeamOptions
from teamd.errors import ExitCode, TeamError
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.mail import trace
from teamd.messages import TEAMD, USER
from teamd.team.roster import Roster
from teamd.transcript.live import split

Answer: TypeAlias = Callable[[Request], Any]

_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_MOST_POSTED: Final = 1 << 21
_PING_SECONDS: Final = 15
_ACTIONS: Final = 16  # at a time, because each may wait for teamd
_MOST_TEAMS: Final = 16  # other teams that are followed
_IDLE_SECONDS: Final = 300.0  # after the last request for another team, until it is closed
_HOURS: Final = 6.0
_STATUS: Final = {ExitCode.USAGE: 422, ExitCode.NO_TEAMD: 503, ExitCode.DEADLINE: 504}


class Pages:
    """All routes: the own team under `/api/`, the person's other teams under `/api/team/KEY/`.

    Only the full token reaches other teams, since a read-only link is given to other people.

    Args:
        idle_seconds: the time without a request after which another team is closed. A followed
            team keeps descriptors of its conversations, inboxes, logs and folders.
    """

    def __init__(
        self,
        choice: TeamOptions,
        paths: TeamPaths,
        tokens: Tokens,
        *,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._own = TeamPages(choice, paths, tokens)
        self._tokens = tokens
        self._idle_seconds = idle_seconds
        self._others: dict[str, _OtherTeam] = {}
        self._opening = asyncio.Lock()  # so that requests at the same time open a team once

    def app(self) -> Starlette:
        """Return the application; `Guard` has to admit the requests."""
        routes: list[Mount | Route] = [
            Mount("/api/team/{key}", app=self._serve_other),
            Mount("/api", app=self._own.app()),
        ]
        routes += [
            Route(address, partial(_serve, content, kind), methods=["GET"])
            for address, content, kind in static_files()
        ]
        return Starlette(routes=routes, exception_handlers=_explained())

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["may_act"]:
            raise HTTPException(403, "this link shows one team only")
        key = scope["path_params"]["key"]
        async with self._opening:
            team = self._others.get(key) or await self._open(key)
            self._others[key] = team
            team.requests += 1
            if team.closing is not None:
                team.closing.cancel()
        try:
            await team.app(scope, receive, send)
        finally:
            team.requests -= 1
            if not team.requests:
                later = asyncio.get_running_loop().call_later
                team.closing = later(self._idle_seconds, self._close, key)

    async def _open(self, key: str) -> _OtherTeam:
        paths = await anyio.to_thread.run_sync(find_team, key)
        if paths is None:
            raise HTTPException(404, "none of your teams has that address")
        if len(self._others) >= _MOST_TEAMS:
            idle = {one: team for one, team in self._others.items() if not team.requests}
            if not idle:
                raise HTTPException(503, "pages show too many teams; close one and try again")
            self._close(next(iter(idle)))
        choice = TeamOptions(team_dir=str(paths.root))
        pages = TeamPages(choice, choice.existing(), self._tokens)
        return _OtherTeam(pages, pages.app())

    def _close(self, key: str) -> None:
        team = self._others.pop(key)
        if team.closing is not None:
            team.closing.cancel()
        team.pages.close()


@dataclass(slots=True)
class _OtherTeam:
    """Another team of the person's.

    Attributes:
        requests: the number of requests under way; an open page has one for its events.
        closing: closes it once it is idle.
    """

    pages: TeamPages
    app: Starlette
    requests: int = 0
    closing: asyncio.TimerHandle | None = None


class TeamPages:
    """The routes of one team.

    Args:
        tokens: pages that may act also get the reading token, to share it.
    """

    def __init__(self, choice: TeamOptions, paths: TeamPaths, tokens: Tokens) -> None:
        self._choice = choice
        self._paths = paths
        self._tokens = tokens
        self._mail = TeamMail(paths)
        self._history = TeamHistory(paths)
        self._watcher = PartsWatcher(parts(choice, paths, self._mail), EventLog())
        self._limiter = anyio.CapacityLimiter(_ACTIONS)

    def app(self) -> Starlette:
        """Return the routes as an application."""
        looks: dict[str, Answer] = {
            "mail": self._find_mail,
            "trace": self._trace,
            "transcript": self._transcript,
            "log": self._log,
            "live": self._live,
            "diff": lambda request: diff_of_copy(self._paths, self._member(request)),
            "entry": lambda request: diff_of_entry(self._choice, self._paths, _word(request, "id")),
            "history": self._lanes,
            "happened": self._happened,
            "teams": self._teams,
            "session": self._session,
        }
        routes = [Route(f"/{name}", _answering(look)) for name, look in looks.items()]
        routes += [Route("/events", self._events)]
        routes += [
            Route(f"/do/{name}", partial(self._act, name), methods=["POST"]) for name in ACTIONS
        ]
        return Starlette(routes=routes, exception_handlers=_explained())

    def close(self) -> None:
        """Stop following the team; no request may be under way."""
        self._watcher.stop()
        self._mail.close()
        self._history.close()

    def _session(self, request: Request) -> Any:
        acts = bool(request.scope["may_act"])
        return {
            "may_act": acts,
            "reading": self._tokens.reading if acts else None,
            "boot": self._watcher.log.boot,
            "project": self._paths.home.name,
            "key": key_of(self._paths),
        }

    async def _events(self, _: Request) -> Response:
        return EventSourceResponse(self._stream(), ping=_PING_SECONDS, sep="\n")

    async def _stream(self) -> AsyncIterator[ServerSentEvent]:
        async with self._watcher.reader() as reader, aclosing(reader.events()) as events:
            async for one in events:
                yield ServerSentEvent(data=one.data, event=one.name, id=one.id, sep="\n")

    def _teams(self, request: Request) -> Any:
        found = list_teams(self._paths)
        if not request.scope["may_act"]:
            found = [one for one in found if one.facts.paths.root == self._paths.root]
        return {"teams": [one.to_json() for one in found]}

    def _find_mail(self, request: Request) -> Any:
        self._mail.look()
        return self._mail.find(_word(request, "words"), _word(request, "name"))

    def _lanes(self, request: Request) -> Any:
        return self._history.lanes(_hours(request))

    def _happened(self, request: Request) -> Any:
        kinds = request.query_params.getlist("kind")
        return self._history.find(_word(request, "words"), _word(request, "name"), kinds)

    def _trace(self, request: Request) -> Any:
        ways = trace.trace(self._paths, _word(request, "id"))
        return {"id": ways[0].id, "receivers": [way.to_json() for way in ways]}

    def _transcript(self, request: Request) -> Any:
        own = USER if _word(request, "name").lower() == USER else self._member(request)
        return self._window(request, self._paths.transcript(own))

    def _log(self, request: Request) -> Any:
        name = _word(request, "name")
        return self._window(
            request, self._paths.log(name if name == TEAMD else self._member(request))
        )

    def _live(self, request: Request) -> Any:
        """Return the text of a reply that is still coming."""
        content = files.read(self._paths.partial(self._member(request))) or b""
        _, _, come = content.decode(errors="replace").partition("\n")
        return {"text": "".join(text for text, thinks in split(come) if not thinks)}

    def _window(self, request: Request, path: Any) -> Any:
        if not path.exists():
            return {"start": 0, "end": 0, "records": []}
        behind, before, moment = (_offset(request, key) for key in ("behind", "before", "at"))
        if moment is not None:
            return to_json(read_at(path, moment))
        if behind is not None:
            return to_json(read_behind(path, behind))
        return to_json(read_before(path, before))

    async def _act(self, name: str, request: Request) -> Response:
        values = ActionValues(await _read(request))
        work = partial(ACTIONS[name], TeamActions(self._choice), values)
        outcome = await anyio.to_thread.run_sync(work, limiter=self._limiter)
        return Json({"text": self._paths.add_team_option(outcome.sentence())})

    def _member(self, request: Request) -> str:
        """Return the name as in the roster, so that only members' names become paths."""
        return Roster(self._paths).read().get(_word(request, "name")).name


def _answering(look: Answer) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return Json(look(request))

    return answer


def _word(request: Request, key: str) -> str:
    return request.query_params.get(key, "")


def _hours(request: Request) -> float:
    given = _word(request, "hours")
    return float(given[:9]) if given.isascii() and given.isdigit() else _HOURS


def _explained() -> Mapping[Any, Any]:
    return dict.fromkeys((TeamError, HTTPException, Exception), _explain)


def static_files() -> list[tuple[str, bytes, str]]:
    """Return the address, content and type of each static file."""
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
    """Read a posted JSON object of limited length."""
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
        raise HTTPException(400, "the posted data is not a JSON object")
    return found


def _offset(request: Request, key: str) -> int | None:
    found = request.query_params.get(key, "")
    return int(found[:18]) if found.isascii() and found.isdigit() else None


async def _explain(_: Request, error: Exception) -> Response:
    """Answer with the error that a command would print."""
    match error:
        case TeamError():
            status = _STATUS.get(ExitCode(error.exit_code), 409)
            return Json({"error": error.for_person(), "exit_code": error.exit_code}, status)
        case HTTPException():
            return Json({"error": error.detail}, error.status_code)
    return Json({"error": f"internal error ({type(error).__name__}: {error})"}, 500)
