"""The context that the handlers of requests, the inbox and the loop share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.budget.ledger import Ledger
    from teamd.files.paths import TeamPaths
    from teamd.journal import Journal
    from teamd.mail.routing import Post
    from teamd.supervisor.children import Children, Run
    from teamd.supervisor.live_settings import LiveSettings
    from teamd.supervisor.roster_writer import RosterWriter
    from teamd.supervisor.shutdowns import Shutdowns


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildProgram:
    """The program of the children, and what a spawn asks about it.

    Attributes:
        run: gets name, bell and heartbeat, returns the exit code.
        load: loads what the next child needs, unless it is loaded; called before each fork.
        warning: a sentence that the sender of a spawn should read, such as that there is no key.
        check_role: raises a `TeamError` for a role whose file cannot be understood.
    """

    run: Run
    load: Callable[[], None]
    warning: Callable[[], str | None]
    check_role: Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One team's stores and policies, its roster, processes and shutdowns."""

    settings: LiveSettings
    post: Post
    ledger: Ledger
    roster: RosterWriter
    children: Children
    shutdowns: Shutdowns
    program: ChildProgram
    journal: Journal

    @property
    def paths(self) -> TeamPaths:
        """The team directory."""
        return self.settings.paths
