"""A request that the supervisor has taken from its inbox is carried out despite later errors."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from teamd.board.board import Board
from teamd.control import ControlReply, ControlRequest
from teamd.errors import ExitCode
from teamd.files.paths import TeamPaths
from teamd.files.watch import watch
from teamd.journal import Journal
from teamd.mail.mailbox import Batch, Mailbox
from teamd.messages import TEAMD
from teamd.supervisor.inbox import ControlInbox
from teamd.supervisor.orphans import OrphanedTasks
from teamd.team.states import Status
from tests.children import make_context
from tests.unit.life import enrol


class Spoilt(Mailbox):
    """A mailbox that becomes unreadable after its first batch is done."""

    def done(self, batch: Batch) -> None:
        """Replace the spool file by a link that leads to itself."""
        super().done(batch)
        taken = self._spool.path
        taken.unlink(missing_ok=True)
        taken.symlink_to(taken.name)


def test_a_taken_request_is_answered_although_the_next_read_fails(
    tmp_path: Path,
) -> None:
    """The request is removed before it is carried out, so no later supervisor would find it."""
    paths = TeamPaths(tmp_path / ".team")
    paths.create()
    request = ControlRequest(command="dance", deadline=time.time() + 60, id="a1")
    Mailbox(paths, TEAMD, durable=False).put(request.encode())
    with (
        closing(Journal(paths.log(TEAMD), TEAMD)) as journal,
        closing(watch(paths.tasks)) as tasks,
    ):
        context = make_context(paths, journal)
        board = Board(paths, context.post, TEAMD, durable=False)
        orphaned = OrphanedTasks(board, tasks, journal)
        inbox = ControlInbox(context, orphaned, Spoilt(paths, TEAMD, durable=False))
        inbox.obey()
        given = ControlReply.decode((paths.replies / "a1.json").read_bytes())
        assert given.exit_code == ExitCode.REFUSED
        assert "dance" in given.text
        inbox.obey()
        assert inbox.retry_seconds, "and the look is tried again"


def test_a_repeated_request_is_answered_and_not_carried_out_again(tmp_path: Path) -> None:
    """The asker was killed before it could read the answer, and asks again."""
    paths = TeamPaths(tmp_path / ".team")
    enrol(paths, ann=Status.SHUTDOWN)
    request = ControlRequest(
        command="remove", deadline=time.time() + 60, id="a1", arguments={"name": "ann"}
    )
    with (
        closing(Journal(paths.log(TEAMD), TEAMD)) as journal,
        closing(watch(paths.tasks)) as tasks,
    ):
        context = make_context(paths, journal)
        board = Board(paths, context.post, TEAMD, durable=False)
        mailbox = Mailbox(paths, TEAMD, durable=False)
        inbox = ControlInbox(context, OrphanedTasks(board, tasks, journal), mailbox)
        answers = []
        for _ in range(2):
            mailbox.put(request.encode())
            inbox.obey()
            answers.append(ControlReply.decode((paths.replies / "a1.json").read_bytes()))
            (paths.replies / "a1.json").unlink()
    assert answers[0].exit_code == ExitCode.DONE
    assert answers[1] == answers[0]
