"""The postman's process: the only one of teamd's processes that talks to other hosts all the time.

It connects to the broker again and again. While it is connected, tasks send, receive, answer
commands and tell the other hosts about this one; the first that fails ends the connection.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from teamd import clocks
from teamd.errors import NotAMessage, StoreError, TeamError
from teamd.files import directories, files
from teamd.files.locks import InstanceLock
from teamd.files.paths import TeamPaths
from teamd.files.watch import SLOW_SECONDS, Watch, watch
from teamd.hosts import rosters
from teamd.hosts.far import FarHosts
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import FarRoster
from teamd.hosts.view import HostState, Report, Views, postman_runs
from teamd.journal import Journal, LoggedEvent
from teamd.mail.routing import MailRouter
from teamd.masking import Mask
from teamd.messages import LEAD, MAX_MESSAGE_BYTES, NAME, TEAMD, Message, parse_object
from teamd.postman.commands import Requests
from teamd.postman.connection import (
    CONFIRMED,
    EXPECTED,
    HOSTS,
    NO_SERVERS,
    BrokerConnection,
    LostConnection,
    decode_value,
)
from teamd.postman.delivery import FarDelivery
from teamd.postman.presence import (
    BEAT_SECONDS,
    DOUBLE,
    ROSTER_SECONDS,
    Beat,
    Peer,
    explain_folder,
    new_tag,
)
from teamd.postman.receiving import Received, Receiver
from teamd.postman.sending import Sender, wait_at_most
from teamd.postman.start import read_command
from teamd.settings import Settings
from teamd.settings.schema import HostSettings
from teamd.team.child_exit import explain_exit
from teamd.team.roster import Roster
from teamd.team.states import ChildExit

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.5  # waiting mail moves soon after the network is repaired
_REFUSED_PAUSE_SECONDS: Final = 15.0  # for errors that only a person can fix
_LOCK_SECONDS: Final = 0.5  # for a lock; other hosts wait meanwhile
_CANCEL_SECONDS: Final = 1.0  # until a task is cancelled once more
_MOST_HOSTS: Final = 1000
_TRIP_SHARE: Final = 0.5  # relative change of a round trip that is displayed
_SILENT: Final = "it is silent"
_REPORTS_SECONDS: Final = 3600.0
_MOST_REPORTS: Final = 10  # mails about one host within that time


class ConnectionTasks:
    """The tasks of a connection, all of which end with the first that does.

    `asyncio.TaskGroup` cancels each task once. In Python 3.11 `asyncio.wait_for`, which nats-py
    uses, loses a cancellation that meets a result, and the group would wait for that task forever.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._ended.set())
        self._tasks.append(task)

    async def run(self) -> list[BaseException]:
        """Wait until a task ends, and end the others; return their errors."""
        try:
            await self._ended.wait()
        finally:
            while running := [task for task in self._tasks if not task.done()]:
                for task in running:
                    task.cancel()
                await asyncio.wait(running, timeout=_CANCEL_SECONDS)
        ended = (task.exception() for task in self._tasks if not task.cancelled())
        return [error for error in ended if error is not None]


@dataclass(slots=True)
class Postman:
    """Serves one team until it is killed.

    Attributes:
        settings: `[hosts]`, with a name.
        post: the router of this host's team.
        team: the team's name.
        check: raises a `StoreError` if the team directory was moved or replaced.
    """

    paths: TeamPaths
    settings: HostSettings
    post: MailRouter
    team: str
    journal: Journal
    durable: bool
    check: Callable[[], None]
    views: Views
    _session: str = field(default_factory=new_tag)
    _folder: dict[str, str] = field(default_factory=dict)
    _peers: dict[str, Peer] = field(default_factory=dict)
    _senders: dict[str, Sender] = field(default_factory=dict)
    _roster_changed: asyncio.Event = field(default_factory=asyncio.Event)
    _outboxes_changed: asyncio.Event = field(default_factory=asyncio.Event)
    _watching: asyncio.Event = field(default_factory=asyncio.Event)  # the beats of the others
    _newcomer: asyncio.Event = field(default_factory=asyncio.Event)  # has not heard this host
    _trip: float = 0.0

    @property
    def own(self) -> str:
        return (self.settings.name or "").lower()

    async def serve(self) -> NoReturn:
        """Carry mail until cancelled.

        Raises:
            StoreError: the team directory was moved or replaced, or a file cannot be used.
        """
        self._folder = read_folder(self.paths, durable=self.durable)
        places, pause = HostPlaces(self.paths), _FIRST_PAUSE_SECONDS
        with closing(watch(places.outboxes)) as outboxes, closing(watch(self.paths.root)) as root:
            self._follow(outboxes, self._outboxes_changed)
            self._follow(root, self._roster_changed)
            while True:
                self.check()
                lost = await self._connect()
                self._show_all(lost.why)
                if lost.was_up and not lost.refused:
                    pause = _FIRST_PAUSE_SECONDS
                # Jitter, because all hosts lose a broker at the same moment.
                await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 -- no secret
                most = _REFUSED_PAUSE_SECONDS if lost.refused else _LONGEST_PAUSE_SECONDS
                pause = min(2 * pause, most)

    async def _connect(self) -> LostConnection:
        """Serve a connection to the first server that accepts this host, until it is lost."""
        lost = LostConnection(NO_SERVERS)
        reasons = dict[str, None]()
        for server in self.settings.servers:
            try:
                async with BrokerConnection.open(server, self.settings) as link:
                    await self._serve(link)
            except LostConnection as error:
                lost = error
                reasons[lost.why] = None
                self.journal.warn("disconnected", why=lost.why)
                if lost.was_up:
                    return lost
        return LostConnection("; ".join(reasons) or NO_SERVERS, refused=lost.refused)

    async def _serve(self, link: BrokerConnection) -> None:
        """Serve a connection.

        Raises:
            LostConnection: always, at the end.
        """
        try:
            await link.prepare()
            sent, received = await self._read_confirmed(link)
            self.journal.note("connected", server=link.server)
            requests = Requests(
                self.paths, self.team, self.own, self._session, self.settings.allows, self.journal
            )
            delivery = FarDelivery(self.post, self.team, self.journal)
            receiver = Receiver(self.own, link, delivery, self.report, self.journal, self.durable)
            await link.answer(requests.answer)
            self._senders, self._peers = {}, {}
            self._watching.clear()
            self._roster_changed.set()
            self._outboxes_changed.set()
            tasks = ConnectionTasks()
            tasks.start(link.wait())
            tasks.start(receiver.run(received))
            tasks.start(self._follow_confirmed(link))
            tasks.start(self._follow_hosts(link))
            tasks.start(self._beat(link))
            tasks.start(self._tell_roster(link))
            tasks.start(self._send(link, tasks, sent))
            errors = await tasks.run()
        except Exception as error:  # noqa: BLE001 -- an unknown server may send anything
            errors = [error]
        raise self._find_cause(link, errors)

    def _find_cause(self, link: BrokerConnection, errors: Sequence[BaseException]) -> BaseException:
        """Return the error that ended a connection; several tasks may fail by the same loss."""
        for kind in (StoreError, LostConnection):
            for error in errors:
                if isinstance(error, kind):
                    return error
        first = next(iter(errors), None)  # nats-py may also cancel a task
        if first is not None and not isinstance(first, EXPECTED):
            self.journal.error("connection given up", first)
        return link.explain(first)

    async def _read_confirmed(
        self, link: BrokerConnection
    ) -> tuple[dict[str, Received], dict[str, Received]]:
        """Return the confirmations of others to this host, and of this host to others."""
        sent, received = {}, {}
        async with aclosing(link.watch(CONFIRMED, ">")) as watched:
            async for found in watched:
                if found is None:
                    break
                source, _, to = found[0].partition(".")
                if (confirmed := Received.decode(found[1])) is not None:
                    if source == self.own:
                        sent[to] = confirmed
                    if to == self.own:
                        received[source] = confirmed
        return sent, received

    async def _follow_confirmed(self, link: BrokerConnection) -> None:
        async for found in link.watch(CONFIRMED, f"{self.own}.*"):
            if found is not None and (confirmed := Received.decode(found[1])) is not None:
                sender = self._senders.get(found[0].partition(".")[2])
                if sender is not None:
                    sender.confirm(confirmed.n, confirmed.key)

    async def _send(
        self, link: BrokerConnection, tasks: ConnectionTasks, confirmed: dict[str, Received]
    ) -> None:
        """Start a sender for each outbox, and wake them when outboxes change."""
        while True:
            self._outboxes_changed.clear()
            for path in directories.list_files(HostPlaces(self.paths).outboxes, "*.jsonl"):
                host = path.stem
                if not NAME.fullmatch(host) or len(self._senders) >= _MOST_HOSTS:
                    continue
                if host not in self._senders:
                    sender = self._make_sender(link, host)
                    self._senders[host] = sender
                    known = confirmed.get(host)
                    tasks.start(sender.run((known.n, known.key) if known else None))
                self._senders[host].changed.set()
            await wait_at_most(self._outboxes_changed, SLOW_SECONDS)  # hints can be lost

    def _make_sender(self, link: BrokerConnection, host: str) -> Sender:
        outbox = Outbox(self.paths, host, self.durable, self.settings.outbox_bytes, _LOCK_SECONDS)
        return Sender(
            outbox,
            self.own,
            link,
            reachable=lambda: self._is_reachable(host),
            report=lambda what: self.report(host, what),
            is_old_copy=partial(self._note_old_copy, host),
        )

    async def _beat(self, link: BrokerConnection) -> None:
        # First, so that the beats with which the others answer a newcomer are seen.
        await wait_at_most(self._watching, BEAT_SECONDS)
        while True:
            self.check()
            self._newcomer.clear()
            beat = Beat(session=self._session, trip=self._trip, **self._folder)
            begun = clocks.elapsed()
            await link.put(HOSTS, f"beat.{self.own}", beat.encode())
            self._trip = clocks.elapsed() - begun
            self._show_all("")
            await wait_at_most(self._newcomer, BEAT_SECONDS)

    async def _tell_roster(self, link: BrokerConnection) -> None:
        told, at = None, 0.0
        while True:
            self._roster_changed.clear()
            with suppress(StoreError, TeamError):  # during a repair
                roster = FarRoster.of(Roster(self.paths).read())
                if roster != told or clocks.elapsed() - at >= ROSTER_SECONDS:
                    told, at = roster, clocks.elapsed()
                    value = rosters.encode(roster)
                    await link.put(HOSTS, f"roster.{self.own}", value)
            await wait_at_most(self._roster_changed, ROSTER_SECONDS)

    async def _follow_hosts(self, link: BrokerConnection) -> None:
        live = False  # values from before the connection are no signs of life
        async for found in link.watch(HOSTS, ">"):
            if found is None:
                live = True
                self._watching.set()
                continue
            kind, _, host = found[0].partition(".")
            full = len(self._peers) >= _MOST_HOSTS and host not in self._peers
            if not NAME.fullmatch(host) or full:
                continue
            if kind == "beat" and live and (beat := Beat.decode(found[1])) is not None:
                self._hear(host, beat)
            elif kind == "roster" and host != self.own:
                self._keep_roster(host, found[1])

    def _keep_roster(self, host: str, value: bytes) -> None:
        try:
            roster = FarRoster.decode(parse_object(value), time.time())
            rosters.keep(HostPlaces(self.paths).roster(host), roster)
        except (NotAMessage, StoreError) as error:  # only for display; another comes soon
            self.journal.warn("roster not kept", host=host, reason=str(error))

    def _hear(self, host: str, beat: Beat) -> None:
        now, peer = clocks.elapsed(), self._peers.get(host)
        if not self._is_reachable(host):
            self._newcomer.set()
        if peer is None:
            peer = self._peers[host] = Peer(beat, now)
            what = explain_folder(self.views.get(host).folder, beat)
        else:
            what = peer.hear(beat, now)
        is_this = host == self.own and beat.session == self._session
        if what is not None and (what == DOUBLE or not is_this):
            self.report(host, what)
        if host != self.own:
            self.views.change(host, folder=beat.folder)
            self._show(host, "")
            with suppress(StoreError):
                self.views.write()

    def _is_reachable(self, host: str) -> bool:
        peer = self._peers.get(host)
        return peer is not None and peer.is_reachable(clocks.elapsed())

    def _show_all(self, why: str) -> None:
        """Update the displayed state of all hosts; `why` is empty while there is a connection."""
        self._forget_hosts()
        self.views.change(self.own, why=why)
        for host in {*HostPlaces(self.paths).known(), *self._peers} - {self.own}:
            self._show(host, why)
        with suppress(StoreError):
            self.views.write()

    def _show(self, host: str, why: str) -> None:
        before = self.views.get(host)
        if not why and self._is_reachable(host):
            trip = 1000 * (self._trip + self._peers[host].beat.trip)
            facts: dict[str, Any] = {"state": HostState.REACHABLE, "why": ""}
            if before.state is not HostState.REACHABLE:
                facts["since"] = time.time()
            shown = before.round_trip_ms
            if shown is None or abs(trip - shown) > max(1.0, _TRIP_SHARE * shown):
                facts["round_trip_ms"] = round(trip, 2)
            self.views.change(host, **facts)
        elif before.state is HostState.REACHABLE:
            gone = {"state": HostState.UNREACHABLE, "round_trip_ms": None}
            peer = self._peers.get(host)
            silent = 0.0 if peer is None else clocks.elapsed() - peer.heard
            self.views.change(host, why=why or _SILENT, since=time.time() - silent, **gone)
        else:
            never = before.state is HostState.NEVER
            self.views.change(host, why=why or ("" if never else _SILENT))

    def _forget_hosts(self) -> None:
        """Drop hosts without any files left, as after `teamctl hosts forget`."""
        known = HostPlaces(self.paths).known()
        for host in self.views.names():
            if host not in known and host != self.own and not self._is_reachable(host):
                self.views.forget(host)
                self._peers.pop(host, None)

    def _note_old_copy(self, host: str, unknown: int) -> None:
        former = self._folder["folder"]
        self.journal.warn("this folder is an old copy", host=host, unknown=unknown)
        self._folder = write_folder(self.paths, former, durable=self.durable)

    def report(self, host: str, what: str) -> None:
        """Report a problem that could not be resolved: in the log, in the view, and by mail.

        Another host can cause any number of reports, so the mails are limited.
        """
        now, reports = time.time(), self.views.get(host).reports
        if reports and reports[-1].text == what:
            return
        self.journal.warn("report", host=host, what=what)
        self.views.report(host, Report(now, what))
        late = sum(now - one.time < _REPORTS_SECONDS for one in reports)
        if late < _MOST_REPORTS:
            more = " Further ones within the hour are in `teamctl hosts` only."
            text = f"About the host {host}: {what}.{more if late == _MOST_REPORTS - 1 else ''}"
            try:
                self.post.notify(Message(sender=TEAMD, to=LEAD, content=text))
            except TeamError as error:
                self.journal.error("not told", error, host=host)

    def _follow(self, watched: Watch, changed: asyncio.Event) -> None:
        def wake() -> None:
            watched.changed()
            changed.set()

        asyncio.get_running_loop().add_reader(watched.fileno(), wake)


def read_folder(paths: TeamPaths, *, durable: bool) -> dict[str, str]:
    """Return the id of this team's folder and its former one; create it if there is none."""
    found = decode_value(files.read(HostPlaces(paths).folder_id) or b"")
    match found:
        case {"folder": str(folder), "former": str(former)}:
            return {"folder": folder, "former": former}
    return write_folder(paths, "", durable=durable)


def write_folder(paths: TeamPaths, former: str, *, durable: bool) -> dict[str, str]:
    """Give this team's folder another id."""
    found = {"folder": new_tag(), "former": former}
    text = f'{{"folder": "{found["folder"]}", "former": "{former}"}}\n'
    files.replace(HostPlaces(paths).folder_id, text.encode(), durable=durable)
    return found


def take_name(paths: TeamPaths, name: str, *, durable: bool) -> None:
    """Record this host's name; if it has changed, forget the counts of the former name."""
    places = HostPlaces(paths)
    noted = (files.read(places.name) or b"").decode("utf-8", "replace").strip()
    if noted == name:
        return
    if noted:
        for folder in (places.received("").parent, places.confirmed("").parent):
            for path in directories.list_files(folder, "*.json"):
                files.remove(path)
    files.replace(places.name, f"{name}\n".encode(), durable=durable)


def live(paths: TeamPaths, settings: Settings, mask: Mask) -> int:
    """Run the postman of a team; return the exit code."""
    places = HostPlaces(paths)
    with closing(Journal(places.log, "postman", mask)) as journal:
        try:
            places.create()
            if not postman_runs(paths):
                # Before the lock is visible, because readers then trust the view.
                _doubt_view(paths)
            lock = InstanceLock(places.postman)  # allows only one postman
            _doubt_view(paths)  # again, if another postman has ended meanwhile
            journal.note(LoggedEvent.PROCESS_BEGAN, pid=os.getpid(), name=settings.hosts.name)
            take_name(paths, settings.hosts.name or "", durable=_is_durable(settings))
            asyncio.run(_serve(paths, settings, journal, lock.check))
        except Exception as error:  # noqa: BLE001 -- the child's edge: errors are read in the log
            return explain_exit(journal, error)
    return ChildExit.STOPPED


async def _serve(
    paths: TeamPaths, settings: Settings, journal: Journal, check: Callable[[], None]
) -> None:
    durable = _is_durable(settings)
    post = MailRouter(
        paths,
        durable=durable,
        max_bytes=max(settings.mail.max_message_bytes, MAX_MESSAGE_BYTES),
        max_inbox_bytes=settings.mail.max_inbox_bytes,
        patience_seconds=_LOCK_SECONDS,
        hosts=FarHosts.of(paths, settings.hosts, durable=durable),
    )
    team = Roster(paths).read().name
    views = Views(paths)
    await Postman(paths, settings.hosts, post, team, journal, durable, check, views).serve()


def _is_durable(settings: Settings) -> bool:
    return settings.mail.durability == "disk"


def _doubt_view(paths: TeamPaths) -> None:
    views = Views(paths)
    views.doubt(time.time())
    views.write()


def main() -> int:
    """Run the postman, which only teamd starts (see `start`); return the exit code."""
    root, settings = read_command(sys.argv[1:])
    return live(TeamPaths(Path(root)), settings, Mask())
