"""Build the postman, for its process and for tests."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from teamd import clocks
from teamd.files.locks import InstanceLock
from teamd.files.paths import TeamPaths
from teamd.hosts.asking import own_boot, sweep_answers
from teamd.hosts.far import FarHosts
from teamd.hosts.outbox import Outbox
from teamd.hosts.own_name import take_name
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import FarRoster
from teamd.hosts.view import Views, postman_runs
from teamd.journal import Journal, LoggedEvent
from teamd.mail.routing import MailRouter
from teamd.masking import Mask
from teamd.messages import MAX_MESSAGE_BYTES
from teamd.postman.arrivals import Arrivals
from teamd.postman.commands import Commands
from teamd.postman.delivery import FarDelivery
from teamd.postman.links import Links
from teamd.postman.presence import HostPresence
from teamd.postman.process import Postman
from teamd.settings import Settings
from teamd.team.child_exit import explain_exit
from teamd.team.roster import Roster
from teamd.team.states import ChildExit

POSTMAN: Final = "postman"  # in its log
_PATIENCE_SECONDS: Final = 0.5  # for a lock; other hosts wait meanwhile


def live(paths: TeamPaths, settings: Settings, mask: Mask) -> int:
    """Run the postman of a team; return the exit code."""
    with closing(Journal(HostPlaces(paths).log, POSTMAN, mask)) as journal:
        try:
            HostPlaces(paths).create()
            if not postman_runs(paths):
                # Before the lock is visible, because readers then trust the view.
                _doubt_view(paths)
            lock = InstanceLock(HostPlaces(paths).postman)  # allows only one postman
            _doubt_view(paths)  # again, if another postman has ended meanwhile
            sweep_answers(paths)
            journal.note(LoggedEvent.PROCESS_BEGAN, pid=os.getpid(), name=settings.hosts.name)
            asyncio.run(_serve(paths, settings, journal, lock))
        except Exception as error:  # noqa: BLE001 -- the child's edge: errors are read in the log
            return explain_exit(journal, error)
    return ChildExit.STOPPED


def _doubt_view(paths: TeamPaths) -> None:
    views = Views(paths)
    views.doubt(time.time())
    views.write()


async def _serve(
    paths: TeamPaths, settings: Settings, journal: Journal, lock: InstanceLock
) -> None:
    durable = settings.mail.durability == "disk"
    news = take_name(paths, settings.hosts.name or "", durable=durable)
    postman = build_postman(paths, settings, journal, lock.check)
    for host, what in news.items():
        postman.links.report(host, what)
    await postman.serve()


def build_postman(
    paths: TeamPaths, settings: Settings, journal: Journal, check: Callable[[], None]
) -> Postman:
    """Build the postman of a team whose `[hosts]` has a name, without starting it.

    Args:
        paths: the team.
        settings: all of its settings.
        journal: the postman's log.
        check: raises a `StoreError` if the team directory was moved or replaced.

    Raises:
        StoreError: the roster cannot be read.
    """
    hosts, durable = settings.hosts, settings.mail.durability == "disk"
    name, team = hosts.name or "", Roster(paths).read()
    post = MailRouter(
        paths,
        durable=durable,
        max_bytes=max(settings.mail.max_message_bytes, MAX_MESSAGE_BYTES),
        max_inbox_bytes=settings.mail.max_inbox_bytes,
        patience_seconds=_PATIENCE_SECONDS,
        hosts=FarHosts.of(paths, hosts, durable=durable),
    )

    def outbox(host: str) -> Outbox:
        return Outbox(paths, host, durable, hosts.outbox_bytes, _PATIENCE_SECONDS)

    def left(host: str, boot: str, deadline: float) -> float | None:
        return presence.left(host, boot, deadline, clocks.elapsed())

    presence = HostPresence(name, own_boot(), FarRoster.of(team))
    commands = Commands(paths, team.name, name, hosts.allows, left, journal)
    arrivals = Arrivals(FarDelivery(post, team.name, journal), commands, outbox, journal)
    views = Views(paths)
    links = Links(name, outbox, arrivals, views, post, journal, durable)
    return Postman(paths, hosts, journal, presence, links, views, check)
