"""The routes of the server: static files, events, reads, and actions with values of the page."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Final

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from teamctl.actions import Outcome, TeamActions
from teamctl.arguments import without_secrets
from teamctl.tail import GrowingFile, lines_back
from teamctl.web.guard import Json, Tokens
from teamctl.web.mail import TeamMail
from teamctl.web.watcher import PartsWatcher, WatchedPart
from teamd.board.files import read_all
from teamd.board.task import TaskStatus
from teamd.budget.ledger import Ledger
from teamd.command_line.run import TeamOptions
from teamd.copies import record
from teamd.copies.copy_status import opened_diff
from teamd.errors import DamagedRoster, ExitCode, TeamError, WrongUsage
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.mail import trace
from teamd.merges import queue
from teamd.messages import TEAMD, USER
from teamd.overview.overview import OverviewReader
from teamd.overview.usage import Use, read_uses
from teamd.team.roster import Roster
from teamd.transcript.file import parse
from teamd.transcript.records import Checkpoint

WINDOW: Final = 1 << 18  # bytes
_HIDDEN: Final = frozenset({"secret"})  # the secret from which request ids are derived
LONGEST: Final = 20_000  # characters of one text


@dataclass(frozen=True, slots=True)
class LineWindow:
    """Whole lines, with the offsets of their beginning and end."""

    start: int
    end: int
    lines: tuple[bytes, ...]


def read_before(path: Path, end: int | None, *, size: int = WINDOW) -> LineWindow:
    """Return the last lines before an offset, or of the file."""
    lines: deque[bytes] = deque()
    start = stop = 0
    for place, line in lines_back(path, math.inf if end is None else end):
        stop = stop or place + len(line) + 1
        if lines and stop - place > size:
            break
        start = place
        lines.appendleft(line)
    return LineWindow(start, stop, tuple(lines))


def read_behind(path: Path, start: int, *, size: int = WINDOW) -> LineWindow:
    """Return the first lines after an offset; if the file has shrunk, return its end."""
    if files.size(path) < start:
        return read_before(path, None)
    lines: list[bytes] = []
    end = start
    with closing(GrowingFile(path, start)) as growing:
        for line in growing.lines():
            lines.append(line)
            end += len(line) + 1
            if end - start >= size:
                break
    return LineWindow(start, end, tuple(lines))


def to_json(window: LineWindow) -> dict[str, Any]:
    """Return a window as JSON, with long texts cut."""
    found = (parse(line) for line in window.lines)
    shown = [
        {key: _cut(value) for key, value in one.items() if key not in _HIDDEN}
        for one in found
        if one and one.get("record") != Checkpoint.kind
    ]
    return {"start": window.start, "end": window.end, "records": shown}


def _cut(value: Any) -> Any:
    match value:
        case str() if len(value) > LONGEST:
            return f"{value[:LONGEST]}… ({len(value) - LONGEST} more characters)"
        case list():
            return [_cut(one) for one in value]
        case dict():
            return {key: _cut(one) for key, one in value.items()}
        case _:
            return value


def read_usage(paths: TeamPaths) -> dict[str, Any]:
    """Return the use of each member, of the team, and of each day."""
    accounts = Ledger(paths.ledger).read()
    members, total = read_uses(paths, accounts)
    return {
        "members": [{"name": one.name, **_to_json(one)} for one in members],
        "total": _to_json(total),
        "days": [
            {"day": day, **used.encode(), "tokens": used.tokens, "usd": used.known_usd}
            for day, used in sorted(accounts.days.items())
        ],
    }


def _to_json(use: Use) -> dict[str, Any]:
    limits = [{**asdict(one), "most": float(one.most)} for one in use.shares]
    return {**use.to_json(), "limits": limits}


@dataclass(frozen=True, slots=True)
class Asked:
    """The values that a page sent with an action."""

    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        """Return a text that must not be empty.

        Raises:
            WrongUsage: it is empty.
        """
        found = self.words(key)
        if not found.strip():
            raise WrongUsage(f"{key} is empty; fill it in")
        return found

    def words(self, key: str) -> str:
        """Return an optional text."""
        found = self.values.get(key, "")
        if not isinstance(found, str):
            raise WrongUsage(f"{key} has to be a text")
        return without_secrets(found)

    def flag(self, key: str) -> bool:
        return self.values.get(key) is True

    def amount(self, key: str) -> float | None:
        """Return an optional number."""
        found = self.values.get(key)
        if found is None or (isinstance(found, int | float) and not isinstance(found, bool)):
            return found
        raise WrongUsage(f"{key} has to be a number")


def _approve(actions: TeamActions, asked: Asked) -> Outcome:
    always = asked.flag("always")
    return actions.answer(asked.text("id"), asked.words("reason"), approve=True, always=always)


def _reject(actions: TeamActions, asked: Asked) -> Outcome:
    return actions.answer(asked.text("id"), asked.words("reason"), approve=False)


def _send(actions: TeamActions, asked: Asked) -> Outcome:
    return actions.send(asked.text("to"), asked.text("text"), asked.words("key"))


def _spawn(actions: TeamActions, asked: Asked) -> Outcome:
    return actions.spawn(
        asked.text("name"),
        asked.text("role"),
        asked.text("prompt"),
        model=asked.words("model") or None,
        fresh=asked.flag("fresh"),
        plan=True if asked.flag("plan") else None,
        worktree=True if asked.flag("worktree") else None,
    )


def _resume(actions: TeamActions, asked: Asked) -> Outcome:
    more = {unit: asked.amount(unit) for unit in ("usd", "tokens")}
    return actions.resume(asked.text("name"), **{unit: most for unit, most in more.items() if most})


ACTIONS: Final[Mapping[str, Callable[[TeamActions, Asked], Outcome]]] = {
    "approve": _approve,
    "reject": _reject,
    "send": _send,
    "broadcast": lambda actions, asked: actions.broadcast(asked.text("text")),
    "spawn": _spawn,
    "shutdown": lambda actions, asked: actions.shutdown(
        asked.text("name"), force=asked.flag("force")
    ),
    "resume": _resume,
    "interrupt": lambda actions, asked: actions.interrupt(asked.text("name"), asked.words("text")),
    "pause": lambda actions, asked: actions.pause(asked.text("name")),
}


_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_MOST_POSTED: Final = 1 << 21
_MOST_DIFF: Final = 1 << 20
_PING_SECONDS: Final = 15
_ACTIONS: Final = 16  # at a time, because each may wait for teamd
_STATUS: Final = {ExitCode.USAGE: 422, ExitCode.NO_TEAMD: 503, ExitCode.DEADLINE: 504}


class Pages:
    """The handlers of the routes.

    Args:
        tokens: pages that may act also get the reading token, to share it.
    """

    def __init__(
        self,
        choice: TeamOptions,
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
        """Return the application; `Guard` has to admit the requests."""
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
        answers: Mapping[Any, Any] = dict.fromkeys((TeamError, HTTPException, Exception), _explain)
        return Starlette(routes=routes, exception_handlers=answers)

    def _session(self, request: Request) -> Response:
        acts = bool(request.scope["may_act"])
        reading = self._tokens.reading if acts else None
        boot = self._watcher.log.boot
        return Json({"may_act": acts, "reading": reading, "boot": boot})

    async def _events(self, _: Request) -> Response:
        return EventSourceResponse(self._stream(), ping=_PING_SECONDS, sep="\n")

    async def _stream(self) -> AsyncIterator[ServerSentEvent]:
        async with self._watcher.reader() as reader, aclosing(reader.events()) as events:
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
            return Json(to_json(read_behind(path, behind)))
        return Json(to_json(read_before(path, before)))

    def _diff(self, request: Request) -> Response:
        name = self._member(request.query_params.get("name", ""))
        copy = record.get(self._paths, name)
        with opened_diff(self._paths, copy) as file:
            content = file.read(_MOST_DIFF + 1)
        text = content[:_MOST_DIFF].decode(errors="replace")
        facts = {"name": copy.name, "branch": copy.branch, "base": copy.base}
        return Json({**facts, "diff": text, "cut": len(content) > _MOST_DIFF})

    async def _act(self, name: str, request: Request) -> Response:
        asked = Asked(await _read(request))
        work = partial(ACTIONS[name], TeamActions(self._choice), asked)
        outcome = await anyio.to_thread.run_sync(work, limiter=self._limiter)
        return Json({"text": self._paths.add_team_option(outcome.sentence())})

    def _member(self, name: str) -> str:
        """Return the name as in the roster, so that only members' names become paths."""
        return Roster(self._paths).read().get(name).name


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
        raise HTTPException(400, "what was posted is no JSON object")
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


_DRAWN_SECONDS: Final = 0.25  # between two slow reads of processes and copies
_MEASURED_SECONDS: Final = 2.0  # the time after which processes are measured again


def parts(choice: TeamOptions, paths: TeamPaths, mail: TeamMail) -> list[WatchedPart]:
    """Return the watched parts of the state."""
    root, talk, inboxes = paths.root, paths.transcripts, paths.inboxes
    return [
        WatchedPart(
            name="team",
            look=partial(_team, choice, paths, OverviewReader(paths)),
            folders=[root, inboxes, talk, paths.requests, paths.activities],
            pause_seconds=_DRAWN_SECONDS,
            recheck_seconds=_MEASURED_SECONDS,
        ),
        WatchedPart(name="mail", look=mail.look, folders=[inboxes, talk]),
        WatchedPart(name="roster", look=partial(_roster, paths), folders=[root]),
        WatchedPart(name="board", look=partial(_board, paths), folders=[paths.tasks]),
        WatchedPart(name="queue", look=partial(_queue, paths), folders=[paths.tasks]),
        WatchedPart(
            name="usage",
            look=partial(read_usage, paths),
            folders=[root],
            pause_seconds=_DRAWN_SECONDS,
        ),
        WatchedPart(name="sizes", look=partial(_sizes, paths), folders=[talk, paths.logs]),
    ]


def _team(choice: TeamOptions, paths: TeamPaths, seen: OverviewReader) -> dict[str, Any]:
    """Return the document of `team --json`."""
    found = seen.read(choice.waiting(paths))
    return {**found.to_json(), "trouble": found.trouble}


def _roster(paths: TeamPaths) -> Any:
    """Return the content of `config.json`."""
    content = files.read(paths.config)
    try:
        return None if content is None else json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedRoster(paths.config, str(error)) from error


def _board(paths: TeamPaths) -> dict[str, Any]:
    """Return the board as `tasks --json` shows it."""
    tasks = read_all(paths)
    shown = [task for task in tasks.by_id.values() if task.status is not TaskStatus.DELETED]
    documents = [{**task.to_json(), "blocked": bool(tasks.blockers(task))} for task in shown]
    return {"tasks": documents, "damaged": list(tasks.damaged.values())}


def _queue(paths: TeamPaths) -> dict[str, Any]:
    """Return the merge queue as `queue --json` shows it."""
    return {"queue": [entry.to_json() for entry in queue.read(paths).all]}


def _sizes(paths: TeamPaths) -> dict[str, dict[str, int]]:
    """Return the size of each conversation and log, so that open pages read more."""
    return {
        "transcripts": _lengths(paths.transcripts, ".jsonl"),
        "logs": _lengths(paths.logs, ".log"),
    }


def _lengths(folder: Path, ending: str) -> dict[str, int]:
    found = {}
    for path in sorted(folder.glob(f"*{ending}")):
        try:
            found[path.name.removesuffix(ending)] = path.lstat().st_size
        except FileNotFoundError:  # removed meanwhile
            continue
    return found
