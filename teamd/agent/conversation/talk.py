"""Talk: a teammate's wakes by other teammates' mail that it answers with mail alone, in a row.

Besides what it has sent of late, so that the same words are not sent twice. All of it follows from
the records, so that a process that was killed leaves nothing uncounted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from teamd.models import Block
from teamd.tools.mail import MAIL_TOOLS, SendMessage

SAME_TEXT_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class _Sent:
    """A text that was sent: to whom, its digest, and when."""

    to: str
    digest: str
    moment: float


@dataclass(slots=True)
class Talk:
    """The wakes in which a teammate has only talked.

    Attributes:
        wakes: how many in a row were talk.
        told: senders who know that their mail waits since then.
    """

    wakes: int = 0
    told: set[str] = field(default_factory=set)
    _is_talk: bool = True  # of the wake at hand: as far as it has come
    _sent: list[_Sent] = field(default_factory=list)

    def end(self) -> None:
        """Forget it all: something else than talk has happened."""
        self.wakes = 0
        self.told = set()
        self._is_talk = False

    def hear(self, *, idle_talk: bool) -> None:
        """Take mail into account; `idle_talk` is whether all of it is from other teammates."""
        if not idle_talk:
            self.end()

    def act(self, tools: Iterable[str]) -> None:
        """Take the tools into account that a reply calls."""
        if not MAIL_TOOLS.issuperset(tools):
            self.end()

    def rest(self) -> None:
        """Count the wake that ends here, if it was talk."""
        self.wakes += self._is_talk
        self._is_talk = True

    def note_success(self, call: Block, moment: float) -> None:
        """Remember what was sent by a call that was answered without an error."""
        match call:
            case {"name": SendMessage.name, "input": {"to": str(to), "content": str(content)}}:
                late = moment - SAME_TEXT_SECONDS
                self._sent = [sent for sent in self._sent if sent.moment > late]
                self._sent.append(_Sent(to, _digest(content), moment))

    def receivers(self, content: str, now: float) -> Iterator[str]:
        """Yield who has been sent this text in the last ten minutes, as the sender spelt them."""
        wanted = _digest(content)
        for sent in self._sent:
            if sent.digest == wanted and abs(now - sent.moment) < SAME_TEXT_SECONDS:
                yield sent.to


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()
