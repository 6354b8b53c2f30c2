"""`teamctl`: a plain call is run at once, every other by click."""

from __future__ import annotations

from teamd.late import load_late

load_late("ipaddress")  # before whatever imports `pathlib`

from teamctl.commands import COMMANDS, load
from teamd.cli import run
from teamd.commandline import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    import click


def main() -> None:
    """The entry point of `teamctl`."""
    run("teamctl", _find, _build)


def _find(words: Sequence[str]) -> tuple[Command, Sequence[str]] | None:
    name, *rest = words or [""]
    found = load(name) if name in COMMANDS else None
    return (found, rest) if isinstance(found, Command) else None


def _build() -> click.Group:
    from teamctl.group import cli  # noqa: PLC0415 -- click, where a call is not plain

    return cli
