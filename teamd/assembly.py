"""A supervisor put together from its parts, over whatever its children run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from teamd.agent.pulse import Pulse
from teamd.errors import StoreError
from teamd.models import Usage
from teamd.models.prices import Prices
from teamd.protocol import TEAMD
from teamd.service import leave_terminal
from teamd.store import damaged, running, teams
from teamd.store.approvals import Approvals
from teamd.store.ledger import Ledger
from teamd.store.mailbox import Mailbox
from teamd.store.rebuilding import mended
from teamd.store.roster import Roster
from teamd.store.terms import terms_of
from teamd.store.watch import watch
from teamd.supervisor import orphans
from teamd.supervisor.blame import Blame
from teamd.supervisor.commands import Commands
from teamd.supervisor.control import Control
from teamd.supervisor.handshakes import Handshakes
from teamd.supervisor.register import Register
from teamd.supervisor.resuming import Resuming
from teamd.supervisor.shutdowns import Shutdowns
from teamd.supervisor.spawning import Spawning
from teamd.supervisor.supervisor import Supervisor
from teamd.supervisor.teammates import Teammates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from decimal import Decimal

    from teamd.parts import Parts
    from teamd.supervisor.signals import Signals
    from teamd.vitals import Vitals


class Worker(Protocol):
    """What a child is, and what is to be known before there is one."""

    def live(self, name: str, bell: int, pulse: Pulse) -> int:
        """Be that teammate until told to stop; returns the exit code."""

    def caution(self) -> str | None:
        """What whoever spawns should know."""

    def load(self) -> None:
        """Load what the next child needs, unless it is loaded; called before each fork."""

    def role(self, role: str) -> object:
        """Look at the file of a role.

        Raises:
            SettingsError: it cannot be understood.
        """


@dataclass(frozen=True, slots=True)
class Assembled:
    """A supervisor, and those of its parts that a start needs."""

    supervisor: Supervisor
    spawning: Spawning
    register: Register
    teammates: Teammates


def assembled(
    parts: Parts,
    worker: Worker,
    signals: Signals,
    *,
    alive: Callable[[], None],
    round_seconds: float,
) -> Assembled:
    """Put a supervisor together; nothing of it runs yet.

    Args:
        parts: as the settings want them.
        worker: what its children run.
        signals: caught already.
        alive: called each round.
        round_seconds: how long a round may last.

    Raises:
        TeamError: the files of the team cannot be read or written.
    """
    repaired = _repair(parts)
    ledger = Ledger(parts.paths.ledger)
    ledger.agree(terms_of(parts.settings))
    watching = watch(parts.paths.inboxes)
    chores = parts.chores()
    register = _register(parts)
    if repaired:
        register.tell_lead(repaired)
    private = [parts.claim, watching.fileno(), chores.fileno(), *signals.descriptors]
    teammates = _teammates(parts, register, worker, private=private)
    handshakes = Handshakes(
        approvals=Approvals(parts.paths, parts.post),
        teammates=teammates,
        register=register,
        journal=parts.journal,
    )
    resuming = Resuming(
        teammates=teammates,
        register=register,
        ledger=ledger,
        stop_seconds=lambda: parts.settings.supervision.stop_seconds,
    )
    spawning = Spawning(
        teammates=teammates,
        register=register,
        handshakes=handshakes,
        resuming=resuming,
        post=parts.post,
        journal=parts.journal,
        check_role=worker.role,
    )
    commands = Commands(
        teammates=teammates,
        register=register,
        spawning=spawning,
        shutdowns=Shutdowns(handshakes, register),
        resuming=resuming,
        journal=parts.journal,
        caution=worker.caution,
        reload=parts.reload,
    )
    control = Control(
        paths=parts.paths,
        mailbox=Mailbox(parts.paths, TEAMD, durable=False),
        register=register,
        teammates=teammates,
        commands=commands,
        handshakes=handshakes,
        chores=chores,
        journal=parts.journal,
    )
    supervisor = Supervisor(
        paths=parts.paths,
        control=control,
        register=register,
        teammates=teammates,
        handshakes=handshakes,
        chores=chores,
        auto_claim=lambda: parts.settings.tasks.auto_claim,
        orphans=orphans.Orphans(parts.journal, lambda: teams.supervisors(parts.paths.home)),
        signals=signals,
        watch=watching,
        journal=parts.journal,
        claim_stands=lambda: running.stands(parts.claim, parts.paths),
        stop_seconds=parts.settings.supervision.stop_seconds,
        alive=alive,
        round_seconds=round_seconds,
    )
    return Assembled(supervisor, spawning, register, teammates)


def _repair(parts: Parts) -> str:
    """Put damaged files aside; returns what the lead is to be told of that, a line each."""
    prices = Prices(terms_of(parts.settings).prices)

    def cost(model: str, usage: Mapping[str, int]) -> Decimal | None:
        price = prices.find(model)
        return None if price is None else price.cost(Usage(**usage))

    told = []
    try:
        for damage, kept in damaged.repair(parts.paths, cost):
            parts.journal.warn("put aside", path=str(damage.path), kept=str(kept))
            what = "was gone" if kept is None else f"was damaged, and is kept as {kept.name}"
            told.append(f"{damage.path} {what}: {damage.repaired}.")
    except StoreError as error:  # a file that may not be read, say: whoever needs it says so
        parts.journal.error("not repaired", error)
    return "\n".join(told)


def _register(parts: Parts) -> Register:
    """The roster; who stands in it with a process of a dead supervisor has none any more."""
    trouble = mended(parts.paths, parts.journal)
    register = Register(
        roster=Roster(parts.paths),
        post=parts.post,
        journal=parts.journal,
        team_name=parts.paths.own_name or parts.settings.team.name,
        log_of=parts.paths.log,
    )
    if trouble is not None:
        register.tell_lead(trouble)
    # What the roster says may be of an earlier boot, or edited: a teammate holds its life's lock.
    former = [
        m.process
        for m in register.team.members
        if m.process is not None and m.process.has_open(parts.paths.life(m.name))
    ]
    seconds = parts.settings.supervision.stop_seconds
    orphans.end_former(former, seconds=seconds, journal=parts.journal)
    return register


def _teammates(
    parts: Parts, register: Register, worker: Worker, *, private: list[int]
) -> Teammates:
    silence = parts.silence  # for good: the children that run beat as often as this one wants

    def live(name: str, bell: int, vitals: Vitals) -> int:
        leave_terminal(parts.paths)  # it may be forked before `ready`, and outlive who waits for it
        return worker.live(name, bell, Pulse(vitals, every_seconds=silence.beat_seconds))

    return Teammates(
        run=live,
        load=worker.load,
        register=register,
        journal=parts.journal,
        tolerance=lambda: parts.tolerance,
        blame=Blame(parts.paths, parts.journal),
        silence=silence,
        private=private,
    )
