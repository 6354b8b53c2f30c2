"""`teamctl prune`: removes old logs and the files of former members, but never mail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from teamctl.render import output
from teamd.command_line.options import FloatRange, team_options
from teamd.command_line.run import TeamOptions
from teamd.control import KEPT_SECONDS
from teamd.errors import TeamError, translate_os_errors
from teamd.files import directories, locks
from teamd.files.paths import TeamPaths
from teamd.messages import NAME, RESERVED
from teamd.team.roster import Roster

_DAY_SECONDS: Final = 86_400.0
_ROTATED: Final = re.compile(r"\.log\.\d+")


@click.command()
@click.option("--logs", is_flag=True, help="Remove only logs.")
@click.option("--transcripts", is_flag=True, help="Remove only conversations.")
@click.option(
    "--older-than", "days", metavar="DAYS", default=0.0,
    type=FloatRange(min=0),
    help="Keep files that changed within this many days.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@output.json_option
@team_options
def command(
    choice: TeamOptions,
    *,
    logs: bool,
    transcripts: bool,
    days: float,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove rotated logs, and the logs, conversations and jobs of names not in the team.

    It also removes debris that is more than an hour old: unread replies of teamd and files that a
    killed process left unfinished. It keeps all mail, your own conversation, and the files of
    every member, whatever its status.
    """
    paths = choice.existing()
    removed: list[tuple[Path, int]] = []
    try:
        # Under the roster's lock no member whose old conversation is being removed can join.
        with locks.locked(paths.config_lock):
            found = _found(paths, logs=logs, transcripts=transcripts)
            for path in directories.older(found, seconds=days * _DAY_SECONDS):
                # a log that is just being rotated
                with translate_os_errors(path), suppress(FileNotFoundError):
                    size = path.lstat().st_size
                    if not dry_run:
                        path.unlink()
                    removed.append((path, size))
    finally:  # report the removed files even after an error
        if not as_json:
            _tell("would remove" if dry_run else "removed", paths, removed)
    if as_json:
        files = [{"path": str(path), "bytes": size} for path, size in removed]
        output.print_json({"removed": files, "dry_run": dry_run})
    elif not removed:
        click.echo("nothing to remove")


def _found(paths: TeamPaths, *, logs: bool, transcripts: bool) -> Iterator[Path]:
    everything = not (logs or transcripts)
    members = _members(paths)
    if logs or everything:
        yield from _logs(paths, members)
    if transcripts or everything:
        conversations = directories.list_files(paths.transcripts, "*.jsonl")
        conversations += directories.list_files(paths.all_seen, "*.jsonl")
        yield from (path for path in conversations if _is_gone(path.stem, members))
    if everything:
        activities = directories.list_files(paths.activities, "*.json")
        yield from (path for path in activities if _is_gone(path.stem, members))
        for folder in directories.list_files(paths.all_jobs, "*/"):
            if _is_gone(folder.name, members):
                yield from directories.list_files(folder, "*")
        replies = directories.list_files(paths.replies, "*.json")
        yield from directories.older(replies, seconds=KEPT_SECONDS)
        yield from sorted(directories.aside(paths))


def _members(paths: TeamPaths) -> set[str]:
    """Return the names of the team in lower case; without a roster, files must not be removed."""
    if not paths.config.exists():
        why = f"there is no roster {paths.config}, so the files to keep are unknown"
        raise TeamError(f"{why}; `teamd start` makes one")
    return {member.name.lower() for member in Roster(paths).read().members} | RESERVED


def _logs(paths: TeamPaths, members: set[str]) -> Iterator[Path]:
    """Yield the rotated logs, and all logs of names that are not in the team."""
    for path in directories.list_files(paths.logs, "*.log*"):
        name, dot, rest = path.name.partition(".")
        if NAME.fullmatch(name) and (
            _ROTATED.fullmatch(dot + rest) or (rest == "log" and name.lower() not in members)
        ):
            yield path


def _is_gone(name: str, members: set[str]) -> bool:
    return NAME.fullmatch(name) is not None and name.lower() not in members


def _tell(verb: str, paths: TeamPaths, removed: list[tuple[Path, int]]) -> None:
    for path, size in removed:
        shown = output.plain(str(path.relative_to(paths.root)))
        click.echo(f"{verb} {shown} ({output.count(size)}B)")
    if removed:
        total = sum(size for _, size in removed)
        number = "1 file" if len(removed) == 1 else f"{len(removed)} files"
        click.echo(f"{verb} {number}, {output.count(total)}B in all")
