"""Copies objects of the person's repository, such that each has the content of its id.

Git does not compare an object to its id when it reads it, and takes the end of a history from
`.git/shallow`. An agent in the shared folder can write both. `git index-pack` computes the id of
each object that it adds, so an altered object is missing in the copy, and git fails there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from teamd.copies.sandboxed_git import open_scratch
from teamd.copies.source import GitFailed, Source, last_words
from teamd.errors import TeamError
from teamd.files import files
from teamd.files.paths import TeamPaths

_PACK: Final = ("pack-objects", "--quiet", "--stdout", "--delta-base-offset", "--window=0")
_NOT_FILES: Final = ("000000", "160000")  # modes: a missing file, a submodule


@contextmanager
def open_verified(
    paths: TeamPaths, source: Source, commit: str, known: Sequence[str]
) -> Iterator[Source]:
    """Yield the person's repository with nothing but the history of some commits, without files.

    Args:
        paths: the team, in whose folder the copy is made; commands cannot write there.
        source: the person's repository.
        commit: the commit that is looked at.
        known: more commits; only behind these may the history of a shallow clone end.

    Raises:
        TeamError: objects are missing or altered, also if a caller notices that inside.
    """
    with open_scratch(paths) as folder:
        store = replace(source, true_objects=True, store=folder)
        try:
            _add(store, (commit, *known), "--revs", "--filter=tree:0")
            if ends := _end_history(store, known):
                (folder / "shallow").write_text("".join(f"{one}\n" for one in ends))
            yield store
        except GitFailed as error:
            raise TeamError(
                f"{error}; `git fsck` in {source.folder} finds objects that are missing or "
                "altered, and `git fetch --unshallow` completes a shallow clone"
            ) from error


def _add(store: Source, wanted: Iterable[str], *options: str) -> None:
    """Add objects of the person's repository."""
    given = "".join(f"{one}\n" for one in wanted).encode()
    with tempfile.TemporaryFile(dir=store.store) as pack:
        replace(store, store=None).do(*_PACK, *options, given=given, stdout=pack.fileno())
        pack.seek(0)
        done = store.run("index-pack", "--stdin", stdin=pack.fileno())
    if done.status != 0:
        raise GitFailed(f"git index-pack failed in {store.folder}: {last_words(done)}")


def _end_history(store: Source, known: Sequence[str]) -> list[str]:
    """Return the commits at which a shallow clone ends its history.

    Raises:
        GitFailed: it ends elsewhere than behind known commits.
    """
    file = Path(os.path.realpath(store.common_folder), "shallow")
    ends = find_commits(store, (files.read(file) or b"").decode(errors="replace").split())
    if ends and store.do("rev-list", "--stdin", given=range_of(ends, known)):
        raise GitFailed(f"the history in {store.folder} is cut off")
    return ends


def add_trees(store: Source, commits: Iterable[str]) -> None:
    """Add the trees of commits, without the files."""
    _add(store, (f"{one}^{{tree}}" for one in commits), "--revs", "--filter=blob:none")


def add_changed_files(store: Source, old: str, new: str) -> None:
    """Add the files in which two commits or trees differ, if the trees are there."""
    lines = store.do("diff-tree", "-r", "--raw", "--no-renames", old, new).split("\n")
    found = set()
    for line in filter(None, lines):
        mode, new_mode, file, new_file, _ = line.removeprefix(":").split(" ", 4)
        found |= {one for one, its in ((file, mode), (new_file, new_mode)) if its not in _NOT_FILES}
    _add(store, found)


def add_content(store: Source, commits: Sequence[str], ends: Sequence[str]) -> None:
    """Add the trees and files of commits, except those of the commits from which they began.

    Raises:
        GitFailed: one is missing.
    """
    _add(store, (f"{one}^{{tree}}" for one in (*commits, *(f"^{end}" for end in ends))), "--revs")
    add_trees(store, ends)
    store.do("rev-list", "--objects", "--quiet", "--stdin", given=range_of(commits, ends))


def find_commits(source: Source, names: Iterable[str]) -> list[str]:
    """Return the ids among some that are commits in a repository, as far as it is honest."""
    given = "".join(f"{one}\n" for one in dict.fromkeys(names)).encode()
    words = ("cat-file", "--batch-check=%(objectname) %(objecttype)")
    found = replace(source, true_objects=True).do(*words, given=given)
    return [line.split()[0] for line in found.split("\n") if line.endswith(" commit")]


def range_of(commits: Iterable[str], known: Iterable[str]) -> bytes:
    """Return standard input for `rev-list`: commits that the known ones do not have."""
    return "".join(f"{line}\n" for line in (*commits, *(f"^{one}" for one in known))).encode()
