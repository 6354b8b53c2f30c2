"""The watched parts of the state: overview, mail, roster, board, queue, usage and file sizes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from teamctl.mail.team_mail import TeamMail
from teamctl.web.watcher import WatchedPart
from teamd.board.files import TaskFiles
from teamd.board.task import TaskStatus
from teamd.budget.accounts import Accounts
from teamd.budget.ledger import Ledger
from teamd.command_line.run import TeamOptions
from teamd.errors import DamagedRoster
from teamd.files import files
from teamd.files.file_stamp import Version, remember, version_of
from teamd.files.paths import TeamPaths
from teamd.merges import queue
from teamd.overview.members import look_at_copy
from teamd.overview.overview import OverviewReader
from teamd.overview.usage import Use, read_uses
from teamd.team.roster import Roster

_DRAWN_SECONDS: Final = 0.25  # between two slow reads of processes and copies
_GIT_SECONDS: Final = 2.0  # between two looks at working copies
_COPY_SECONDS: Final = 30.0  # after which a copy is looked at without a sign of a change
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
            look=CopiesReader(paths).read,
            folders=[talk],
            pause_seconds=_GIT_SECONDS,
            waited=False,
        ),
        WatchedPart(name="mail", look=mail.look, folders=[inboxes, talk], waited=False),
        WatchedPart(name="roster", look=partial(_roster, paths), folders=[root]),
        WatchedPart(name="board", look=partial(_board, TaskFiles(paths)), folders=[paths.tasks]),
        WatchedPart(name="queue", look=partial(_queue, paths), folders=[paths.tasks]),
        WatchedPart(
            name="usage",
            look=partial(_usage, paths, remember(paths.ledger, Ledger(paths.ledger).read)),
            folders=[root],
            pause_seconds=_DRAWN_SECONDS,
        ),
        WatchedPart(name="sizes", look=partial(_sizes, paths), folders=[talk, paths.logs]),
    ]


def _team(choice: TeamOptions, paths: TeamPaths, seen: OverviewReader) -> dict[str, Any]:
    """Return the document of `team --json` without working copies, which are another part."""
    found = seen.read(choice.waiting(paths))
    return {**found.to_json(), "trouble": found.trouble}


class CopiesReader:
    """Reads the state of each working copy; git runs only in those that may have changed.

    A copy may have changed when the conversation of its member has, or after a while.
    """

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._roster = Roster(paths)
        self._known: dict[str, tuple[Version | None, float, dict[str, Any]]] = {}

    def read(self) -> dict[str, Any]:
        """Return the state of each working copy, by the name of the member."""
        before, self._known, now = self._known, {}, time.monotonic()
        for member in self._roster.read().members:
            if member.worktree:
                version = version_of(self._paths.transcript(member.name))
                known = before.get(member.name)
                if known is None or known[0] != version or now - known[1] >= _COPY_SECONDS:
                    known = version, now, look_at_copy(self._paths, member)
                self._known[member.name] = known
        return {name: state for name, (_, _, state) in self._known.items()}


def _roster(paths: TeamPaths) -> Any:
    """Return the content of `config.json`."""
    content = files.read(paths.config)
    try:
        return None if content is None else json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedRoster(paths.config, str(error)) from error


def _board(files_: TaskFiles) -> dict[str, Any]:
    """Return the board as `tasks --json` shows it."""
    tasks = files_.read()
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


def _usage(paths: TeamPaths, ledger: Callable[[], Accounts]) -> dict[str, Any]:
    """Return the usage of each member, of the team, and of each day."""
    accounts = ledger()
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
