"""The process of a teammate: what runs in it after the fork, and how it ends."""

from __future__ import annotations

import errno
import gc
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from teamd import credentials, secret_environment
from teamd.errors import StoreError, TeamError
from teamd.files.locks import InstanceLock
from teamd.files.watch import SLOW_SECONDS
from teamd.journal import Journal
from teamd.sandbox.build import WITHOUT, clear_dead, describe, end_strays, remove_cgroups
from teamd.sandbox.probe import Probe, probe
from teamd.states import ChildExit
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Callable

    from teamd.agent.environment import Environment
    from teamd.agent.wakeup import Pulse
    from teamd.files.paths import TeamPaths
    from teamd.masking import Mask
    from teamd.settings import Settings
    from teamd.settings.roles import Role

# However long it lasts, and however often it is met: no fault of the teammate.
_FAULTS_OF_THE_MACHINE: Final = (
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EROFS,
)  # fmt: skip


@dataclass(slots=True)
class TeammateProcess:
    """The things that all teammates have in common; made once, before any of them is forked.

    Attributes:
        settings: returns those that are in force when a child is forked.
        granted_bytes: returns how long a message may be by the settings that senders read now.
        mask: knows the secrets that the supervisor was given.
    """

    paths: TeamPaths
    settings: Callable[[], Settings]
    granted_bytes: Callable[[], int]
    mask: Mask
    _probe: Probe | None = field(default=None, init=False)
    _cleared: bool = field(default=False, init=False)
    _loaded: bool = field(default=False, init=False)
    _sdk_loaded: bool = field(default=False, init=False)

    def probe_sandbox(self) -> Probe:
        """Return whether this machine can make a sandbox, tried once; where none is wanted, yes."""
        settings = self.settings()
        if settings.tools.sandbox in WITHOUT:
            return Probe()
        if self._probe is None or not self._probe.works:
            self._probe = probe([settings.team.workspace])
        return self._probe

    def describe_sandbox(self, name: str, role: str) -> str:
        """Say what stands around the commands of a teammate."""
        return describe(self.settings().tools_of(name, role), self.probe_sandbox())

    def clear(self) -> list[str]:
        """Put the workspace right after teammates that were killed; what was taken away.

        Raises:
            StoreError: it cannot be done now.
        """
        members = Roster(self.paths).read().members
        gone = [one.name for one in members if one.process is None or not one.process.alive]
        if not self._cleared:  # later ones are this process's children, or become them
            end_strays(self.paths, gone)
            self._cleared = True
        remove_cgroups(self.paths, gone)
        return clear_dead(self.paths, self.settings().team.workspace)

    def load(self) -> None:
        """Load what is slow to load before a fork, so that all children share it.

        Until then the supervisor does without the agent's own modules: it serves requests half a
        second sooner. The SDK takes two seconds. Where a script answers, it is not loaded, until
        settings that are read again want it.
        """
        self.probe_sandbox()
        model = self.settings().model
        self.mask.learn(*secret_environment.secrets_in_address(model.base_url or ""))
        self.mask.learn(*secret_environment.secrets_in_headers(model.headers))
        wants_sdk = model.script is None and not self._sdk_loaded
        if self._loaded and not wants_sdk:
            return
        from teamd.agent import build  # noqa: F401, PLC0415 -- with the agent's other modules

        if wants_sdk:
            from teamd.models import claude  # noqa: PLC0415 -- loads the SDK

            claude.warm_up()
            self._sdk_loaded = True
        gc.collect()
        gc.freeze()  # a collection in a child would un-share every page it walks over
        self._loaded = True

    def caution(self) -> str | None:
        """Return what whoever spawns should know now, before the first model call tells."""
        model = self.settings().model
        if model.script is not None or model.key_command is not None:
            return None
        from teamd.models import claude  # noqa: PLC0415 -- loaded by `load`

        return None if credentials.at_hand() or claude.finds_key() else credentials.MISSING

    def role(self, role: str) -> Role | None:
        """Return what the file of a role says, if there is one.

        Raises:
            SettingsError: there is one, and it cannot be understood.
        """
        from teamd.agent.build import find_role  # noqa: PLC0415 -- see `load`

        return find_role(self.paths, self.settings(), role)

    def live(self, name: str, bell: int, pulse: Pulse) -> int:
        """Be that teammate until told to stop; return the exit code."""
        journal = Journal(self.paths.log(name), name, self.mask)
        try:
            # A process of that name that still ends is waited for; there are never two.
            instance_lock = InstanceLock(self.paths.life(name))
            return self._live(name, bell, pulse, journal, instance_lock)
        except StoreError as error:
            journal.error("a file could not be read or written", error)
            return ChildExit.IO
        except TeamError as error:
            journal.error("refused", error)
            return ChildExit.SETTINGS
        except Exception as error:  # noqa: BLE001 -- the child's edge: the log is where it is read
            journal.error("crashed", error)
            fault = isinstance(error, OSError) and error.errno in _FAULTS_OF_THE_MACHINE
            return ChildExit.IO if fault else ChildExit.CRASHED

    def _live(
        self, name: str, bell: int, pulse: Pulse, journal: Journal, instance_lock: InstanceLock
    ) -> int:
        import asyncio  # noqa: PLC0415 -- this and the next two: see `load`

        from teamd.agent.environment import Environment  # noqa: PLC0415
        from teamd.agent.wakeup import SupervisorGone, Wakeup  # noqa: PLC0415

        # Not asyncio.run: at its end it waits for threads, such as one that looks up a host.
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.call_soon(pulse.beat)
        env = Environment(
            name=name,
            paths=self.paths,
            settings=self.settings(),
            journal=journal,
            wakeup=Wakeup(bell, pulse=pulse, recheck_seconds=SLOW_SECONDS),
            check=instance_lock.check,
            granted_bytes=self.granted_bytes,
            probe=self.probe_sandbox(),
            mask=self.mask,
        )
        life = loop.create_task(self._run(env))
        loop.add_signal_handler(signal.SIGTERM, life.cancel)
        journal.note("begins", pid=os.getpid())
        try:
            loop.run_until_complete(life)
        except asyncio.CancelledError:
            journal.note("stops")
        except SupervisorGone:
            journal.warn("stops: its supervisor has gone")
        return ChildExit.STOPPED

    async def _run(self, env: Environment) -> None:
        import asyncio  # noqa: PLC0415 -- see `load`

        from teamd.agent.build import build_loop  # noqa: PLC0415 -- the same

        teammate = build_loop(env)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, teammate.interrupt)
        await teammate.run()
