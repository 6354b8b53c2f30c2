"""The changes of a teammate's working copy and of an entry of the merge queue, as diffs."""

from __future__ import annotations

import tempfile
from typing import Any, Final

from teamd.command_line.run import TeamOptions
from teamd.copies import record
from teamd.copies.copy_status import opened_diff
from teamd.copies.move_branch import ref_of
from teamd.copies.source import Source
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.merges import queue
from teamd.merges.queue import Entry, UnknownEntry

MOST: Final = 1 << 20  # bytes of a diff
_SHORT: Final = 12  # characters of a commit


def diff_of_copy(paths: TeamPaths, name: str) -> dict[str, Any]:
    """Return the difference of a member's working copy to its base.

    Raises:
        TeamError: it has no copy, or the copy is damaged.
    """
    copy = record.get(paths, name)
    with opened_diff(paths, copy) as file:
        content = file.read(MOST + 1)
    facts = {"name": copy.name, "branch": copy.branch, "base": copy.base}
    return {**facts, **_cut(content, paths.add_team_option(f"`teamctl diff {copy.name}`"))}


def diff_of_entry(choice: TeamOptions, paths: TeamPaths, entry_id: str) -> dict[str, Any]:
    """Return the difference that an entry of the queue makes, or made, to the branch.

    Raises:
        TeamError: the entry does not exist, or its commits cannot be read.
    """
    there = queue.read(paths)
    entry = there.find(entry_id)
    if entry is None:
        raise UnknownEntry(entry_id, there)
    settings = choice.settings(paths)
    source = Source.of(settings.team.workspace, [paths.work])
    base, tip = _ends(source, entry, source.find(ref_of(settings.merge.into)))
    words = ("diff-tree", "-r", "-p", "--no-ext-diff", "--no-textconv", "--no-color", base, tip)
    with tempfile.TemporaryFile(dir=paths.root) as file:  # it may be larger than the memory
        source.do(*words, "--", stdout=file.fileno())
        file.seek(0)
        content = file.read(MOST + 1)
    facts = {"id": entry.id, "name": entry.teammate, "base": base}
    return {**facts, **_cut(content, f"`git diff {base[:_SHORT]} {tip[:_SHORT]}`")}


def _ends(source: Source, entry: Entry, into: str) -> tuple[str, str]:
    """Return the commits before and after the work of an entry."""
    if entry.merge and (base := source.find(f"{entry.merge}^1")):
        return base, entry.merge
    onto = entry.onto or into or "HEAD"  # the branch does not exist before the first merge
    base = source.ask("merge-base", onto, entry.commit)
    if not base:
        raise TeamError(f"the commits of {entry.id} are gone from the repository")
    return base, entry.commit


def _cut(content: bytes, command: str) -> dict[str, Any]:
    """Return the beginning of a diff, and a sentence if the rest is left out."""
    cut = f"Only the first MiB is shown; {command} shows all of it." if len(content) > MOST else ""
    return {"diff": content[:MOST].decode(errors="replace"), "cut": cut}
