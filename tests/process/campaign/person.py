"""The person at the command line, whose commands are killed."""

from __future__ import annotations

import signal
import subprocess
from random import Random

from teamd.files import locks
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, Message
from teamd.process_id import Identity
from tests.e2e.harness import Project
from tests.process.campaign import places
from tests.process.campaign.killer import Killer
from tests.process.campaign.ledger import Ledger
from tests.process.campaign.places import Place
from tests.waiting import wait_until


class Person:
    """Sends and reads mail.

    Args:
        names: whom it writes to.
        ledger: hears of what was acknowledged.
        label: begins what it writes; the ids of two persons are alike all the same.
    """

    def __init__(
        self,
        project: Project,
        names: tuple[str, ...],
        chance: Random,
        killer: Killer,
        ledger: Ledger,
        *,
        label: str = "",
    ) -> None:
        self._project = project
        self._names = names
        self._chance = chance
        self._killer = killer
        self._ledger = ledger
        self._label = label
        self._count = 0
        self._printed = project.root / "printed"

    @property
    def printed(self) -> str:
        """All that it was shown."""
        return self._printed.read_text(encoding="utf-8")

    def be_killed_sending(self, wanted: Place | None) -> bool:
        """Kill `teamctl send`; half of the killed are repeated under their id, as one may.

        Who is not was never told that the message is sent: it may be there, once.
        """
        self._count += 1
        made = f"command-{self._count}"
        to, content = self._chance.choice(self._names), f"{self._label}{made}"
        argv = ("teamctl", "send", to, content, "--id", made)
        command = self._project.begin(*argv, installed=True, stdout=subprocess.DEVNULL)
        paths = self._project.paths
        hit = self._killer.kill(
            "teamctl send",
            lambda: Identity.of(command.pid),
            lambda pid: places.of_sender(paths, pid),
            wanted,
            comes_back=False,
        )
        status = command.wait()
        assert status in (0, -signal.SIGKILL), f"{argv} ended with {status}"
        if status and self._count % 2:
            self._project.do(*argv)
            status = 0
        if not status:
            self._ledger.commands.append((to, content))
        return hit

    def be_killed_reading(self) -> bool:
        """Kill `teamctl inbox` while it takes what it shows: one message at least."""
        paths = self._project.paths
        self._count += 1
        content = f"{self._label}note-{self._count}"
        Mailbox(paths, LEAD).put(Message(sender=self._names[0], to=LEAD, content=content))
        self._ledger.commands.append((LEAD, content))
        # It would be through between two looks at it: it is held up at the door until it is seen.
        with self._printed.open("ab") as printed, locks.locked(paths.inbox(LEAD)):
            command = self._project.begin("teamctl", "inbox", installed=True, stdout=printed)
            wait_until(lambda: places.of_reader(paths, command.pid) is Place.DRAIN)
        hit = self._killer.kill(
            "teamctl inbox",
            lambda: Identity.of(command.pid),
            lambda pid: places.of_reader(paths, pid),
            Place.DRAIN,
            comes_back=False,
        )
        status = command.wait()
        assert status in (0, -signal.SIGKILL), f"teamctl inbox ended with {status}"
        return hit

    def read(self) -> None:
        """Read all there is."""
        with self._printed.open("ab") as printed:
            printed.write(self._project.do("teamctl", "inbox").encode())
