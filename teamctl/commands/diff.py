"""The working copy of a teammate: `teamctl diff`, `merge` and `discard`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import IO, Final

import click

from teamctl import arguments
from teamctl.mail.router import team_queue
from teamctl.render import output
from teamd.command_line import terminal
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.copies import record
from teamd.copies.record import Copy
from teamd.files.paths import TeamPaths
from teamd.team.roster import Roster

# Git's color codes; all other control characters are escaped.
_COLOUR: Final = re.compile(r"(\033\[[0-9;]*m)")
_SHORT: Final = 12


@click.command()
@click.argument("name", shell_complete=arguments.teammates)
@output.json_option
@team_options
def command(choice: TeamOptions, name: str, *, as_json: bool) -> None:
    """Show NAME's changes in its working copy since its base, committed or not.

    New files are included, files that git ignores are not. On a terminal the diff is paged and
    coloured as you have configured git; elsewhere it is a patch.
    """
    from teamd.copies.copy_status import opened_diff, pager_of, wants_colour  # noqa: PLC0415 -- 20 ms
    from teamd.copies.source import source_of  # noqa: PLC0415 -- the same

    paths = choice.existing()
    copy = _find(paths, name)
    paged = sys.stdout.isatty() and not as_json
    source = source_of(copy) if paged else None
    with opened_diff(paths, copy, colour=source is not None and wants_colour(source)) as file:
        if as_json:
            text = file.read().decode(errors="replace")
            shown = {"name": copy.name, "branch": copy.branch, "base": copy.base, "diff": text}
            output.print_json(shown)
        elif not os.fstat(file.fileno()).st_size:
            click.echo(f"{copy.name} has changed nothing since its base", err=True)
        elif source is None:
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.flush()
        else:
            _page(file, pager_of(source))


@click.command()
@click.argument("name", shell_complete=arguments.teammates)
@click.option("--squash", is_flag=True, help="Make one commit of it that is no merge.")
@click.option("--message", "-m", help="Use this message for the commit.")
@output.json_option
@team_options
def merge(
    choice: TeamOptions, name: str, *, squash: bool, message: str | None, as_json: bool
) -> None:
    """Merge NAME's commits in its working copy into the branch that you are on.

    It refuses if you or NAME have uncommitted work. If there are conflicts it names the files.
    Unless it succeeds, nothing changes.
    """
    from teamd.copies.merge import merge as merge_copy  # noqa: PLC0415 -- 20 ms

    paths = choice.existing()
    said = arguments.without_secrets(message or "")
    member, settings = _find(paths, name).name, choice.settings(paths)
    done = merge_copy(paths, member, settings, squash=squash, message=said)
    commits = "1 commit" if done.merged == 1 else f"{done.merged} commits"
    text = f"merged {commits} of {name} into {done.branch}: {done.commit[:_SHORT]}"
    if not done.merged:
        text = f"{name} has no commits that are not in {done.branch}; nothing to merge"
    elif squash:  # unknown to git: the same lines, changed again, would conflict
        text += f'; before more work `teamctl send {name} "git merge {done.commit[:_SHORT]}"`'
    choice.done = text
    facts = {"name": name, "branch": done.branch, "commit": done.commit, "merged": done.merged}
    output.print_either(text, facts, as_json=as_json)


@click.command()
@click.argument("name", shell_complete=arguments.teammates)
@click.option("--force", is_flag=True, help="Also where there is work; it is kept for 30 days.")
@output.json_option
@team_options
def discard(choice: TeamOptions, name: str, *, force: bool, as_json: bool) -> None:
    """Reset the working copy of NAME to its base, even while NAME works.

    Files that git ignores stay. Work that --force drops is kept in your repository for 30 days, as
    refs/teamd/discarded/NAME/TIME, and leaves the merge queue.
    """
    from teamd.copies.discard import discard as discard_copy  # noqa: PLC0415 -- 20 ms

    paths = choice.existing()
    copy = _find(paths, name)
    done = discard_copy(paths, copy.name, force=force)
    removed = _withdraw(choice, copy, done.kept) if force else []
    text = f"the working copy of {name} is at its base {done.base[:_SHORT]}"
    if done.kept:
        text += f"; what was in it is kept as {done.kept}"
    if removed:
        text += f"; no longer in the queue: {', '.join(removed)}"
    choice.done = text
    facts = {"name": name, "base": done.base, "kept": done.kept, "removed": removed}
    output.print_either(text, facts, as_json=as_json)


def _withdraw(choice: TeamOptions, copy: Copy, kept: str) -> list[str]:
    """Remove the discarded commits from the queue; return the ids of their entries."""
    from teamd.copies.source import source_of  # noqa: PLC0415 -- 20 ms
    from teamd.merges.enqueue import withdraw  # noqa: PLC0415 -- the same

    taken = withdraw(team_queue(choice), copy, source_of(copy), kept)
    return [entry.id for entry in taken]


def _find(paths: TeamPaths, name: str) -> Copy:
    """Return the working copy of a member.

    Raises:
        TeamError: the member does not exist, or has no working copy.
    """
    return record.get(paths, Roster(paths).read().get(name).name)


def _page(file: IO[bytes], pager: str) -> None:
    from teamd.copies.source import environment  # noqa: PLC0415 -- 20 ms
    from teamd.programs import feed  # noqa: PLC0415 -- the same

    lines = (_shown(line) for line in file)
    if pager:
        encoded = (line.encode(errors="replace") for line in lines)
        feed(pager, encoded, env={"LESS": "FRX", "LV": "-c", **environment()})
        return
    for line in lines:
        click.echo(line.removesuffix("\n"))


def _shown(line: bytes) -> str:
    """Return a line of a diff, made safe for a terminal."""
    parts = _COLOUR.split(line.decode(errors="replace"))
    return "".join(one if _COLOUR.fullmatch(one) else terminal.plain(one) for one in parts)
