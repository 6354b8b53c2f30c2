"""`teamctl init`: a commented team.toml to begin with."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import click

from teamctl.render import output
from teamd.errors import StoreError, TeamError
from teamd.files import directories, files, find_team
from teamd.files.paths import SETTINGS_FILE, TeamPaths
from teamd.messages import TEAM_FOLDER
from teamd.settings.trust import TrustStore
from teamd.settings.write import init_text


@click.command()
@output.json_option
def command(*, as_json: bool) -> None:
    """Write a team.toml with every setting, explained, into this folder."""
    file = find_team.here() / SETTINGS_FILE
    directories.remove_placeholder(file)
    if os.path.lexists(file):
        raise TeamError(f"{file} exists already; edit it, or move it away first")
    text = init_text().encode()
    with suppress(StoreError):  # no setting in it loosens, so the file needs no trust
        TrustStore().confirm(file, text)
    files.replace(file, text, mode=0o644)
    reads = "`teamd start` or `teamd reload` reads it"
    said = f"wrote {file}; everything in it is optional, and {reads}"
    output.print_either(said, {"file": str(file)}, as_json=as_json)
    if (team := _team_above()) is not None:
        used = team.settings
        why = f"the team here is {team.root}, and its settings are {used}"
        hint = f"move the file there, or run `teamd start --team-dir {Path.cwd() / TEAM_FOLDER}`"
        output.warn(f"this file does not count: {why}; {hint}")


def _team_above() -> TeamPaths | None:
    """Return the team of this folder if it belongs to a folder above."""
    with suppress(TeamError):
        team = find_team.existing(None, None)
        if team.home.resolve() != Path.cwd().resolve():
            return team
    return None
