"""Finds the commit to clone, and checks that a repository can be cloned."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from teamd.copies.record import check_object_id
from teamd.errors import TeamError
from teamd.sandbox.policy import Origin

if TYPE_CHECKING:
    from teamd.copies.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A commit to clone, and how its repository stores objects.

    Attributes:
        format: the hash format of the object names.
        shallow: the file that lists where a shallow history ends.
    """

    commit: str
    origin: Origin
    format: str
    shallow: Path


def read_head(source: Source) -> Head:
    """Return the current commit of a repository.

    Raises:
        TeamError: the repository cannot be copied; the sentence says why and what to do.
    """
    return _describe(source, source.find("HEAD"))


def head_at(source: Source, commit: str) -> Head:
    """Return a given commit of a repository.

    Raises:
        TeamError: as for `read_head`, or the commit does not exist.
    """
    words = ("rev-parse", "--verify", "--quiet", f"{check_object_id(commit)}^{{commit}}")
    return _describe(source, source.do(*words))


def _describe(source: Source, commit: str) -> Head:
    kind, *files = _look(source)
    objects, alternates, shallow = (source.folder / file for file in files)
    if alternates.exists() and alternates.stat().st_size:
        raise TeamError(
            f"the repository {source.folder} borrows objects itself, as {alternates} says; "
            "`git repack -a -d` and then removing that file makes it whole"
        )
    partial = r"^(extensions\.partialclone|remote\..*\.promisor)$"
    if source.ask("config", "--get-regexp", partial):
        raise TeamError(
            f"the repository {source.folder} is a partial clone, whose missing files no working "
            "copy could fetch; make a whole clone of it"
        )
    if not commit:
        raise TeamError(
            f"the repository {source.folder} has no commit yet, and a working copy needs one; "
            "`git commit` makes it"
        )
    origin = Origin(folder=source.folder, objects=Path(os.path.realpath(objects)))
    return Head(commit=check_object_id(commit), origin=origin, format=kind, shallow=shallow)


def _look(source: Source) -> list[str]:
    """Return the object format, the paths of the objects and other files, and the root folder.

    Raises:
        TeamError: the folder is not a working tree, or not the root of one.
    """
    names = ("objects", "objects/info/alternates", "shallow")
    paths = [word for name in names for word in ("--git-path", name)]
    facts = ("--is-inside-work-tree", "--is-bare-repository", "--show-object-format")
    done = source.answer("rev-parse", *facts, *paths, "--show-toplevel")
    said = os.fsdecode(done.stdout).split("\n", len(facts) + len(names))
    if done.status != 0 and b"dubious ownership" in done.stderr:
        raise TeamError(
            f"the repository {source.folder} belongs to another user, so git does not touch it; "
            f"`git config --global --add safe.directory {source.folder}` lets it"
        )
    if done.status != 0 or said[:2] != ["true", "false"]:
        raise TeamError(
            f"{source.folder} is no working tree of a git repository, so there can be no working "
            "copy of it; `git init` and a first commit make it one"
        )
    top = said[-1].removesuffix("\n")
    if Path(os.path.realpath(top)) != source.folder:
        raise TeamError(
            f"the workspace {source.folder} is a folder in the repository {top}, and a working "
            "copy is of a whole one; work there, or set [team] workspace to it"
        )
    return said[2:-1]
