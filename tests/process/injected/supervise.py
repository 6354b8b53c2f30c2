"""A supervisor into which failures are injected: `python supervise.py TEAM`.

It is not part of `programs`, which finish before its imports would be loaded.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from teamd import daemon
from teamd.errors import TeamError
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD
from teamd.supervisor.fork import ChildProgram

LOOK_SECONDS: Final = 0.1


def idle(*_: object) -> int:
    """Run a teammate that does nothing until its supervisor ends it."""
    while True:
        signal.pause()


IDLE: Final = ChildProgram(
    run=idle, load=lambda: None, warning=lambda: None, find_role=lambda _: None
)


def supervise(paths: TeamPaths) -> None:
    """Run `teamd` with teammates that do nothing, until all requests are processed."""
    control = Mailbox(paths, TEAMD)

    def look(*_: object) -> None:
        with suppress(TeamError):
            if not control.waiting():
                signal.raise_signal(signal.SIGTERM)

    def ready() -> None:
        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)

    try:
        daemon.serve(paths, paths.settings, ready=ready, prepare=lambda _: IDLE)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    try:
        supervise(TeamPaths(Path(sys.argv[1])))
    except TeamError as error:
        sys.exit(str(error))
