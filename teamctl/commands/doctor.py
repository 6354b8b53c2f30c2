"""`teamctl doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from teamctl import output
from teamctl.doctor import Finding, Level, files, machine, model, texts
from teamd.cli import Choice, team_options
from teamd.errors import ExitCode, NoTeam, SettingsError, TeamError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teamd.files.paths import TeamPaths

_MARKS = {
    Level.OK: click.style("ok  ", fg="green"),
    Level.NOTE: click.style("note", fg="yellow"),
    Level.FAIL: click.style("FAIL", fg="red", bold=True),
}


@click.command()
@output.json_option
@team_options
def command(choice: Choice, *, as_json: bool) -> int:
    """Check the machine, the settings and the key, and say how to fix what is wrong.

    The exit status is 1 if something must be fixed.
    """
    found = []
    for one in _findings(choice):
        what, remedy = choice.addressed(one.what), choice.addressed(one.remedy)
        finding = replace(one, what=what, remedy=remedy)
        found.append(finding)
        if not as_json:
            click.echo(f"{_MARKS[finding.level]}  {output.plain(finding.what)}")
            if finding.remedy:
                click.echo(f"      {click.style(output.plain(finding.remedy), dim=True)}")
    if as_json:
        output.print_json({"findings": [asdict(finding) for finding in found]})
    failed = any(finding.level is Level.FAIL for finding in found)
    return ExitCode.REFUSED if failed else ExitCode.DONE


def _findings(choice: Choice) -> Iterator[Finding]:
    team = None
    try:
        team = choice.existing()
    except NoTeam:
        yield Finding(Level.NOTE, "there is no team here yet", "`teamd start` makes one")
    except TeamError as error:
        yield Finding(Level.FAIL, str(error))
    yield from machine(team)
    if team is not None:
        yield from files(team)
    yield from _settings(choice, team)


def _settings(choice: Choice, team: TeamPaths | None) -> Iterator[Finding]:
    try:
        paths = team or choice.existing_or_here()
        settings = choice.settings(paths)
    except SettingsError as error:
        for mistake in error.mistakes:
            yield Finding(Level.FAIL, f"{error.path}: {mistake}", "mend it in the file")
        return
    except TeamError:
        return  # told above
    yield Finding(Level.OK, "the settings are right")
    yield from texts(settings, paths)
    yield from model(settings)
