"""A person who watches the demo in a project, and checks that it leaves nothing behind."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import teamctl.demo
from teamd.settings.trust import TrustStore
from tests.e2e.harness import PROGRAMS, Ended, Project

STORY: Final = Path(teamctl.demo.__file__).with_name("story.toml")


class Hall:
    """A project of a person who watches the demo, and the folder for its temporary files."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.temporary = project.root / "tmp"
        self.temporary.mkdir()
        project.environment["TMPDIR"] = str(self.temporary)

    def watch(self, *arguments: str, cwd: Path | None = None) -> Ended:
        """Run the demo without pauses."""
        return self.project.run("teamctl", "demo", "--fast", *arguments, cwd=cwd)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a demo whose output is read while it plays."""
        pipe = subprocess.PIPE
        return self.project.begin("teamctl", "demo", *arguments, stdout=pipe, stderr=pipe)

    def hide_git(self) -> None:
        """Set a PATH without git; the demo then ends before its copy of a repository."""
        programs = self.project.root / "programs"
        programs.mkdir()
        where = f"/usr/local/bin:/usr/bin:/bin:{PROGRAMS}"
        for name in ("bwrap", "bash", "python3", "teamctl"):
            (programs / name).symlink_to(shutil.which(name, path=where) or name)
        self.project.environment["PATH"] = str(programs)

    def altered(self, *changes: tuple[str, str]) -> str:
        """Return a copy of the story with the first occurrence of some words replaced."""
        text = STORY.read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        return str(self.project.write("story.toml", text))

    def assert_cleared(self) -> None:
        """Check that no process and no folder is left."""
        assert self.project.survivors() == {}
        assert list(self.temporary.iterdir()) == []
        assert list(TrustStore(self.project.environment).confirmed()) == []


@contextmanager
def opened(project: Project) -> Iterator[Hall]:
    """Yield a hall in a project whose model server is never called."""
    yield Hall(project)
    assert not project.server.requests, "the demo has asked a model"


def read_until(stream: IO[str] | None, words: str) -> str:
    """Read lines up to the first that contains these words; return them."""
    assert stream is not None
    lines: list[str] = []
    while words not in (line := stream.readline()):
        assert line, f"it ended without {words!r}: {lines}"
        lines.append(line)
    return "".join([*lines, line])
