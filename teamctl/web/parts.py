"""The parts of the state that pages are told of, each read from the files alone."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from teamctl.web.usage import read_usage
from teamctl.web.watcher import WatchedPart
from teamd.board.files import read_all
from teamd.board.task import TaskStatus
from teamd.errors import DamagedRoster
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.merges import queue
from teamd.overview.overview import OverviewReader

if TYPE_CHECKING:
    from teamctl.web.mail import TeamMail
    from teamd.cli import Choice

_DRAWN_SECONDS: Final = 0.25  # between two looks at what takes long: processes, copies
_MEASURED_SECONDS: Final = 2.0  # after which processes are measured again


def parts(choice: Choice, paths: TeamPaths, mail: TeamMail) -> list[WatchedPart]:
    """Return all of them."""
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


def _team(choice: Choice, paths: TeamPaths, seen: OverviewReader) -> dict[str, Any]:
    """Return what `team --json` prints."""
    found = seen.read(choice.waiting(paths))
    return {**found.to_json(), "trouble": found.trouble}


def _roster(paths: TeamPaths) -> Any:
    """Return `config.json` as it stands there, each time another one stands there."""
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
    """Return how long each conversation and each log is: a page that shows one reads on."""
    return {
        "transcripts": _lengths(paths.transcripts, ".jsonl"),
        "logs": _lengths(paths.logs, ".log"),
    }


def _lengths(folder: Path, ending: str) -> dict[str, int]:
    found = {}
    for path in sorted(folder.glob(f"*{ending}")):
        try:
            found[path.name.removesuffix(ending)] = path.lstat().st_size
        except FileNotFoundError:  # gone meanwhile
            continue
    return found
