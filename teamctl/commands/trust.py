"""`teamctl trust`: the person confirms the settings that loosen limits on agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from teamctl.arguments import REQUEST_SECONDS
from teamctl.render import output, tables
from teamd import control
from teamd.command_line.options import team_options
from teamd.command_line.run import TeamOptions
from teamd.errors import TeamError
from teamd.files import pidfile
from teamd.settings.load import read_file
from teamd.settings.loaded_settings import SettingsFile
from teamd.settings.trust import Confirmed, TrustStore

_NEXT = "it counts from the next `teamd start` on"
_NEXT_RELOAD = (
    "it counts from the next `teamd reload` on, which `teamctl trust --reload` does at once"
)


@click.command()
@click.option("--list", "listed", is_flag=True, help="List the files that you trust.")
@click.option("--revoke", is_flag=True, help="Stop trusting the file.")
@click.option("--reload", is_flag=True, help="Then let the running teamd follow.")
@output.json_option
@team_options
def command(
    choice: TeamOptions, *, listed: bool, revoke: bool, reload: bool, as_json: bool
) -> None:
    """Confirm the team's settings file in its present form, and print the settings that loosen.

    Settings that let agents do more than the defaults count only in a file that you confirmed.
    If you later change such a setting, the change waits until you confirm it; the others
    stay confirmed. A running team applies it at the next `teamd reload`, or at once with --reload.
    """
    if listed and (revoke or reload):
        raise click.UsageError(
            "--list changes nothing, and the other option does; use only one of them"
        )
    if listed:
        _list(as_json=as_json)
        return
    if reload:
        pidfile.check(choice.existing())  # otherwise the file would be confirmed for nobody
    lines, document = (_revoke if revoke else _confirm)(choice, reload=reload)
    if reload:
        reply = control.ask(choice.existing(), "reload", {}, timeout_seconds=REQUEST_SECONDS)
        lines.append(reply.raise_unless_done().text)
        document["reloaded"] = reply.data.get("lines", [])
    output.print_either("\n".join(lines), document, as_json=as_json)


def _confirm(choice: TeamOptions, *, reload: bool) -> tuple[list[str], dict[str, Any]]:
    """Confirm the files of the team; return lines about them, and the document."""
    found = choice.read_settings(choice.existing_or_here())
    lines = []
    for file in found.files:
        if file.data is None:
            TrustStore().forget(file.path)
        else:
            TrustStore().confirm(file.path, file.data)
        lines += _describe(file)
    if found.waiting and not reload:
        runs = pidfile.supervisor(choice.existing_or_here()) is not None
        lines.append(choice.add_team_option(_NEXT_RELOAD if runs else _NEXT))
    return lines, {"files": list(map(_encode, found.files))}


def _describe(file: SettingsFile) -> list[str]:
    """Return a line about a file, and a line for each setting that loosens limits."""
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


def _revoke(choice: TeamOptions, *, reload: bool) -> tuple[list[str], dict[str, Any]]:
    """Revoke the file of the team; return a line about it, and the document."""
    if choice.config is None:
        file = choice.existing_or_here().settings
    else:
        file = Path(choice.config).absolute()  # it may be gone
    known = TrustStore().forget(file)
    path = output.plain(str(file))
    text = f"{path} is no longer trusted" if known else f"{path} was not trusted"
    if known and not reload:
        text += f"; {choice.add_team_option('what it loosens ends with the next `teamd reload`')}"
    return [text], {"path": str(file), "revoked": known}


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
