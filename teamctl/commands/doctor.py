"""`teamctl doctor`: checks the machine, the team, the model and other hosts; it changes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace

import click

from teamctl.doctor import Finding, Level
from teamctl.doctor.hosts import check_hosts
from teamctl.doctor.machine import check_machine, check_synced
from teamctl.doctor.model import check_model
from teamctl.render import output
from teamd import recovery
from teamd.board.files import read_all
from teamd.command_line import terminal
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import ExitCode, NoTeam, SettingsError, TeamError
from teamd.files import directories, pidfile
from teamd.files.paths import TeamPaths
from teamd.overview.members import count_rejected
from teamd.overview.notices import describe_rejected, describe_version
from teamd.sandbox import WITHOUT
from teamd.sandbox.build import check_workspace, judge_workspace
from teamd.sandbox.git_repository import explain_git
from teamd.sandbox.probe import describe, probe
from teamd.settings import Settings, roles, skills
from teamd.team.roster import Roster, Team

_INDENT = "      "
_MARKS = {
    Level.OK: terminal.style("ok  ", fg="green"),
    Level.NOTE: terminal.style("note", fg="yellow"),
    Level.FAIL: terminal.style("FAIL", fg="red", bold=True),
}


@click.command()
@output.json_option
@team_options
def command(choice: TeamOptions, *, as_json: bool) -> int:
    """Check the machine, the settings and the key, and say how to fix what is wrong.

    The exit status is 1 if something must be fixed.
    """
    found = []
    for one in _findings(choice):
        what, remedy = choice.add_team_option(one.what), choice.add_team_option(one.remedy)
        finding = replace(one, what=what, remedy=remedy)
        found.append(finding)
        if not as_json:
            what_lines = terminal.fit(finding.what, sys.stdout, _INDENT).strip()
            click.echo(f"{_MARKS[finding.level]}  {what_lines}")
            if finding.remedy:
                remedy_lines = terminal.fit(finding.remedy, sys.stdout, _INDENT)
                click.echo(terminal.style(remedy_lines, dim=True))
    if as_json:
        output.print_json({"findings": [asdict(finding) for finding in found]})
    failed = any(finding.level is Level.FAIL for finding in found)
    return ExitCode.REFUSED if failed else ExitCode.DONE


def _findings(choice: TeamOptions) -> Iterator[Finding]:
    team = None
    try:
        team = choice.existing()
    except NoTeam:
        yield Finding(Level.NOTE, "there is no team here yet", "`teamd start` makes one")
        yield from _place(choice)
    except TeamError as error:
        yield Finding(Level.FAIL, str(error))
    yield from check_machine(team)
    if team is not None:
        yield from _files(team)
    yield from _settings(choice, team)


def _place(choice: TeamOptions) -> Iterator[Finding]:
    """Check whether `teamd start` could create a team here."""
    try:
        root = choice.existing_or_here().root
    except TeamError as error:
        yield Finding(Level.FAIL, str(error))
        return
    folder = next(one for one in (root, *root.parents) if one.is_dir())
    if not os.access(folder, os.W_OK | os.X_OK):
        what = f"{folder} may not be written to, so `teamd start` cannot make a team there"
        yield Finding(Level.FAIL, what, "check its owner and mode, or go to a folder of your own")


def _settings(choice: TeamOptions, team: TeamPaths | None) -> Iterator[Finding]:
    try:
        paths = team or choice.existing_or_here()
        found = choice.read_settings(paths)
    except SettingsError as error:
        for mistake in error.mistakes:
            yield Finding(Level.FAIL, f"{error.path}: {mistake}", "correct it in the file")
        return
    except TeamError:
        return  # reported above
    yield Finding(Level.OK, "the settings are right")
    if waiting := found.explain_waiting(choice.config):
        yield Finding(Level.NOTE, waiting, "`teamctl trust` shows them, and confirms the file")
    yield from _workspace(found.settings)
    yield _sandbox(found.settings)
    yield from _texts(found.settings, paths)
    yield from check_model(found.settings, team)
    yield from check_hosts(found.settings, team)


def _workspace(settings: Settings) -> Iterator[Finding]:
    try:
        check_workspace(settings)
    except TeamError as error:
        yield Finding.of(Level.FAIL, error)
    if sentence := explain_git(settings.tools, settings.team.workspace):
        yield Finding.of(Level.NOTE, sentence)


def _sandbox(settings: Settings) -> Finding:
    if settings.tools.sandbox in WITHOUT:
        what = f'[tools] sandbox is "{settings.tools.sandbox}": commands run with your rights'
        return Finding(Level.NOTE, what, "take it out of team.toml, unless you trust all they read")
    workspace = settings.team.workspace
    found = judge_workspace(probe([workspace]), workspace)
    if found.works:
        return Finding(Level.OK, f"commands run in a sandbox: {describe(settings.tools, found)}")
    what = f"there is no sandbox, so commands are refused: {found.trouble}"
    return Finding(Level.FAIL, what, found.remedy)


def _files(paths: TeamPaths) -> Iterator[Finding]:
    """Check the files of the team and of its members."""
    strange = list(directories.find_strange(paths))
    for error in strange:
        yield Finding.of(Level.FAIL, error)
    if strange:
        return  # these folders and files cannot be opened
    there = pidfile.supervisor(paths)
    if there is None:
        yield Finding(Level.NOTE, "no teamd runs", "`teamd start` starts it")
    else:
        yield Finding(Level.OK, f"teamd runs (pid {there.pid})")
        version = pidfile.find_other_version(paths)
        if version is not None:
            notice = describe_version(paths, version)
            yield Finding(Level.NOTE, notice.text, f"`{notice.command}` {notice.effect}")
    for damage in recovery.find_damage(paths):
        yield Finding(Level.FAIL, str(damage), f"`teamd restart` sets it aside: {damage.repaired}")
    for sentence in read_all(paths).damaged.values():
        yield Finding(Level.FAIL, sentence)
    for kept in recovery.find_kept(paths):
        what = f"{kept} is a damaged file that was set aside"
        yield Finding(Level.NOTE, what, "look at it, then remove it")
    yield from _roster(paths)


def _roster(paths: TeamPaths) -> Iterator[Finding]:
    """Check the roster, and the mail and other files of its members."""
    team = Team()
    try:
        team = Roster(paths).read()
    except TeamError as error:
        yield Finding(Level.FAIL, str(error))
    for name, count in count_rejected(paths, team):
        notice = describe_rejected(paths, name, count)
        yield Finding(Level.NOTE, notice.text, f"`{notice.command}` {notice.effect}")
    yield from check_synced(paths, [member.name for member in team.members])


def _texts(settings: Settings, team: TeamPaths) -> Iterator[Finding]:
    """Report the files of roles and skills that cannot be parsed."""
    workspace = settings.team.workspace
    _, unread = skills.find(skills.folders(team.skills, workspace))
    for error in (*roles.mistakes(roles.folders(team.agents, workspace)), *unread):
        for mistake in error.mistakes:
            yield Finding(Level.FAIL, f"{error.path}: {mistake}", "correct it in the file")
