"""Finds conflict copies, which a synced drive creates when two machines write the same file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from teamctl.doctor import Finding, Level
from teamd.errors import translate_os_errors
from teamd.files.paths import TeamPaths
from teamd.messages import LEAD, USER

# Dropbox, Nextcloud, Google Drive and iCloud add words in parentheses or after a space. No name in
# a team directory contains either.
_MARKS: Final = re.compile(
    r"\.sync-conflict-\d{8}-\d{6}|_conflict-\d{8}-\d{6}|\.conflict\b|[ (]", re.IGNORECASE
)
_OTHER_HOST: Final = re.compile(r"([^.]+?)-[^.]+\.jsonl?")  # OneDrive: config-LAPTOP.json
_REMEDY: Final = (
    "compare it with the file that it is a copy of, then remove it; move the team off the synced "
    "drive, or exclude the team directory there"
)


def check_synced(paths: TeamPaths, members: Collection[str]) -> Iterator[Finding]:
    """Report the conflict copies in a team directory.

    Args:
        paths: the team.
        members: the names of its members, because one name may look like a copy of another.
    """
    for path in find_conflict_copies(paths, members):
        what = f"{path} is a conflict copy of a synced drive: two machines have written that file"
        yield Finding(Level.FAIL, what, _REMEDY)


def find_conflict_copies(paths: TeamPaths, members: Collection[str]) -> list[Path]:
    """Return the conflict copies in a team directory, recognized by their names."""
    folders = (paths.root, *paths.folders, paths.subagents, paths.all_seen)
    with translate_os_errors(paths.root):
        left = {lock.stem for lock in paths.lives.glob("*.lock")}  # `rm` keeps their files
        names = {LEAD, USER, *members, *left}
        files = [one for folder in folders for one in sorted(folder.glob("*")) if one.is_file()]
        return [one for one in files if _is_conflict_copy(one, names)]


def _is_conflict_copy(path: Path, names: Collection[str]) -> bool:
    if _MARKS.search(path.name):
        return True
    found = _OTHER_HOST.fullmatch(path.name)
    if found is None or path.stem in names:
        return False
    original = path.with_name(f"{found[1]}{path.suffix}")
    return original.is_file()
