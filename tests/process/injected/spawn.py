"""The operation with the most steps: a supervisor starts, serves a spawn request, and ends."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from teamd.control import ControlReply, ControlRequest
from teamd.errors import ExitCode
from teamd.files import files
from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import TEAMD
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.process.injected.injections import HERE, Ended, Injection, clean
from tests.process.injected.operations import enlist
from tests.waiting import wait_until

SUPERVISE: Final = HERE / "supervise.py"
# Part of the answer to a request that a killed supervisor had taken.
UNKNOWN: Final = "whether it was done"
_LONG_SECONDS: Final = 600.0


class Spawn:
    """A supervisor's life with one request: done and acknowledged, or refused and undone."""

    def prepare(self, paths: TeamPaths) -> None:
        enlist(paths)
        ask(paths, "jo")

    def argv(self, paths: TeamPaths) -> list[str]:
        return [sys.executable, str(SUPERVISE), str(paths.root)]

    def name(self, _: Injection) -> str:
        return "spawn"

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """Check that the roster is readable, each prompt was sent once, and another spawn works."""
        served = ended.check(injection)
        assert not served or answer(paths, "jo"), f"no answer after {injection}"
        wait_until(lambda: not left(paths), what=f"all processes end after {injection}")
        self._look(paths, "jo", injection)
        # Otherwise temporary files are removed; a later start removes the rest.
        may_lie = injection.deadly or injection.call == "unlink"
        assert may_lie or not list(paths.root.rglob(".teamd-*")), str(injection)
        ask(paths, "kim")
        again = clean(self.argv(paths))
        assert again.status == 0, f"{injection}: {again}"
        assert self._look(paths, "kim", injection), f"kim is not spawned after {injection}"
        self._look(paths, "jo", injection)
        assert not Mailbox(paths, TEAMD).waiting(), str(injection)
        assert all(m.pid is None for m in Roster(paths).read().members), str(injection)

    def _look(self, paths: TeamPaths, name: str, injection: Injection) -> bool:
        """Check that a spawn is complete or did not happen; return whether it was acknowledged."""
        member = Roster(paths).read().find(name)
        prompts = [message.id for message in Mailbox(paths, name).peek()]
        given = answer(paths, name)
        well = given is not None and given.exit_code == ExitCode.DONE
        assert prompts in ([], [name]), f"{prompts} after {injection}"
        assert Mailbox(paths, name).rejected() == 0, str(injection)
        if at_work(member) and not (injection.deadly and given is None):
            assert prompts == [name], f"{name} works without a prompt after {injection}"
        assert at_work(member) or not well, f"{given} and {member} after {injection}"
        refused = given is not None and not well and UNKNOWN not in given.text
        assert not (refused and at_work(member)), f"{given}, but {member} after {injection}"
        if refused and not injection.late:
            assert (member, prompts) == (None, []), f"{given}, but half done after {injection}"
        return well


def at_work(member: Member | None) -> bool:
    return member is not None and member.status is Status.WORKING


def ask(paths: TeamPaths, name: str) -> None:
    """Request a teammate; the ids of the request and of the prompt are its name."""
    arguments = {"name": name, "role": "clerk", "prompt": "Go."}
    deadline = time.time() + _LONG_SECONDS
    request = ControlRequest(command="spawn", arguments=arguments, deadline=deadline, id=name)
    Mailbox(paths, TEAMD, durable=False).put(request.encode())


def answer(paths: TeamPaths, name: str) -> ControlReply | None:
    """Return the supervisor's answer to a request, if any."""
    content = files.read(paths.replies / f"{name}.json")
    return None if content is None else ControlReply.decode(content)


def left(paths: TeamPaths) -> list[int]:
    """Return the pids of processes that were started for a team."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(paths.root).encode() in words:
            found.append(int(process.name))
    return found
