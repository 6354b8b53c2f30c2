"""What a process of checks works with: the board as teamd has it, and the rights of a check."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from teamd.board.board import Board
from teamd.checks.places import empty
from teamd.mail.routing import RESERVE, Post
from teamd.messages import TEAMD
from teamd.sandbox.build import build_policy, build_shell_by
from teamd.sandbox.shells import make_home
from teamd.settings.reach import common_reach
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from teamd.checks.places import ShellMaker
    from teamd.files.paths import TeamPaths
    from teamd.sandbox.probe import Probe
    from teamd.sandbox.shells import Shell
    from teamd.settings import Settings


def own_board(paths: TeamPaths, settings: Settings) -> Board:
    """Return the board in the hands of teamd, whose mail has room that others have not."""
    mail = settings.mail
    durable, room = mail.durability == "disk", RESERVE * mail.max_inbox_bytes
    longest = mail.max_message_bytes
    post = Post(paths, durable=durable, max_bytes=longest, max_inbox_bytes=room)
    return Board(paths, post, TEAMD, durable=durable)


def shell_maker(
    paths: TeamPaths, settings: Settings, probe: Probe, name: str, members: Iterable[str]
) -> ShellMaker:
    """Return what makes shells for a check, which reaches what the commands of all members do.

    Args:
        paths: the team.
        settings: those in force.
        probe: whether this machine can make a sandbox.
        name: that the check's home goes by.
        members: who wrote what it runs; without any it reaches what `[tools]` says.
    """
    team = Roster(paths).read()
    found = [team.find(one) for one in members if one]
    reach = [settings.tools_of(one.name, one.role) for one in found if one is not None]
    tools = reduce(common_reach, reach or [settings.tools_of("", "")])

    def make(folder: Path, readable: Iterable[Path] = ()) -> Shell:
        empty(paths.homes / name)
        policy = build_policy(paths, name, tools, workspace=folder, more=readable)
        make_home(policy, name)
        return build_shell_by(policy, paths, name, tools, probe)

    return make
