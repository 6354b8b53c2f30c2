"""Real starts: a team starts on a disk after a power cut and works until everything is done."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from teamd import secret_environment
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.process_id import Identity
from tests.forked.client import Forked, interpreters_part
from tests.forked.client import server as forks
from tests.process.powercut.disk import MODELS, PRELOAD, Disk, Record, State, put_state, read_log
from tests.process.powercut.judge import Judge, Told
from tests.process.powercut.preload.sitecustomize import mark
from tests.strict.asked import Asked
from tests.strict.replies import Answer, say
from tests.strict.server import StrictServer
from tests.waiting import wait_until

TEAMS: Final = {"": ".team", "web": ".teams/web", "deep": "deep/er/.team"}
_DECISIVE: Final = ("mark", "ftruncate", "rename", "unlink")
_SYNCS: Final = ("sync", "syncdir")
_SHOWN: Final = 5
_SHARED_MEMORY: Final = Path("/dev/shm")


class Facts:
    """The acknowledgements so far, by team."""

    def __init__(self) -> None:
        self.told: dict[str, Told] = defaultdict(Told)

    def hear(self, facts: dict[str, Any]) -> None:
        """Record a mark; its key `team` names a team other than the first."""
        self.told[facts.get("team", "")].hear(facts)


@dataclass(frozen=True, slots=True)
class Cut:
    """A power cut at one moment, by one model.

    Attributes:
        number: the number of the last record before it.
        label: the name of the model.
        state: the disk after it.
    """

    number: int
    label: str
    state: State

    def __str__(self) -> str:
        return f"record {self.number}, {self.label}"


@dataclass(slots=True)
class Tally:
    """The results of a series of cuts.

    Attributes:
        states: the number of distinct judged states by model.
        complaints: pairs of a cut and its complaints.
    """

    states: Counter[str] = field(default_factory=Counter)
    complaints: list[tuple[Cut, list[str]]] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{label} {count}" for label, count in self.states.items())
        bad = "".join(f"\n{cut}: {lines}" for cut, lines in self.complaints[:_SHOWN])
        return f"{self.states.total()} distinct states ({kinds}), {len(self.complaints)} bad{bad}"


def cuts(
    records: Iterable[Record],
    before: State,
    facts: Facts,
    *,
    chance: Random,
    mixed: int,
    share: float = 1.0,
    decisive: bool = False,
) -> Iterator[Cut]:
    """Yield every distinct state, by each model and `mixed` mixtures, moment by moment.

    With a `share` below 1 only this share of the moments is checked; with `decisive`, the decisive
    moments as well.

    At each state, `facts` holds the acknowledgements before it. An equal state after further
    acknowledgements counts as a different state.
    """
    disk = Disk(before)
    seen: set[int] = set()
    heard = 0
    for number, record in enumerate(records):
        if record[1] == "mark":
            facts.hear(record[2])
            heard += 1
        elif not disk.apply(record):
            continue
        if chance.random() >= share and not (decisive and _is_decisive(record)):
            continue
        states = [(label, disk.after(label)) for label in MODELS]
        states += [("mixed", disk.after_by_chance(chance)) for _ in range(mixed)]
        for label, state in states:
            key = hash((heard, frozenset(state.items())))
            if key not in seen:
                seen.add(key)
                yield Cut(number, label, state)


def _is_decisive(record: Record) -> bool:
    """Return whether a record is an acknowledgement, a sent message or a removal.

    Unsynced changes can be lost at most other moments too, but matter at these.
    """
    _, call, place, *_ = record
    return call in _DECISIVE or (call == "pwrite" and "inbox/" in place)


class Court:
    """Judges states in its own folder, in memory if the system supports that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def complaints(self, cut: Cut, facts: Facts) -> list[str]:
        """Return the broken promises of a state."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        put_state(self._folder, cut.state)
        judges = {
            team: Judge(self._folder / TEAMS[team], told) for team, told in facts.told.items()
        }
        across = {sent for judge in judges.values() for sent in judge.sent_across}
        return [
            f"{team or 'the first team'}: {line}"
            for team, judge in judges.items()
            for line in judge.complaints(
                {(to, text) for where, to, text in across if where == team}
            )
        ]


@contextmanager
def court() -> Iterator[Court]:
    """Create a court, and remove its folder at the end."""
    place = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Court(Path(folder) / "project")


def judge_all(found: Iterable[Cut], facts: Facts, *, most_complaints: int = 20) -> Tally:
    """Judge each cut as it comes; stop after `most_complaints` bad ones."""
    tally = Tally()
    with court() as judging:
        for cut in found:
            tally.states[cut.label] += 1
            if complaints := judging.complaints(cut, facts):
                tally.complaints.append((cut, complaints))
                if len(tally.complaints) >= most_complaints:
                    break
    return tally


def sites(records: Iterable[Record]) -> list[str]:
    """Return the lines of the program that requested a sync."""
    syncs = (record for record in records if record[1] in _SYNCS)
    return sorted({site for record in syncs for site in record[4]})


def cuts_without(
    site: str,
    records: Iterable[Record],
    before: State,
    facts: Facts,
    *,
    decisive: bool,
) -> Iterator[Cut]:
    """Yield the states that are only possible if one line of the program does not sync.

    With `decisive`, only at decisive moments.
    """
    disk, other = Disk(before), Disk(before, site)
    seen: set[int] = set()
    heard = 0
    begun = False  # both disks are equal until that line runs
    for number, record in enumerate(records):
        if record[1] == "mark":
            facts.hear(record[2])
            heard += 1
        elif not disk.apply(record) | other.apply(record):
            continue
        begun = begun or (record[1] in _SYNCS and site in record[4])
        if not begun or (decisive and not _is_decisive(record)):
            continue
        for label in MODELS:
            state = other.after(label)
            key = hash((heard, frozenset(state.items())))
            if key not in seen and state != disk.after(label):
                seen.add(key)
                yield Cut(number, label, state)


_SECONDS: Final = 60.0
_RESTS: Final = ("idle", "shutdown", "failed", "paused")


class Starts:
    """Starts teams one after the other, in one folder.

    Args:
        folder: an empty folder.
        commands: the log in which commands of the recorded run record that they ran.
    """

    def __init__(self, folder: Path, commands: Path) -> None:
        self._folder = folder
        self._commands = commands
        self._log: Path | None = None
        self._asked = 0
        self._lock = threading.Lock()
        self._server = StrictServer(self._answer)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def recover(self, cut: Cut, told: Told) -> tuple[list[str], list[Record]]:
        """Start a team, wait until it is done, stop it, and read the person's mail.

        Returns:
            The broken promises, judged by the acknowledgements before the cut; and a recording of
                the start, for a second cut.
        """
        project = self._folder / "project"
        shutil.rmtree(self._folder, ignore_errors=True)
        project.mkdir(parents=True)
        put_state(project, cut.state)
        self._log = self._folder / "second.log"
        self._asked, before = 0, self._commands.stat().st_size
        complaints = self._live(project)
        told = copy.deepcopy(told)
        told.asked += self._asked
        for record in read_log(self._commands, before):
            told.hear(record[2])
        complaints += Judge(project / ".team", told).complaints()
        complaints += [f"the server refused: {error}" for error in self._server.refused]
        self._server.refused.clear()
        return complaints, read_log(self._log)

    def _live(self, project: Path) -> list[str]:
        paths = TeamPaths(project / ".team")
        with closing(self._begin("teamd", "start", "--foreground")) as teamd:
            process = Identity.of(teamd.pid)
            try:
                wait_until(
                    lambda: process is None or not process.alive or self._rests(paths),
                    timeout_seconds=_SECONDS,
                    what="the team rests",
                )
            except AssertionError as error:
                os.kill(teamd.pid, signal.SIGKILL)
                return [f"{error}: {self._roster(paths)}"]
            if process is None or not process.signal(signal.SIGTERM):
                return [f"teamd ended with {teamd.wait(_SECONDS)}: {self._output()}"]
            if status := teamd.wait(_SECONDS):
                return [f"teamd stopped with {status}: {self._output()}"]
        with closing(self._begin("teamctl", "inbox")) as teamctl:
            if status := teamctl.wait(_SECONDS):
                return [f"teamctl inbox ended with {status}: {self._output()}"]
        return []

    def _rests(self, paths: TeamPaths) -> bool:
        if b'"event": "ready"' not in _content(paths.log("teamd")):
            return False
        roster = self._roster(paths)
        return all(
            member["status"] in _RESTS
            and (member["status"] != "idle" or not Mailbox(paths, member["name"]).waiting())
            for member in roster
        )

    @staticmethod
    def _roster(paths: TeamPaths) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(paths.config.read_bytes())["members"]
        return found

    def _answer(self, asked: Asked) -> Answer:
        with self._lock:
            self._asked += 1
            if self._log is not None:
                mark(str(self._log), {"asked": asked.name})
        return say("Nothing to do.")

    def _begin(self, *argv: str) -> Forked:
        environment = {
            **interpreters_part(os.environ),
            **self._server.environment,
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "PYTHONPATH": str(PRELOAD),
            "POWERCUT_LOG": str(self._log),
            "POWERCUT_ROOT": str(self._folder / "project"),
            "POWERCUT_KILLS": "",
        }
        plain, _ = secret_environment.split(environment)
        with (
            secret_environment.handed_over(environment) as secrets,
            Path(os.devnull).open("rb") as nothing,
            (self._folder / "output").open("ab") as output,
        ):
            given = [nothing.fileno(), output.fileno(), output.fileno(), secrets]
            if "--foreground" in argv:  # otherwise it would start again to receive its secrets
                argv, environment = (*argv, secret_environment.OPTION, "3"), plain
            return forks().fork(
                argv, given, cwd=self._folder / "project", env=environment, new_session=True
            )

    def _output(self) -> str:
        return _content(self._folder / "output").decode(errors="replace")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
