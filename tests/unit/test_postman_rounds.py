"""The postman's rounds without a broker: its input, the shown state, and what it forgets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from teamd_commands import command_line

from teamd import clocks
from teamd.errors import StoreError
from teamd.files.paths import TeamPaths
from teamd.files.watch import Watch, watch
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.hosts.rosters import FarRoster
from teamd.hosts.view import HostState, read_views
from teamd.journal import Journal
from teamd.mail.mailbox import Mailbox
from teamd.postman.broker import Broker
from teamd.postman.build import build_postman
from teamd.postman.presence import HostPresence
from teamd.postman.process import Postman
from teamd.postman.start import _command, read_command
from teamd.settings import Settings
from teamd.settings.schema import HostSettings, Mail
from teamd.team.member import Member
from teamd.team.roster import Roster
from teamd.team.states import Status
from tests.unit.life import enrol

HOSTS: Final = HostSettings(name="h1", servers=("nats://127.0.0.1:1",))
DENIED: Final = 'permissions violation for publish to "roster.h1"'


@dataclass
class Rounds:
    """A postman that does not serve: a test gives its input and runs its rounds."""

    postman: Postman
    outboxes: Watch
    team: Watch
    broker: Broker
    log: Path

    def go(self) -> None:
        """Do a round, as if both folders had changed."""
        for watched in (self.outboxes, self.team):
            self.postman._wake(watched)
        self.postman._round(self.outboxes, self.team, self.broker)

    async def hear(self, host: str, *payloads: bytes) -> None:
        """Have a host publish frames, and do a round."""
        for payload in payloads:
            await self.postman._hear(f"roster.{host}", payload)
        self.go()

    def told(self) -> set[str]:
        """Return the members that are published to other hosts."""
        return {member.name for member in self.postman.presence.roster.members}

    def seen(self, host: str) -> tuple[HostState, str] | None:
        """Return the state in which a host is shown."""
        views = {one.name: one for one in read_views(self.postman.paths)}
        return (views[host].state, views[host].why) if host in views else None


@asynccontextmanager
async def rounds(
    folder: Path,
    check: Callable[[], None] = lambda: None,
    *,
    before_watching: Callable[[TeamPaths], object] = lambda _: None,
) -> AsyncIterator[Rounds]:
    paths = TeamPaths(folder / ".team")
    enrol(paths, bob=Status.IDLE)
    HostPlaces(paths).create()
    settings = Settings(hosts=HOSTS, mail=Mail(durability="os"))
    with closing(Journal(folder / "log", "postman")) as journal:
        journal.note("begins")
        postman = build_postman(paths, settings, journal, check)
        before_watching(paths)
        with (
            closing(watch(HostPlaces(paths).outboxes)) as outboxes,
            closing(watch(paths.root)) as team,
        ):
            yield Rounds(postman, outboxes, team, postman._broker(), folder / "log")


def beats(presence: HostPresence) -> list[bytes]:
    return list(presence.due(clocks.elapsed(), time.time()))


def far(name: str = "h2") -> HostPresence:
    return HostPresence(name, f"boot of {name}", FarRoster(team="project"))


def hire(paths: TeamPaths) -> None:
    Roster(paths).update(lambda team: team.with_new("carl", role="clerk", status=Status.WORKING))


def test_a_member_that_joins_before_the_roster_is_watched_is_published(tmp_path: Path) -> None:
    """Otherwise other hosts would not know of carl until another change."""

    async def scenario() -> None:
        async with rounds(tmp_path, before_watching=hire) as one:
            one.postman._round(one.outboxes, one.team, one.broker)
            assert one.told() == {"bob", "carl"}

    asyncio.run(scenario())


def test_a_change_without_a_notification_is_seen_later(tmp_path: Path) -> None:
    """File systems and queues can lose a hint."""

    async def scenario() -> None:
        async with rounds(tmp_path) as one:
            one.postman._round(one.outboxes, one.team, one.broker)
            hire(one.postman.paths)
            one.team.changed()
            one.postman._round(one.outboxes, one.team, one.broker)
            assert one.told() == {"bob"}
            one.postman._looked[one.team] -= one.team.recheck_seconds
            one.postman._round(one.outboxes, one.team, one.broker)
            assert one.told() == {"bob", "carl"}

    asyncio.run(scenario())


def test_a_host_is_reachable_once_heard_and_its_absence_follows_the_connection(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with rounds(tmp_path) as one:
            one.postman._connect()
            await one.hear("h2", *beats(far()))
            assert one.seen("h2") == (HostState.REACHABLE, "")
            one.postman.presence.peers["h2"].heard -= 60.0
            one.postman._disconnect("nothing listens there")
            one.go()
            assert one.seen("h2") == (HostState.UNREACHABLE, "nothing listens there")
            one.postman._disconnect("")
            one.go()
            assert one.seen("h2") == (
                HostState.UNREACHABLE,
                "there is no connection to the broker",
            )

    asyncio.run(scenario())
    told = (tmp_path / "log").read_text()
    assert told.count('"disconnected"') == 2


def test_a_denial_of_the_broker_is_logged_once_and_shown_at_each_host(
    tmp_path: Path,
) -> None:
    """The name in the settings differs from that in the certificate: no beat of ours gets out."""

    async def scenario() -> None:
        async with rounds(tmp_path) as one:
            one.postman._connect()
            other = far()
            await one.hear("h2", *beats(other))
            for _ in range(2):
                one.postman._note_denied(DENIED)
            one.postman.presence.peers["h2"].answered -= 60.0
            other._next_beat = 0.0
            await one.hear("h2", *beats(other))
            state, why = one.seen("h2") or (None, "")
            assert state is HostState.UNREACHABLE
            assert why.startswith("the broker does not let this host speak as h1; [hosts] name")
            for number in range(200):
                one.postman._note_denied(f"something else: {number}")

    asyncio.run(scenario())
    denied = (tmp_path / "log").read_text().count("denied by the broker")
    assert denied == 100, "who reads the log has other things to see"


def test_two_machines_with_the_same_name_are_reported_once(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with rounds(tmp_path) as one:
            twins = [far(), far()]
            for _ in range(8):
                for twin in twins:
                    twin._next_beat = 0.0
                    await one.hear("h2", *beats(twin))
            return [mail.content for mail in Mailbox(one.postman.paths, "lead").peek()]

    (told,) = asyncio.run(scenario())
    assert told.startswith("About the host h2: two hosts have that name, and mail to it comes to ")
    assert "`teamctl hosts add NAME`" in told


def test_an_invalid_presence_frame_is_logged_and_shows_no_host(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rounds(tmp_path) as one:
            await one.hear("h2", b"{", b'{"kind": "beat"}')
            assert one.seen("h2") is None

    asyncio.run(scenario())
    assert (tmp_path / "log").read_text().count("no presence") == 2


def test_a_change_of_the_roster_is_published_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rounds(tmp_path) as one:
            one.go()
            carol = Member(name="carol", agent_id="carol@project", role="r", status=Status.IDLE)
            Roster(one.postman.paths).update(lambda team: team.with_member(carol))
            one.go()
            assert one.postman.presence.roster.find("carol") is not None
            one.postman.paths.config.write_text("{")
            one.go()
            assert one.postman.presence.roster.find("carol") is not None, "it is being mended"

    asyncio.run(scenario())


def test_a_roster_that_cannot_be_stored_is_requested_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rounds(tmp_path) as one:
            HostPlaces(one.postman.paths).roster("h2").mkdir()
            await one.hear("h2", *beats(far()))
            assert one.postman.presence.peers["h2"].roster == ""

    asyncio.run(scenario())
    assert "roster not kept" in (tmp_path / "log").read_text()


def test_a_host_whose_files_are_gone_is_no_longer_shown(tmp_path: Path) -> None:
    """As after `teamctl hosts forget`; a host that is heard or has waiting mail stays."""

    async def scenario() -> None:
        async with rounds(tmp_path) as one:
            paths = one.postman.paths
            for host in ("h2", "h3", "h4"):
                Outbox(paths, host, durable=False).append("mail", to="bob", message={"id": "1"})
            await one.hear("h4", beats(far("h4"))[0])  # no roster of it is stored yet
            assert one.postman.links.hosts == {"h2", "h3", "h4"}
            assert one.seen("h2") is not None
            for host in ("h2", "h4"):
                HostPlaces(paths).outbox(host).unlink()
            one.go()
            assert one.postman.links.hosts == {"h3", "h4"}
            assert one.seen("h2") is None
            assert one.seen("h4") == (HostState.REACHABLE, "")

    asyncio.run(scenario())


def test_a_failure_to_write_the_view_does_not_end_a_round(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rounds(tmp_path) as one:
            HostPlaces(one.postman.paths).state.mkdir()
            await one.hear("h2", *beats(far()))
            HostPlaces(one.postman.paths).state.rmdir()
            one.go()
            assert one.seen("h2") is not None

    asyncio.run(scenario())
    assert "state not shown" in (tmp_path / "log").read_text()


def test_frames_that_no_broker_accepts_are_dropped(tmp_path: Path) -> None:
    """After the next connection the other side reports its position, and the rest is sent."""

    async def scenario() -> None:
        async with rounds(tmp_path) as one:
            one.postman._out.extend([("mail.h2.h1", b"1"), ("mail.h2.h1", b"2")])
            one.postman._hand_over(one.broker)
            assert not one.postman._out

    asyncio.run(scenario())


def test_a_replaced_team_directory_ends_the_round(tmp_path: Path) -> None:
    def gone() -> None:
        raise StoreError("the team directory is another one")

    async def scenario() -> None:
        async with rounds(tmp_path, gone) as one:
            await one.hear("h2", *beats(far()))

    with pytest.raises(StoreError, match="is another one"):
        asyncio.run(scenario())
    assert not HostPlaces(TeamPaths(tmp_path / ".team")).state.exists()


def test_the_postman_s_program_gets_the_settings_in_force(tmp_path: Path) -> None:
    """The file may have changed since; no other settings, because anyone can read the arguments."""
    chosen = Settings(
        hosts=HostSettings(
            name="h1",
            servers=("tls://h9:4222", "tls://[fd00::1]:4222"),
            cert=Path("/keys/c.pem"), key=Path("/keys/k.pem"), ca=Path("/keys/ca.pem"),
            allow={"spawn": ("h2", "h3")}, outbox_bytes=2_000_000,
        ),
        mail=Mail(durability="os", max_message_bytes=5000),
    )  # fmt: skip
    started = command_line("postman")
    command = _command(TeamPaths(tmp_path), chosen)
    given = command[len(started) :]
    root, read = read_command(given)
    assert (command[: len(started)], root) == (started, tmp_path)
    assert (read.hosts, read.mail) == (chosen.hosts, chosen.mail)
    assert json.dumps(given).count("key") == json.dumps(given).count("keys") + 1
