"""`teamctl trust`: the person confirms the settings that loosen limits on agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from teamctl.render import output, tables
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError
from teamd.settings.load import read_file
from teamd.settings.loaded_settings import SettingsFile
from teamd.settings.trust import Confirmed, TrustStore

_NEXT = "it counts from the next `teamd start` or `teamd reload` on"


@click.command()
@click.option("--list", "listed", is_flag=True, help="List the files that you trust.")
@click.option("--revoke", is_flag=True, help="Stop trusting the file.")
@output.json_option
@team_options
def command(choice: TeamOptions, *, listed: bool, revoke: bool, as_json: bool) -> None:
    """Confirm the team's settings file in its present form, and print the settings that loosen.

    Settings that let agents do more than the defaults count only in a file that you confirmed.
    When its text changes, confirm it again. The running team follows at the next `teamd reload`.
    """
    if listed and revoke:
        raise click.UsageError("--list changes nothing and --revoke does: take one of them")
    if listed:
        _list(as_json=as_json)
    elif revoke:
        _revoke(choice, as_json=as_json)
    else:
        _confirm(choice, as_json=as_json)


def _confirm(choice: TeamOptions, *, as_json: bool) -> None:
    found = choice.read_settings(choice.existing_or_here())
    lines = []
    for file in found.files:
        if file.data is None:
            TrustStore().forget(file.path)
        else:
            TrustStore().confirm(file.path, file.data)
        lines += _describe(file)
    if found.waiting:
        lines.append(choice.add_team_option(_NEXT))
    output.print_either(
        "\n".join(lines), {"files": list(map(_encode, found.files))}, as_json=as_json
    )


def _describe(file: SettingsFile) -> list[str]:
    """Return a line about a file, and a line for each setting that loosens."""
    path = output.plain(str(file.path))
    if file.data is None:
        return [f"there is no {path}; nothing is to be confirmed"]
    if not file.loosened:
        return [f"{path} is confirmed; it loosens nothing"]
    again = "was confirmed already" if file.trusted else "is confirmed"
    return [f"{path} {again}; it loosens:", *(f"  {one}" for one in file.loosened)]


def _encode(file: SettingsFile) -> dict[str, Any]:
    loosened = [one.encode() for one in file.loosened]
    return {"path": str(file.path), "trusted": file.data is not None, "loosens": loosened}


def _revoke(choice: TeamOptions, *, as_json: bool) -> None:
    paths = choice.existing_or_here()
    # The file may be missing.
    file = paths.settings if choice.config is None else Path(choice.config).absolute()
    known = TrustStore().forget(file)
    path = output.plain(str(file))
    text = f"{path} is no longer trusted" if known else f"{path} was not trusted"
    later = f"; {choice.add_team_option('what it loosens ends with the next `teamd reload`')}"
    document = {"path": str(file), "revoked": known}
    output.print_either(text + (later if known else ""), document, as_json=as_json)


def _list(*, as_json: bool) -> None:
    found = sorted(TrustStore().confirmed(), key=lambda one: one.place)
    rows = [(one.place, one.time, _state(one)) for one in found]
    if as_json:
        keys = ("path", "time", "state")
        output.print_json({"files": [dict(zip(keys, row, strict=True)) for row in rows]})
    elif rows:
        cells = [[output.plain(place), output.moment(when), state] for place, when, state in rows]
        tables.print_table(("FILE", "CONFIRMED", "STATE"), cells, ())
    else:
        click.echo("you trust no settings file; `teamctl trust` confirms that of a team")


def _state(confirmed: Confirmed) -> str:
    """Return whether a file is unchanged since it was confirmed, in a word."""
    path = Path(confirmed.place)
    try:
        data = read_file(path)
    except TeamError:
        return "unreadable"
    if data is None:
        return "gone"
    return "trusted" if confirmed.covers(path, data) else "changed"
