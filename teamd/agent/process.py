"""The parts that the processes of all teammates share, made before the first fork."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from teamd import secret_environment
from teamd.budget.ledger import Ledger
from teamd.budget.prices import Prices
from teamd.copies.record import list_folders
from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.masking import Mask
from teamd.model_server import credentials
from teamd.models import load_provider
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from teamd.sandbox.probe import Probe
    from teamd.settings import Settings
    from teamd.settings.roles import Role


@dataclass(slots=True)
class TeammateProcess:
    """The objects that all teammates share; made once, before any of them is forked.

    Attributes:
        settings: returns those that are in force when a child is forked.
        granted_bytes: returns how long a message may be by the settings that senders read now.
        beat_seconds: the time between two heartbeats of a teammate that works.
        mask: knows the secrets that the supervisor was given.
        ledger: read before the first fork.
    """

    paths: TeamPaths
    settings: Callable[[], Settings]
    granted_bytes: Callable[[], int]
    beat_seconds: float
    mask: Mask
    ledger: Ledger = field(init=False)
    _probe: Probe | None = field(default=None, init=False)
    _cleared: bool = field(default=False, init=False)
    _loaded: bool = field(default=False, init=False)
    _sdk_loaded: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.paths.ledger)

    def probe_sandbox(self) -> Probe:
        """Return whether this machine can make a sandbox, tried once if one is wanted."""
        from teamd.sandbox import WITHOUT  # noqa: PLC0415 -- see `load`
        from teamd.sandbox.probe import Probe, probe  # noqa: PLC0415

        if self.settings().tools.sandbox in WITHOUT:
            return Probe()
        if self._probe is None or not self._probe.works:
            self._probe = probe([self.settings().team.workspace, self.paths.work])
        return self._probe

    def describe_sandbox(self, name: str, role: str) -> str:
        """Describe the sandbox around the commands of a teammate."""
        from teamd.sandbox.build import judge_workspace  # noqa: PLC0415 -- see `load`
        from teamd.sandbox.probe import describe  # noqa: PLC0415 -- see `load`

        settings, copy = self.settings(), self.paths.copy(name)
        workspace = copy if name and copy.is_dir() else settings.team.workspace
        probe = judge_workspace(self.probe_sandbox(), workspace)
        return describe(settings.tools_of(name, role), probe)

    def clear(self) -> list[str]:
        """Repair the workspace after teammates that were killed; return the removed paths.

        Raises:
            StoreError: it cannot be done now.
        """
        from teamd.sandbox import build  # noqa: PLC0415

        members = Roster(self.paths).read().members
        gone = [*build.ended_checks(self.paths)]
        gone += [one.name for one in members if one.process is None or not one.process.alive]
        if not self._cleared:  # later ones are this process's children, or become them
            build.end_strays(self.paths, gone)
            self._cleared = True
        build.remove_cgroups(self.paths, gone)
        folders = [self.settings().team.workspace, *list_folders(self.paths)]
        return [taken for folder in folders for taken in build.clear_dead(self.paths, folder)]

    def load(self) -> None:
        """Load slow modules before a fork, so that all children share them.

        Until then the supervisor works without the agent's modules and the sandbox, and so serves
        requests half a second sooner. The SDK takes two seconds. With a script as the model it is
        not loaded, until reloaded settings need it.
        """
        self.probe_sandbox()
        model = self.settings().model
        self.mask.learn(*secret_environment.secrets_in_address(model.base_url or ""))
        self.mask.learn(*secret_environment.secrets_in_headers(model.headers))
        wants_sdk = model.asks_server and not self._sdk_loaded
        if self._loaded and not wants_sdk:
            return
        from teamd import tools  # noqa: PLC0415 -- with the agent's modules

        tools.warm_up()
        with suppress(StoreError):  # the first model call reports it
            self.ledger.prepare()
        if wants_sdk:
            load_provider(model.provider).warm_up()
            Prices({})  # reads those that ship
            self._sdk_loaded = True
        gc.collect()
        gc.freeze()  # a collection in a child would un-share every page it walks over
        self._loaded = True

    def caution(self) -> str | None:
        """Return, at spawn time, a warning that the first model call would otherwise give."""
        model = self.settings().model
        if not model.asks_server or model.key_command is not None:
            return None
        found = credentials.at_hand() or load_provider(model.provider).finds_key()
        return None if found else credentials.MISSING

    def role(self, role: str) -> Role | None:
        """Return the contents of a role's file, or `None`.

        Raises:
            SettingsError: the file cannot be parsed.
        """
        from teamd.agent.build import find_role  # noqa: PLC0415 -- see `load`

        return find_role(self.paths, self.settings().team.workspace, role)
