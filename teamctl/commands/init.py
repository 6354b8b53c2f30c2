"""`teamctl init`: a commented team.toml to begin with."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from teamd import commandline, terminal
from teamd.errors import StoreError, TeamError
from teamd.files import directories, files
from teamd.files.paths import SETTINGS_FILE
from teamd.settings.trust import TrustStore
from teamd.settings.write import init_text
from teamd.terminal import plain


@commandline.command()
def command() -> None:
    """Write a team.toml with every setting, explained, into this folder."""
    file = Path.cwd() / SETTINGS_FILE
    directories.remove_placeholder(file)
    if file.exists():
        raise TeamError(f"{file} is there already; edit it, or move it away first")
    text = init_text().encode()
    with suppress(StoreError):  # nothing in it loosens, so that it counts all the same
        TrustStore().confirm(file, text)
    files.replace(file, text, mode=0o644)
    terminal.echo(plain(f"wrote {file}; everything in it is optional"))
