"""Takes leave of working copies, one or those of a whole team: no work of theirs goes with them."""

from __future__ import annotations

from collections.abc import Iterator

from teamd.copies import record, work
from teamd.copies.clone import remove_copy
from teamd.copies.discard import discard
from teamd.copies.discarded import DISCARDED
from teamd.copies.source import Source, source_of
from teamd.errors import TeamError, translate_os_errors
from teamd.files.paths import TeamPaths


def describe_unmerged(paths: TeamPaths) -> str:
    """Say which copies of a team have work that nobody merged; nothing for none."""
    return ", ".join(_unmerged(paths))


def keep_work(paths: TeamPaths) -> list[str]:
    """Keep for 30 days what nobody merged, and let go of what was kept for the copies of a team.

    Returns:
        The refs that lead to it.

    Raises:
        TeamError: there is work that cannot be kept so; the sentence says what to do.
    """
    kept, sources = [], {}
    for name in _names(paths):
        try:
            source = source_of(record.get(paths, name))
            ref = discard(paths, name, force=True).kept
        except TeamError as error:
            raise TeamError(f"{error}; or move {paths.copy(name)} away") from error
        if ref and not ref.startswith(DISCARDED):
            raise TeamError(f"what {name} did is in {ref}; move that away, then delete the team")
        kept.append(ref)
        sources[source.folder] = source
    for source in sources.values():
        _let_go(source, f"@{paths.own_name}")
    return [ref for ref in kept if ref]


def remove_one(paths: TeamPaths, name: str) -> str:
    """Remove the working copy of one that left the team; what nobody merged is kept for 30 days.

    Returns:
        The ref or the folder that has it; empty where there was nothing, or no copy.

    Raises:
        TeamError: it cannot be kept, or the copy cannot be removed; the copy stays.
    """
    copy = record.find(paths, name)
    if copy is None:
        return ""
    kept = discard(paths, name, force=True).kept
    with translate_os_errors(copy.folder):
        remove_copy(paths, name, copy.origin.folder)
    return kept


def _let_go(source: Source, team: str) -> None:
    """Remove the refs that a team has in a repository, but for those to what it discarded."""
    end = source.own_ref("", team).removeprefix("/")
    for ref in source.ask("for-each-ref", "--format=%(refname)", "refs/teamd").splitlines():
        if ref.endswith(end) and not ref.startswith(DISCARDED):
            source.remove_ref(ref)


def _unmerged(paths: TeamPaths) -> Iterator[str]:
    for name in _names(paths):
        try:
            state = work.look(paths, record.get(paths, name))
        except TeamError as error:
            yield f"{name} ({error})"
        else:
            if state.any:
                yield f"{name} ({state.describe()})"


def _names(paths: TeamPaths) -> list[str]:
    return [folder.name for folder in record.list_folders(paths)]
