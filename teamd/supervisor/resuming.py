"""Going on after a pause: who may, and how."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from teamd.errors import TeamError
from teamd.models.prices import Prices
from teamd.states import Status
from teamd.supervisor.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.store.entries import Reservation, Terms
    from teamd.store.ledger import Ledger
    from teamd.supervisor.register import Register
    from teamd.supervisor.teammates import Teammates


class Resuming:
    """Lets paused teammates go on, unless they would be paused at once by the same limit.

    Args:
        stop_seconds: how long the process that is paused may take to end.
    """

    def __init__(
        self,
        *,
        teammates: Teammates,
        register: Register,
        ledger: Ledger,
        stop_seconds: Callable[[], float],
    ) -> None:
        self._teammates = teammates
        self._register = register
        self._ledger = ledger
        self._stop_seconds = stop_seconds

    def resume(self, name: str) -> None:
        """Let a paused teammate go on where it was, by new settings.

        Raises:
            TeamError: it is not paused, or still at its limit.
        """
        member = self._register.team.get(name)
        if member.status is not Status.PAUSED:
            raise TeamError(
                f"{name} is not paused, it is {member.status}; `teamctl team` shows all"
            )
        if self._teammates.state(name) in (State.STOPPING, State.KILLED):
            raise TeamError(f"{name} is about to end; try again in a moment")
        self.check(name)
        at_limit = self._ledger.is_refused(name)
        self._ledger.let_go(name)  # what can fail comes first
        self._register.change(name, status=Status.WORKING, reason=None)
        if at_limit:
            self._go_on(name)
        else:  # a missing key, say: only a new process knows of other settings
            self._teammates.restart(name, seconds=self._stop_seconds())

    def check(self, name: str) -> None:
        """See that no limit stands against the call for which a teammate was paused.

        Raises:
            TeamError: one does.
        """
        refusal = self._ledger.standing_refusal(name, _priced)
        if refusal is not None:
            raise TeamError(f"{name} stays paused: {refusal.sentence(name)}")

    def start(self, name: str) -> None:
        """Give a teammate a process; one that rests at a limit goes on.

        Raises:
            StoreError: the ledger cannot be written; it was not started.
        """
        self.let_go(name)
        self._go_on(name)

    def let_go(self, name: str) -> None:
        """Let a teammate that rests at a limit go on with its next mail.

        Raises:
            StoreError: the ledger cannot be written.
        """
        self._ledger.let_go(name)

    def _go_on(self, name: str) -> None:
        """Start one that has no process; one that has keeps it.

        It knows how long its conversation is: a new one would have to keep back more, by its
        bytes, and might be refused again.
        """
        self._teammates.start(name)
        self._teammates.ring([name])


def _priced(wanted: Reservation, terms: Terms) -> Reservation:
    """A call at the price that its model has now; what nobody charges for stays free."""
    if wanted.usd == 0:
        return wanted
    price = Prices(terms.prices).find(wanted.model)
    usd = None if price is None else price.most(wanted.input_tokens, wanted.output_tokens)
    return replace(wanted, usd=usd)
