"""What a teammate works with: the model it asks, and the tools that its model may use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from teamd.agent.turnstile import Turnstile
from teamd.models.retry import Patience, Retrying
from teamd.models.scripted import Scripted
from teamd.tools import Toolbox
from teamd.tools.filesystem import EditFile, ReadFile, WriteFile
from teamd.tools.mail import ReadInbox, SendMessage
from teamd.tools.shell import Bash
from teamd.tools.workspace import Workspace

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from typing import Any

    from teamd.journal import Journal
    from teamd.models import Model
    from teamd.settings import Settings
    from teamd.store.mailbox import Mailbox
    from teamd.store.paths import TeamPaths
    from teamd.store.post import Post
    from teamd.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outfit:
    """The model and the tools of one teammate.

    Attributes:
        tls: shared by all, since making one takes 20 ms.
    """

    name: str
    paths: TeamPaths
    settings: Settings
    tls: ssl.SSLContext
    journal: Journal
    post: Post
    mailbox: Mailbox

    def model(self) -> Model:
        """Whoever the settings name, asked with patience and not by too many at a time."""
        slots = self.settings.model.concurrent_calls
        turnstile = Turnstile(self._answering(), self.paths.call_slots, slots)
        return Retrying(turnstile, self._patience(), tell=self._note_retry)

    def toolbox(self) -> Toolbox:
        """All its tools, in the order in which its model reads of them."""
        return Toolbox([*self._workspace_tools(), *self._mail_tools()])

    def _answering(self) -> Model:
        chosen = self.settings.model
        if chosen.script is not None:
            return Scripted(chosen.script)
        from teamd.models.claude import Claude  # noqa: PLC0415 -- loaded before the fork

        return Claude(
            base_url=chosen.base_url,
            key_command=chosen.key_command,
            headers=chosen.headers,
            timeout_seconds=chosen.timeout_seconds,
            cache=chosen.cache,
            tls=self.tls,
        )

    def _patience(self) -> Patience:
        chosen = self.settings.model
        return Patience(
            attempts=chosen.attempts,
            longest_seconds=chosen.retry_seconds,
            rest_seconds=chosen.rest_seconds,
        )

    def _note_retry(self, reason: str, seconds: float) -> None:
        self.journal.warn(
            "model call failed, trying again", reason=reason, seconds=round(seconds, 1)
        )

    def _workspace_tools(self) -> Iterator[Tool[Any]]:
        tools = self.settings.tools
        folder = self.settings.team.workspace
        workspace = Workspace(folder, hidden=[self.paths.root])
        yield Bash(
            workspace=folder,
            environment={key: os.environ[key] for key in tools.env if key in os.environ},
            timeout_seconds=tools.bash_timeout_seconds,
            output_bytes=tools.output_bytes,
        )
        yield ReadFile(workspace=workspace, output_bytes=tools.output_bytes)
        yield WriteFile(workspace=workspace)
        yield EditFile(workspace=workspace)

    def _mail_tools(self) -> Iterator[Tool[Any]]:
        yield SendMessage(self.post, self.name)
        yield ReadInbox(self.mailbox)
