"""Time from a request for a teammate to its first model request, beside a fresh process.

`python -m tests.bench.spawn [--short]`. The team is already running; the fresh process imports the
SDK and makes one call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from teamd import control
from teamd.control import ControlRequest
from teamd.files.paths import STATE_VARIABLE, TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import Message
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.bench import imitation, ruler
from tests.waiting import wait_until

_FRESH: Final = "a fresh process, the SDK alone"
_SPAWN: Final = "spawn"
_PROGRAMS: Final = Path(sys.executable).parent
_SETTINGS: Final = "[supervision]\nhibernate_seconds = 0.5\n"
_SDK: Final = """
from anthropic import Anthropic
with Anthropic().messages.stream(model="bench", max_tokens=10, system="You are 'fresh'",
                                 messages=[{"role": "user", "content": "Go."}]) as stream:
    stream.get_final_message()
"""


class Scene:
    """A running team, and the server for all model requests."""

    def __init__(
        self, folder: Path, served: imitation.Imitation, *, settings: str = _SETTINGS
    ) -> None:
        self._folder, self._served, self._numbers = folder, served, count()
        self.paths = TeamPaths(folder / ".team")
        home = {"HOME": str(folder), STATE_VARIABLE: str(folder / "state")}
        self._environment = {"PATH": os.environ["PATH"], **home, **served.environment}
        (folder / "team.toml").write_text(settings, encoding="utf-8")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run a teamd for the length of a block, with one teammate, eve."""
        self._teamd("start")
        try:
            self._spawn("eve")
            yield
        finally:
            self._teamd("stop")

    def spawn(self) -> float:
        """Return the seconds from a request for a teammate to its first model request."""
        return self._spawn(f"t{next(self._numbers)}")

    def _spawn(self, name: str) -> float:
        facts = {"name": name, "role": "clerk", "prompt": "Go."}
        begun = time.monotonic()
        request = ControlRequest.within(60, "spawn", arguments=facts)
        control.submit(self.paths, request)
        seconds = self._served.wait_for(name, after=begun) - begun
        wait_until(lambda: Roster(self.paths).read().get(name).status is Status.IDLE)
        return seconds

    def wake(self) -> float:
        """Return the seconds from mail to the request of a teammate that has just answered."""
        self._write()
        return self._write()

    def wake_from_hibernation(self) -> float:
        """Return the seconds from mail to the request of a hibernating teammate."""
        before = self._hibernations()
        self._write()
        wait_until(lambda: self._hibernations() > before, what="eve hibernates")
        return self._write()

    def _write(self) -> float:
        begun = time.monotonic()
        message = Message(sender="lead", to="eve", content=f"Message {next(self._numbers)}.")
        Mailbox(self.paths, "eve").put(message)
        seconds = self._served.wait_for("eve", after=begun) - begun
        wait_until(lambda: not Mailbox(self.paths, "eve").waiting())
        return seconds

    def _hibernations(self) -> int:
        lines = self.paths.log("teamd").read_text(encoding="utf-8").splitlines()
        events = [json.loads(line) for line in lines]
        return sum((one["event"], one.get("name")) == ("hibernates", "eve") for one in events)

    def fresh_sdk(self) -> float:
        """Return the seconds from the start of a process to its only request, with the bare SDK."""
        begun = time.monotonic()
        with subprocess.Popen((sys.executable, "-c", _SDK), env=self._environment) as process:
            try:
                return self._served.wait_for("fresh", after=begun) - begun
            finally:
                process.kill()

    def _teamd(self, verb: str) -> None:
        argv = (_PROGRAMS / "teamd", verb)
        quiet = subprocess.DEVNULL
        subprocess.run(argv, cwd=self._folder, env=self._environment, stdout=quiet, check=True)


def main() -> None:
    rounds = 1 if ruler.options(__doc__).short else 15
    with tempfile.TemporaryDirectory() as folder, imitation.running() as served:
        scene = Scene(Path(folder), served)
        cases = {
            _FRESH: scene.fresh_sdk,
            _SPAWN: scene.spawn,
            "mail wakes one that hibernates": scene.wake_from_hibernation,
            "mail wakes one that idles": scene.wake,
        }
        with scene.running():
            samples = ruler.interleave(cases, rounds)
    fresh = ruler.median(samples[_FRESH])
    rows = [["until the first request, ms", "median", "lowest", "to fresh", "at most"]]
    for name, seen in samples.items():
        middle = ruler.median(seen)
        figures = [f"{1000 * middle:.1f}", f"{1000 * min(seen):.1f}", f"{middle / fresh:.3f}"]
        rows.append([name, *figures, "0.5" if name == _SPAWN else ""])
    print(ruler.table("Spawn and wake", rows))


if __name__ == "__main__":
    main()
