"""`teamctl init`: a commented team.toml to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from teamd.errors import ExitCode, TeamError
from teamd.settings.writing import init_text
from teamd.store import files
from teamd.store.paths import SETTINGS_FILE


@click.command()
def command() -> int:
    """Write a team.toml with every setting, explained, into this folder."""
    file = Path.cwd() / SETTINGS_FILE
    if file.exists():
        raise TeamError(f"{file} is there already; edit it, or move it away first")
    files.replace(file, init_text().encode(), mode=0o644)
    click.echo(f"wrote {file}; everything in it is optional")
    return ExitCode.DONE
