"""The watched parts of the state: overview, mail, roster, board, queue, usage and file sizes."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from teamctl.mail.team_mail import TeamMail
from teamctl.web.watcher import WatchedPart
from teamd.board.files import read_all
from teamd.board.task import TaskStatus
from teamd.budget.ledger import Ledger
from teamd.command_line.run import TeamOptions
from teamd.errors import DamagedRoster
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.merges import queue
from teamd.overview.members import look_at_copy
from teamd.overview.overview import OverviewReader
from teamd.overview.usage import Use, read_uses
from teamd.team.roster import Roster

_DRAWN_SECONDS: Final = 0.25  # between two slow reads of processes and copies
_GIT_SECONDS: Final = 2.0  # between two looks at working copies
_MEASURED_SECONDS: Final = 2.0  # the time after which processes are measured again


def parts(choice: TeamOptions, paths: TeamPaths, mail: TeamMail) -> list[WatchedPart]:
    """Return the watched parts of the state."""
    root, talk, inboxes = paths.root, paths.transcripts, paths.inboxes
    return [
        WatchedPart(
            name="team",
            look=partial(_team, choice, paths, OverviewReader(paths, copies=False)),
            folders=[root, inboxes, talk, paths.requests, paths.activities],
            pause_seconds=_DRAWN_SECONDS,
            recheck_seconds=_MEASURED_SECONDS,
        ),
        WatchedPart(
            name="copies",
            look=partial(_copies, paths),
            folders=[talk],
            pause_seconds=_GIT_SECONDS,
            waited=False,
        ),
        WatchedPart(name="mail", look=mail.look, folders=[inboxes, talk], waited=False),
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
    """Return the document of `team --json` without working copies, which are another part."""
    found = seen.read(choice.waiting(paths))
    return {**found.to_json(), "trouble": found.trouble}


def _copies(paths: TeamPaths) -> dict[str, Any]:
    """Return the state of each working copy, by the name of the member."""
    members = Roster(paths).read().members
    return {one.name: look_at_copy(paths, one) for one in members if one.worktree}


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
        "live": _lengths(paths.transcripts, ".partial"),
    }


def _lengths(folder: Path, ending: str) -> dict[str, int]:
    found = {}
    for path in sorted(folder.glob(f"*{ending}")):
        try:
            found[path.name.removesuffix(ending)] = path.lstat().st_size
        except FileNotFoundError:  # removed meanwhile
            continue
    return found


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
