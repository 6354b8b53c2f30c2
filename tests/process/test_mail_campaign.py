"""Many writers, restarting readers, one inbox: no message is lost, torn, doubled or reordered."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import EMPTY, Mailbox
from teamd.transcript.file import Transcript
from teamd.transcript.records import mail_in
from tests import mail_programs
from tests.mail_programs import DELIVERED, OWNER
from tests.waiting import wait_until

PROGRAMS = Path(__file__).parents[1] / "mail_programs.py"
WRITERS = 8
SHELL = """
n=0
while [ $n -lt "$3" ]; do
    flock "$1" -c "echo '{\\"from\\": \\"$2\\", \\"n\\": $n, \\"content\\": \\"xyz\\"}' >> '$1'"
    n=$((n + 1))
done
"""

FORKING = multiprocessing.get_context("fork")  # forked processes do not repeat the imports
Sent = dict[str, tuple[int, int]]  # sender -> (number of messages, size of each)


class Campaign:
    """Writers and readers of one inbox."""

    def __init__(self, paths: TeamPaths) -> None:
        self._paths = paths
        self._writers: list[ForkProcess] = []
        self._readers: list[ForkProcess] = []
        self._started: list[subprocess.Popen[str]] = []
        self._sent: Sent = {}

    def write(self, count: int, size: int, durability: str, *, queue: int = 1 << 30) -> None:
        """Start another writer, which waits while the inbox holds more than `queue` bytes."""
        sender = f"writer{len(self._writers)}"
        self._sent[sender] = (count, size)
        self._write(mail_programs.write, sender, count, size, durability, queue)

    def write_foreign(self, count: int, size: int) -> None:
        """Start two writers without our code: one locks with fcntl, one with portalocker."""
        for program in (mail_programs.write_foreign, mail_programs.write_with_portalocker):
            sender = f"foreign{len(self._writers)}"
            self._sent[sender] = (count, size)
            self._write(program, sender, count, size)

    def write_by_shell(self, count: int) -> None:
        """Start a shell script that writes with `flock` and `echo` only."""
        argv = ["sh", "-c", SHELL, "sh", str(self._paths.inbox(OWNER)), "shell", str(count)]
        self._sent["shell"] = (count, 3)
        self._shell = subprocess.Popen(argv, text=True)
        self._started.append(self._shell)

    def read(self, durability: str) -> None:
        self._readers.append(self._fork(mail_programs.read, durability))

    def read_and_die(self, durability: str, seed: str) -> subprocess.Popen[str]:
        """Start readers that kill themselves, one after the other, until standard input closes."""
        words = map(str, (PROGRAMS, "read_and_die", self._paths.root, durability, seed))
        dying = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._started.append(dying)
        return dying

    def wait_for_writers(self) -> None:
        for writer in self._writers:
            writer.join(800)
        assert [writer.exitcode for writer in self._writers] == [0] * len(self._writers)

    def wait_for_shell(self) -> None:
        assert self._shell.wait(300) == 0

    def wait_for_reader(self) -> None:
        """Wait until the reader has processed every message."""
        box = Mailbox(self._paths, OWNER)
        wait_until(lambda: not box.waiting(), timeout_seconds=60, what="an empty mailbox")

    def check(self) -> int:
        """Compare delivered with sent messages; return the number of repeated deliveries."""
        transcript = Transcript(self._paths.transcript(DELIVERED))
        records = [mail for record in transcript.records() for mail in mail_in(record)]
        fresh = {mail.id: mail for mail in reversed(records)}
        by_sender = defaultdict(list)
        for one in dict.fromkeys(mail.id for mail in records):
            found = fresh[one]
            by_sender[found.sender].append((found.extra["n"], found.extra["size"]))
        assert sorted(by_sender) == sorted(self._sent)
        for sender, (count, size) in self._sent.items():
            assert by_sender[sender] == [(n, size) for n in range(count)]
        box = Mailbox(self._paths, OWNER)
        assert (box.take(), box.rejected()) == (EMPTY, 0)
        return len(records) - len(fresh)

    def end(self) -> None:
        for process in (*self._writers, *self._readers):
            process.kill()
            process.join()
        for started in self._started:
            started.kill()
            started.communicate()

    def _write(self, program: Callable[..., None], *arguments: object) -> None:
        self._writers.append(self._fork(program, *arguments))

    def _fork(self, program: Callable[..., None], *arguments: object) -> ForkProcess:
        process = FORKING.Process(target=program, args=(self._paths, *map(str, arguments)))
        process.start()
        return process


@pytest.fixture
def campaign(tmp_path: Path) -> Iterable[Campaign]:
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    made = Campaign(paths)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "size", "durability"),
    [
        (150, 100, "disk"),
        (25, 20_000, "os"),
        pytest.param(2000, 20_000, "os", marks=pytest.mark.long),
        pytest.param(2000, 20_000, "disk", marks=pytest.mark.long),
    ],
)
def test_every_message_arrives_once_and_in_order(
    campaign: Campaign, count: int, size: int, durability: str
) -> None:
    """Without a lock, 9 to 82 of 100 messages were lost although their senders were told "sent"."""
    campaign.read(durability)
    for _ in range(WRITERS):
        campaign.write(count, size, durability)
    campaign.wait_for_writers()
    campaign.wait_for_reader()
    assert campaign.check() == 0


@pytest.mark.slow
def test_messages_of_foreign_programs_are_delivered_too(campaign: Campaign) -> None:
    """Mail may come from a two-line script in any language, without ids."""
    campaign.read("os")
    for _ in range(2):
        campaign.write(800, 100, "os")
        campaign.write_foreign(200, 5000)
    campaign.write_by_shell(60)
    campaign.wait_for_writers()
    campaign.wait_for_shell()
    campaign.wait_for_reader()
    assert campaign.check() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "seed", "durability"),
    [
        (200, "1", "disk"),
        pytest.param(20_000, "2", "os", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
        pytest.param(20_000, "2", "disk", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_killed_readers_lose_nothing(
    campaign: Campaign, count: int, seed: str, durability: str
) -> None:
    """With a lock alone, every kill lost the current batch.

    Now messages of it are delivered again.
    """
    dying = campaign.read_and_die(durability, seed)
    for _ in range(3):
        campaign.write(count, 100, durability, queue=5000)
    campaign.write_foreign(count // 2, 5000)
    campaign.write_by_shell(count // 5)
    campaign.wait_for_writers()
    campaign.wait_for_shell()
    kills = [int(line) for line in dying.communicate("")[0].split()]
    campaign.read(durability)
    campaign.wait_for_reader()
    again = campaign.check()
    print(f"seed {seed}, {durability}: {len(kills)} kills, {again} messages came again")  # noqa: T201
    assert set(kills) == {-signal.SIGKILL}
    assert len(kills) >= 10
