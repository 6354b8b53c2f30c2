"""What a kill cannot show and a power cut would: data before its name, both before the answer."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from teamd.files.paths import TeamPaths
from tests.process.injected.injections import traced
from tests.process.injected.operations import Read, RosterWrite, Send

if TYPE_CHECKING:
    from tests.process.injected.operations import Operation

_CALL = re.compile(r"(\w+)\((?:\d+<([^>]*)>)?(.*?)(\) = .*)?$")
CREATE: Final = """
import sys
from pathlib import Path
from teamd.files.paths import TeamPaths

TeamPaths(Path(sys.argv[1])).create()
"""
_QUOTED = re.compile(r'"([^"]*)"')


class Disk:
    """What of a team would be lost if the power went now.

    Attributes:
        data: files with bytes that are not on disk.
        names: files whose names are not.
        mistakes: what was done too early.
    """

    def __init__(self, team: Path) -> None:
        self._team = team
        self._named = set(team.rglob("*"))
        self.data: set[Path] = set()
        self.names: set[Path] = set()
        self.mistakes: list[str] = []

    def see(self, line: str) -> None:
        """Follow one system call."""
        found = _CALL.match(line)
        if found is None or str(self._team) not in line:
            return
        call, opened, rest, result = found.groups()
        path = Path(opened or "")
        if call == "rename":
            self._rename(*map(Path, _QUOTED.findall(rest)))
        elif call == "mkdir" and result == ") = 0":
            self.names.update(map(Path, _QUOTED.findall(rest)))
        elif call in ("fsync", "fdatasync"):
            self.data.discard(path)
            self.names = {name for name in self.names if name.parent != path}
            if path.is_dir():
                self._named.update(path.iterdir())
        elif call in ("write", "pwrite64", "ftruncate"):
            self._change(path, call)

    def _change(self, path: Path, call: str) -> None:
        if call == "ftruncate" and (self.data | self.names):
            self.mistakes.append(f"{path} is emptied while {self} is not safe")
        self.data.add(path)
        if path not in self._named and path.suffix != ".tmp":
            self.names.add(path)

    def _rename(self, old: Path, new: Path) -> None:
        if old in self.data:
            self.mistakes.append(f"{new} gets its name before its data is safe")
        self.data.discard(old)
        self.names.add(new)

    def __str__(self) -> str:
        return ", ".join(str(path.name) for path in self.data | self.names)


@pytest.mark.strace
@pytest.mark.parametrize(
    "operation", [Send(first=True), Send(), Read(), Read(again=True), RosterWrite()]
)
def test_nothing_depends_on_what_is_not_on_disk_yet(tmp_path: Path, operation: Operation) -> None:
    paths = TeamPaths(tmp_path / ".team")
    operation.prepare(paths)
    disk = Disk(paths.root)
    for line in traced(operation.argv(paths), tmp_path / "trace"):
        disk.see(line)
    assert disk.mistakes == []
    assert not disk.data | disk.names, f"{disk} is not safe at the end"


@pytest.mark.strace
def test_the_names_of_new_folders_are_on_disk_too(tmp_path: Path) -> None:
    """What was synced within them would be gone with them."""
    root = tmp_path / "new" / "project" / ".team"
    disk = Disk(tmp_path)
    found = set()
    for line in traced([sys.executable, "-c", CREATE, str(root)], tmp_path / "trace"):
        disk.see(line)
        found |= {name.name for name in disk.names}
    assert {"new", "project", ".team", "inbox"} <= found
    assert not disk.names, f"{disk} is not safe at the end"
