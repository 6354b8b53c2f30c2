"""Shows what a teammate did in its working copy, committed or not, as `git diff` does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

from teamd.copies.confined import confined_git
from teamd.copies.record import Copy
from teamd.copies.source import Source
from teamd.copies.work import OWN_INDEX
from teamd.files.paths import TeamPaths

# Arguments: the base, when to colour. Untracked files are taken into an index of our own; a
# repository of its own in the copy has a slash behind its name, and is no file.
_DIFF: Final = """
git ls-files -z --others --exclude-standard >/tmp/others
grep -z '/$' </tmp/others | tr '\\n\\0' '?\\n' | while IFS= read -r at; do
  echo "$at is a repository of its own: what is in it is not shown, and no commit holds it"
done
export GIT_LITERAL_PATHSPECS=1
if [ -s /tmp/others ]; then grep -zv '/$' </tmp/others | xargs -0 -r git add -N -f --; fi
git diff --no-ext-diff --no-textconv --color="$2" "$1" --
"""


@contextmanager
def opened_diff(paths: TeamPaths, copy: Copy, *, colour: bool = False) -> Iterator[IO[bytes]]:
    """Yield a file with the difference between a copy and its base; its words are the agent's.

    Raises:
        TeamError: the copy is damaged.
    """
    with (
        confined_git(paths, copy.folder, copy.origin) as git,
        tempfile.TemporaryFile(dir=paths.work) as file,
    ):
        when = "always" if colour else "never"
        git.do(OWN_INDEX + _DIFF, copy.base, when, stdout=file.fileno())
        file.seek(0)
        yield file


def pager_of(source: Source) -> str:
    """Return the pager that the person's git would take there; empty for none."""
    pager = source.ask("var", "GIT_PAGER")
    return "" if pager == "cat" else pager


def wants_colour(source: Source) -> bool:
    """Return whether the person's git would colour a difference on a terminal."""
    return source.ask("config", "--get-colorbool", "color.diff", "true") == "true"
