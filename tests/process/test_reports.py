"""The roster under load: many teammates report at once while another thread reads it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Self

from teamd.files.paths import TeamPaths
from tests.e2e.harness import Project
from tests.waiting import wait_until

TEAM = 8
CALLS = 15


class Reader(threading.Thread):
    """Reads a file in a tight loop until the `with` block ends.

    Attributes:
        reads: the number of complete rosters.
        torn: all other contents.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._over = threading.Event()
        self.reads = 0
        self.torn: list[bytes] = []

    def run(self) -> None:
        while not self._over.is_set():
            content = self._path.read_bytes()
            try:
                names = [member["name"] for member in json.loads(content)["members"]]
            except ValueError:
                names = ["none"]
            whole = names == [f"t{number}" for number in range(TEAM)]
            self.reads += whole
            self.torn += [] if whole else [content]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def _script() -> str:
    """Return a script: each teammate calls a tool `CALLS` times; even ones end, odd ones fail."""
    calls = [{"use": [["task_get", {"task_id": str(number)}]]} for number in range(CALLS)]
    ends = ({"say": "Done."}, {"expect": "what nobody says"})
    turns = {f"t{number}": [*calls, ends[number % 2]] for number in range(TEAM)}
    return json.dumps({"turns": turns})


def test_eight_teammates_that_report_at_full_speed_end_with_correct_statuses(
    project: Project,
) -> None:
    """Written in place, the roster was torn in 9 to 54 % of reads, with one status of eight right.

    Each model call is a report, since the number of turns changes.
    """
    project.write("turns.json", _script())
    project.write(
        "team.toml",
        '[model]\nscript = "turns.json"\n[limits]\ncalls_per_wake = 1000\n'
        '[mail]\ndurability = "os"\n',
    )
    project.enlist(*(f"t{number}" for number in range(TEAM)))
    project.start()
    with Reader(project.paths.config) as reader:
        project.do("teamctl", "broadcast", "Go.")
        for number in range(TEAM):
            status = ("idle", "paused")[number % 2]
            turns = CALLS + (status == "idle")
            member = project.wait_for(f"t{number}", status, turns=turns)
            assert (member["turns"], member["pid"] is None) == (turns, False)
    assert reader.torn == []
    assert reader.reads > 100
    wait_until(lambda: project.mail("teamd") == "", what="every report is read")
    assert [project.member(f"t{n}")["status"] for n in range(TEAM)] == ["idle", "paused"] * 4


def test_a_file_that_vanishes_during_the_check_counts_as_no_mail(tmp_path: Path) -> None:
    """A teammate removes its taken mail while the supervisor checks which teammates to wake."""
    paths = TeamPaths(tmp_path)
    paths.create()
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            paths.inbox("ann").touch()
            paths.inbox("ann").unlink()

    coming = threading.Thread(target=come_and_go)
    coming.start()
    try:
        assert not any(paths.has_mail("ann") for _ in range(20_000))
    finally:
        over.set()
        coming.join()
