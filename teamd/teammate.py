"""What a teammate's process runs: the parts of its life, put together after the fork."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from teamd import credentials
from teamd.agent.bell import Bell, SupervisorGoneError
from teamd.agent.conversation import Conversation
from teamd.agent.guidance import guidance
from teamd.agent.intake import Intake, Persona
from teamd.agent.leaving import Leaving
from teamd.agent.loop import Loop
from teamd.agent.outside import Outside
from teamd.agent.plans import Plans
from teamd.agent.prompts import system_prompt
from teamd.approvals.store import Approvals
from teamd.errors import StoreError, TeamError
from teamd.identity import Identity
from teamd.journal import Journal
from teamd.outfit import Outfit
from teamd.protocol import LEAD, TEAMD
from teamd.settings import roles
from teamd.states import ChildExit
from teamd.store.mailbox import Mailbox
from teamd.store.post import Post
from teamd.store.roster import Roster
from teamd.store.tenure import Tenure
from teamd.store.transcript import Transcript
from teamd.store.watch import SLOW_SECONDS
from teamd.tools.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from teamd.agent.pulse import Pulse
    from teamd.settings import Settings
    from teamd.settings.skills import Skill
    from teamd.store.paths import TeamPaths

# However long it lasts, and however often it is met: no fault of the teammate.
_MACHINES_TROUBLE = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
    }
)


@dataclass(slots=True)
class Teammate:
    """What all teammates have in common; made once, before any of them is forked.

    Attributes:
        settings: those that are in force when a child is forked.
        granted_bytes: how long a message may be by the settings that senders read now.
    """

    paths: TeamPaths
    settings: Callable[[], Settings]
    granted_bytes: Callable[[], int]
    _loaded: bool = field(default=False, init=False)
    _sdk_loaded: bool = field(default=False, init=False)

    def load(self) -> None:
        """Load what is slow to load before a fork, so that all children share it.

        The SDK takes two seconds. Where a script answers, it is not loaded, until settings that
        are read again want it.
        """
        wants_sdk = self.settings().model.script is None and not self._sdk_loaded
        if self._loaded and not wants_sdk:
            return
        if wants_sdk:
            from teamd.models import warming  # noqa: PLC0415 -- loads the SDK

            warming.warm_up()
            self._sdk_loaded = True
        gc.collect()
        gc.freeze()  # a collection in a child would un-share every page it walks over
        self._loaded = True

    def caution(self) -> str | None:
        """What whoever spawns should know now, before the first model call tells."""
        model = self.settings().model
        if model.script is not None or model.key_command is not None:
            return None
        from teamd.models import claude  # noqa: PLC0415 -- loaded by `load`

        return None if credentials.at_hand() or claude.finds_key() else credentials.MISSING

    def live(self, name: str, bell: int, pulse: Pulse) -> int:
        """Be that teammate until told to stop; returns the exit code."""
        journal = Journal(self.paths.log(name), name)
        try:
            # A process of that name that still ends is waited for; there are never two.
            tenure = Tenure(self.paths.life(name))
            return self._live(name, bell, pulse, journal, tenure)
        except StoreError as error:
            journal.error("a file could not be read or written", error)
            return ChildExit.IO
        except TeamError as error:
            journal.error("refused", error)
            return ChildExit.SETTINGS
        except OSError as error:
            journal.error("crashed", error)
            return ChildExit.IO if error.errno in _MACHINES_TROUBLE else ChildExit.CRASHED
        except Exception as error:  # noqa: BLE001 -- the child's edge: the log is where it is read
            journal.error("crashed", error)
            return ChildExit.CRASHED

    def _live(self, name: str, bell: int, pulse: Pulse, journal: Journal, tenure: Tenure) -> int:
        # Not asyncio.run: at its end it waits for threads, such as one that looks up a host.
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.call_soon(pulse.beat)
        bells = Bell(bell, pulse=pulse, recheck_seconds=SLOW_SECONDS)
        life = loop.create_task(self._life(name, bells, journal, tenure))
        loop.add_signal_handler(signal.SIGTERM, life.cancel)
        journal.note("begins", pid=os.getpid())
        try:
            loop.run_until_complete(life)
        except asyncio.CancelledError:
            journal.note("stops")
        except SupervisorGoneError:
            journal.warn("stops: its supervisor has gone")
        return ChildExit.STOPPED

    async def _life(self, name: str, bell: Bell, journal: Journal, tenure: Tenure) -> None:
        loop = self._loop(name, bell, journal, tenure)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, loop.interrupt)
        await loop.run()

    def _loop(self, name: str, bell: Bell, journal: Journal, tenure: Tenure) -> Loop:
        settings = self.settings()
        durable = settings.mail.durability == "disk"
        post = self._post()
        transcript = Transcript(self.paths.transcript(name), durable=durable, check=tenure.check)
        conversation = Conversation(transcript)
        mailbox = Mailbox(
            self.paths,
            name,
            durable=durable,
            max_bytes=settings.mail.max_message_bytes,
            granted=self.granted_bytes,
            tell=lambda why: journal.warn("line rejected", reason=why),
            check=tenure.check,
        )
        outside = Outside(
            name=name,
            process=Identity.own(),
            conversation=conversation,
            supervisor=Mailbox(self.paths, TEAMD, durable=False),
            post=post,
        )
        approvals = Approvals(self.paths, post)
        plans = Plans(
            name=name,
            conversation=conversation,
            approvals=approvals,
            team=lambda: Roster(self.paths).read(),
        )
        outfit = Outfit(
            name=name,
            paths=self.paths,
            settings=settings,
            conversation=conversation,
            journal=journal,
            post=post,
            mailbox=mailbox,
            approvals=approvals,
            plans=plans,
            ring=bell.ring,
            say_answered=outside.say_answered,
            check=tenure.check,
        )
        leaving = Leaving(
            name=name, conversation=conversation, approvals=approvals, outside=outside
        )
        intake = Intake(
            name=name,
            persona=lambda: self._persona(name, outfit.skills()),
            news=outfit.news,
            conversation=conversation,
            mailbox=mailbox,
            leaving=leaving,
            plans=plans,
        )
        return Loop(
            name=name,
            intake=intake,
            model_name=lambda of_role: self._model_name(name, of_role),
            conversation=conversation,
            model=outfit.model,
            toolbox=outfit.toolbox(),
            bell=bell,
            outside=outside,
            leaving=leaving,
            fetch=outfit.fetch(),
            calls=outfit.calls,
            max_tokens=settings.model.max_tokens,
            room=outfit.room,
            open_work=outfit.open_work(),
        )

    def _post(self) -> Post:
        mail = self.settings().mail
        durable = mail.durability == "disk"
        return Post(self.paths, durable=durable, max_bytes=mail.max_message_bytes)

    def role(self, role: str) -> roles.Role | None:
        """The file of a role, if there is one.

        Raises:
            SettingsError: there is one, and it cannot be understood.
        """
        workspace = self.settings().team.workspace
        return roles.find(role, roles.folders(self.paths.agents, workspace))

    def _persona(self, name: str, skills: Sequence[Skill]) -> Persona:
        team = Roster(self.paths).read()
        member = team.get(name)
        role = self.role(member.role) or roles.Role(name=member.role)
        folder = self.settings().team.workspace
        prompt = system_prompt(
            name=member.name,
            role=member.role,
            team=team.name,
            workspace=folder,
            leads=member.name == LEAD,
            plan=member.plan,
            above=self._post().above(name),
            instructions=role.instructions,
            skills=skills,
        )
        return Persona(
            system=prompt + guidance(Workspace(folder, hidden=self.paths.off_limits(folder))),
            role=member.role,
            team=team.name,
            model=role.model,
            tools=role.tools,
        )

    def _model_name(self, name: str, of_role: str | None) -> str:
        member = Roster(self.paths).read().get(name)
        return member.model or of_role or self.settings().model.name
