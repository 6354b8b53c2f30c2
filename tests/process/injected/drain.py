"""The person's drain: shown, then kept, then forgotten."""

from __future__ import annotations

import sys
from typing import Final

from teamd.files.paths import TeamPaths
from teamd.mail.mailbox import Mailbox
from teamd.messages import LEAD, USER, Message
from teamd.transcript.file import Transcript
from teamd.transcript.records import mail_in
from tests.process.injected.injections import Ended, Injection, clean
from tests.process.injected.operations import TEAMCTL, enlist

_MAIL: Final = ["mail-one", "mail-two"]


class Drain:
    """`teamctl inbox`: all is kept once, and nothing is kept that was not shown."""

    def prepare(self, paths: TeamPaths) -> None:
        """Mail waits."""
        enlist(paths)
        mail = [Message(id=one, sender="bob", to=LEAD, content=one) for one in _MAIL]
        Mailbox(paths, LEAD).put(*mail)

    def argv(self, paths: TeamPaths) -> list[str]:
        """Read it."""
        return [sys.executable, TEAMCTL, "inbox", "--team-dir", str(paths.root)]

    def name(self, _: Injection) -> str:
        """One operation."""
        return "drain"

    def check(self, paths: TeamPaths, ended: Ended, injection: Injection) -> None:
        """What is kept was shown; what is not waits, and the next reader gets it."""
        well = ended.check(injection)
        kept = _kept(paths)
        assert all(one in ended.output for one in kept), f"{kept} unseen after {injection}"
        assert kept == _MAIL or not well, str(injection)
        again = clean(self.argv(paths))
        assert again.status == 0, f"{injection}: {again}"
        assert _kept(paths) == _MAIL, str(injection)
        assert all(one in ended.output + again.output for one in _MAIL), str(injection)
        assert not Mailbox(paths, LEAD).waiting(), str(injection)


def _kept(paths: TeamPaths) -> list[str]:
    records = Transcript(paths.transcript(USER)).records()
    return [mail.content for record in records for mail in mail_in(record)]
