"""`teamctl rm`: removes a teammate from the team, and its files if wanted."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from teamctl import arguments
from teamctl.actions import Outcome, act_on_each
from teamctl.mail.router import team_queue
from teamctl.render import output
from teamd import control
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError
from teamd.files import directories, files, locks
from teamd.files.paths import TeamPaths
from teamd.messages import check_name
from teamd.team.roster import Roster

# The suffixes of `Conversation.key_of`: otherwise bob-2's subagents would count as bob's.
_SUBAGENT_KEY: Final = r"[0-9a-f]{16}-\d+-\d+\.jsonl"


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=arguments.teammates)
@click.option(
    "--purge", is_flag=True, help="Also delete its mail, conversation, logs, jobs and home."
)
@click.option("--yes", is_flag=True, help="With --purge: do not ask you first.")
@output.json_option
@team_options
def command(
    choice: TeamOptions, names: tuple[str, ...], *, purge: bool, yes: bool, as_json: bool
) -> int:
    """Take NAMES out of the team, once they are shut down or have failed.

    Their files stay, so that a spawn under the same name goes on with its conversation. --purge
    deletes them, even for a name that left earlier; on a terminal it asks first. Unmerged work in
    a working copy is kept for 30 days, and the costs stay in the budget.
    """
    choice.existing()  # reports a missing team first
    if purge and not yes:
        whose = " and ".join(names)
        arguments.confirm(f"delete all mail, the conversation and the working copy of {whose}?")
    return act_on_each(
        choice, names, lambda name: _remove(choice, name, purge=purge), as_json=as_json
    )


def _remove(choice: TeamOptions, name: str, *, purge: bool) -> Outcome:
    paths = choice.existing()
    team, said, data = Roster(paths).read(), f"{name} has left the team before", {"name": name}
    if not purge or team.find(name) is not None:
        asked = {"name": team.get(name).name}
        reply = control.ask(paths, "remove", asked, timeout_seconds=arguments.REQUEST_SECONDS)
        reply.raise_unless_done()
        said, data = reply.text, dict(reply.data)
    removed = _purge(paths, data["name"]) if purge else []
    if purge:
        said += f"; {len(removed)} of its files and folders are deleted"
        said += _remove_copy(choice, paths, data["name"])
    else:
        said += "; its files stay" + _describe_copy(paths, data["name"])
    return Outcome(paths.add_team_option(said), {**data, "removed": list(map(str, removed))})


def _describe_copy(paths: TeamPaths, name: str) -> str:
    """Return a clause that names the working copy, if there is one."""
    if not paths.copy(name).exists():
        return ""
    return f", and its working copy in {paths.copy(name)}"


def _remove_copy(choice: TeamOptions, paths: TeamPaths, name: str) -> str:
    """Remove the working copy, if there is one; return a clause with the result."""
    if not paths.copy(name).exists():
        return ""
    from teamd.copies import discard, record  # noqa: PLC0415 -- git's, and few teammates have one
    from teamd.copies.source import source_of  # noqa: PLC0415 -- the same
    from teamd.merges.enqueue import withdraw  # noqa: PLC0415 -- the same

    try:
        copy = record.get(paths, name)
        source = source_of(copy)
        kept = discard.remove_one(paths, name)
        withdraw(team_queue(choice), copy, source, kept)
    except TeamError as error:
        return f"; its working copy stays in {paths.copy(name)}: {error}"
    return f"; so is its working copy, what nobody merged is kept as {kept}" if kept else ""


def _purge(paths: TeamPaths, name: str) -> list[Path]:
    """Delete the files of a name, which cannot join meanwhile."""
    with locks.locked(paths.config_lock):
        if Roster(paths).read().find(name) is not None:
            raise TeamError(f"{name} has joined the team again, so no file was deleted")
        found = [path for path in _files(paths, name) if path.is_symlink() or path.exists()]
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                files.remove(path)
    return found


def _files(paths: TeamPaths, name: str) -> Iterator[Path]:
    check_name(name)  # it becomes a part of paths
    yield from (paths.inbox(name), paths.taken(name), paths.rejected(name))
    yield from (paths.transcript(name), paths.partial(name), paths.seen(name), paths.activity(name))
    yield from (paths.jobs(name), paths.home_of(name), paths.temporary(name))
    yield from directories.list_files(paths.logs, f"{name}.log*")
    for path in directories.list_files(paths.subagents, f"{name}-*.jsonl"):
        if re.fullmatch(f"{name}-{_SUBAGENT_KEY}", path.name):
            yield path
