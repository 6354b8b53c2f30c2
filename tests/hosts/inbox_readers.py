"""Inbox readers without teammates: `python -m tests.hosts.inbox_readers FOLDER…`, one team each.

For each message in an inbox this prints the sender, the message's number, the receiver, and the
latency in milliseconds. A content is `NUMBER SENT`, in seconds of the monotonic clock, and any
further text.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

from teamd.files.paths import TeamPaths
from teamd.files.watch import watch


class Inboxes:
    """The inboxes of one team, from which nothing is taken.

    Args:
        folder: the team's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.watched = watch(TeamPaths(folder).inboxes)
        self._folder = TeamPaths(folder).inboxes
        self._read: dict[str, int] = {}

    def read(self) -> None:
        """Print new messages."""
        names = self.watched.changed()
        now = time.monotonic()
        known = (path.name for path in self._folder.glob("*.jsonl")) if names is None else names
        for name in known:
            if name.endswith(".jsonl"):
                self._read_box(name, now)

    def _read_box(self, name: str, now: float) -> None:
        done = self._read.get(name, 0)
        with (self._folder / name).open("rb") as file:
            file.seek(done)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read[name] = done + len(whole)
        for line in whole.splitlines():
            found = json.loads(line)
            number, sent, *_ = found["content"].split()
            late = (now - float(sent)) * 1000
            say(found["from"], number, name, f"{late:.3f}")


def say(*words: str) -> None:
    """Print a line and flush it."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Read until killed."""
    teams = [Inboxes(Path(folder)) for folder in sys.argv[1:]]
    by_fd = {team.watched.fileno(): team for team in teams}
    for team in teams:
        team.read()
    say("reading")
    while True:
        ready, _, _ = select.select([*by_fd], [], [])
        for fd in ready:
            by_fd[fd].read()


if __name__ == "__main__":
    main()
