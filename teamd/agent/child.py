"""The process of a teammate after the fork: how it begins, lives and ends."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from dataclasses import replace

from teamd.agent.build import build_loop, reason_to_wake
from teamd.agent.call_slots import CallSlots
from teamd.agent.environment import Environment
from teamd.agent.model_calls import TeammateModel
from teamd.agent.process import TeammateProcess
from teamd.agent.wakeup import HeartbeatSender, SupervisorGone, Wakeup, hibernate
from teamd.copies import record as copies
from teamd.copies.clone import settle
from teamd.copies.record import Copy
from teamd.files import locks
from teamd.files.locks import InstanceLock
from teamd.files.paths import TeamPaths
from teamd.files.watch import SLOW_SECONDS
from teamd.journal import Journal, LoggedEvent
from teamd.messages import TEAMD
from teamd.sandbox.build import check_workspace
from teamd.team.child_exit import explain_exit
from teamd.team.heartbeat import Heartbeat
from teamd.team.roster import Roster
from teamd.team.states import ChildExit, ChildStart


def live(common: TeammateProcess, start: ChildStart) -> int:
    """Run as a teammate until told to stop, or until it may hibernate; return the exit code."""
    name = start.name
    journal = Journal(common.paths.log(name), name, common.mask)
    pulse = HeartbeatSender(start.heartbeat, every_seconds=common.beat_seconds)
    try:
        wakeup = Wakeup(start.bell, pulse=pulse, recheck_seconds=SLOW_SECONDS)
        slots = CallSlots(start.slots)
        env = _environment(common, name, journal, wakeup, slots, goes_on=start.hibernates)
        if start.hibernates:
            env.presence.rest()
            hibernate(start.bell, start.heartbeat, reason_to_wake(env))
        journal.note("wakes" if start.hibernates else LoggedEvent.PROCESS_BEGAN, pid=os.getpid())
        return _live(env, pulse)
    except SupervisorGone:
        journal.warn("stops: its supervisor has gone")
        return ChildExit.STOPPED
    except Exception as error:  # noqa: BLE001 -- the child's edge: the error goes to the log
        return explain_exit(journal, error)
    finally:
        journal.close()


def try_first_steps(common: TeammateProcess, bell: int) -> None:
    """Build a teammate just as the first one will be built, and leave no trace of it.

    It has the name of the supervisor, which no teammate can have. An error raised here would also
    end the process of every teammate at its start.
    """
    paths = common.paths
    check_workspace(common.settings())
    pulse = HeartbeatSender(Heartbeat(), every_seconds=common.beat_seconds)
    wakeup = Wakeup(bell, pulse=pulse, recheck_seconds=SLOW_SECONDS)
    journal = Journal(paths.log(TEAMD), TEAMD, common.mask)
    env = _environment_of(common, TEAMD, journal, wakeup, CallSlots(bell))
    build_loop(env)
    asyncio.run(TeammateModel(env).provider.try_client())


def _environment(
    common: TeammateProcess,
    name: str,
    journal: Journal,
    wakeup: Wakeup,
    slots: CallSlots,
    *,
    goes_on: bool,
) -> Environment:
    # A process of that name that still ends is waited for; there are never two.
    instance_lock = InstanceLock(common.paths.life(name))
    at_end = ExitStack()
    at_end.callback(instance_lock.close)  # runs after all later callbacks
    env = _environment_of(common, name, journal, wakeup, slots)
    copy = _copy_of(common.paths, env.roster, name)
    return replace(
        env,
        settings=env.settings if copy is None else env.settings.in_copy(copy.folder),
        origin=None if copy is None else copy.origin,
        check=instance_lock.check,
        goes_on=goes_on,
        at_end=at_end,
    )


def _environment_of(
    common: TeammateProcess, name: str, journal: Journal, wakeup: Wakeup, slots: CallSlots
) -> Environment:
    """Return the environment of a teammate that works in the shared folder."""
    return Environment(
        name=name,
        paths=common.paths,
        settings=common.settings(),
        journal=journal,
        wakeup=wakeup,
        slots=slots,
        check=lambda: None,
        granted_bytes=common.granted_bytes,
        probe=common.probe_sandbox(),
        mask=common.mask,
        ledger=common.ledger,
        roster=Roster(common.paths),
    )


def _copy_of(paths: TeamPaths, roster: Roster, name: str) -> Copy | None:
    """Return the working copy of a teammate, unless it works in the shared folder.

    Raises:
        TeamError: its copy is gone: it must not go on in the shared folder.
    """
    member = roster.find(name)
    if member is None or not member.worktree:
        return None
    copy = copies.get(paths, name)
    if not copy.moved:
        return copy
    with locks.locked(copies.lock_file(paths, name)):
        return settle(paths, copies.get(paths, name))


def _live(env: Environment, pulse: HeartbeatSender) -> int:
    # Not asyncio.run: at its end it waits for threads, such as a thread that looks up a host.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.call_soon(pulse.beat)
    life = loop.create_task(_run(env))
    loop.add_signal_handler(signal.SIGTERM, life.cancel)
    try:
        loop.run_until_complete(life)
    except asyncio.CancelledError:
        env.journal.note("stops")
        return ChildExit.STOPPED
    return ChildExit.HIBERNATES


async def _run(env: Environment) -> None:
    teammate = build_loop(env)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, teammate.interrupt)
    with env.at_end:
        await teammate.run()
