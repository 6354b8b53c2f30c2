"""The keys that act on a teammate, for the screens of the team and of one teammate."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.binding import BindingType

from teamctl.render import output
from teamctl.top.dialogs import Confirm
from teamctl.top.face import Face
from teamd.errors import TeamError
from teamd.messages import respawn_command
from teamd.overview.members import MemberView
from teamd.team.states import Status

_NO_TEAMD: Final = "no teamd runs; start it with `teamd start`"
_NEXT: Final = "Text that it reads next (may be empty)"
_ENDED: Final = {Status.SHUTDOWN: "is shut down", Status.FAILED: "has failed"}


class Acting(Face):
    """A screen with a selected teammate."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("s", "send", "send mail to the teammate"),
        ("x", "shut_down", "shut the teammate down, once that is confirmed"),
        ("i", "interrupt", "interrupt its turn; a text is what it reads next"),
        ("p", "pause", "pause the teammate, or let it go on"),
        ("m", "limits", "raise its limits, and let it go on"),
    ]

    @property
    def mate(self) -> MemberView | None:
        """The selected teammate, if any."""
        raise NotImplementedError

    def able(self) -> bool:
        """Return whether teamd takes requests; if not, tell the person."""
        if not self.may():
            return False
        if self.top.seen.supervisor is None:
            self.top.tell(self.top.paths.add_team_option(_NO_TEAMD))
        return self.top.seen.supervisor is not None

    def find_running(self, *, failed: bool = False) -> MemberView | None:
        """Return the selected teammate if it runs; otherwise tell the person why not.

        Args:
            failed: whether a failed teammate counts as running.
        """
        mate = self.mate
        if mate is None or not self.able():
            return None
        ended = _ENDED.get(mate.member.status)
        if ended is None or (failed and mate.member.status is Status.FAILED):
            return mate
        hint = self.top.paths.add_team_option(respawn_command(mate.name))
        self.top.tell(f"{mate.name} {ended}; {hint} starts it again")
        return None

    def action_send(self) -> None:
        if (mate := self.mate) is not None:
            self.fill(
                f"Send to {mate.name}",
                ("Text",),
                lambda text: self.top.do(lambda actions: actions.send(mate.name, text)),
            )

    def action_shut_down(self) -> None:
        """Shut the teammate down after a confirmation."""
        mate = self.find_running(failed=True)
        if mate is None:
            return

        def go_on(meant: bool | None) -> None:  # noqa: FBT001 -- textual's
            if meant:
                self.top.do(lambda actions: actions.shutdown(mate.name))

        self.app.push_screen(Confirm(f"Shut {mate.name} down?"), go_on)

    def action_interrupt(self) -> None:
        """Interrupt the teammate's turn."""
        if (mate := self.find_running()) is not None:
            idle = mate.state == Status.IDLE
            self.fill(
                f"Interrupt {mate.name}",
                ("It is idle; text that it reads now" if idle else _NEXT,),
                lambda text: self.top.do(lambda actions: actions.interrupt(mate.name, text)),
            )

    def action_pause(self) -> None:
        """Pause the teammate, or resume a paused one."""
        mate = self.find_running()
        if mate is None:
            return
        if mate.state == Status.PAUSED:
            self.top.do(lambda actions: actions.resume(mate.name))
        else:
            self.top.do(lambda actions: actions.pause(mate.name))

    def action_limits(self) -> None:
        """Raise the limits that stop the teammate."""
        mate = self.find_running()
        if mate is not None and mate.state != Status.PAUSED:
            self.top.tell(f"no limit stops {mate.name}: it is {mate.state}")
        elif mate is not None:
            used = "?" if mate.account is None else output.cost(mate.account)
            self.fill(
                f"Raise the limits of {mate.name}, which has used {used}",
                ("USD more (may be empty)", "tokens more (may be empty)"),
                lambda usd, tokens: self.top.do(
                    lambda actions: actions.resume(mate.name, **_more(usd, tokens))
                ),
            )


def _more(usd: str, tokens: str) -> dict[str, float]:
    """Return the amounts that were typed."""
    typed: tuple[tuple[str, str, type[int | float]], ...] = (
        ("usd", usd, float),
        ("tokens", tokens, int),
    )
    return {unit: _number(text, kind) for unit, text, kind in typed if text.strip()}


def _number(text: str, kind: type[int | float]) -> float:
    try:
        return kind(text.strip().removeprefix("$"))
    except ValueError as error:
        raise TeamError(f"{text!r} is no number; nothing was changed") from error
