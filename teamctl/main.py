"""`teamctl`: a plain call is run at once, every other by click."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamd.late import load_late

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from teamd.commandline import Command


def main() -> None:
    """The entry point of `teamctl`."""
    load_late("inspect")
    from teamd.cli import run  # noqa: PLC0415 -- whatever declares dataclasses, behind the line above

    run("teamctl", _find, _build)


def _find(words: Sequence[str]) -> tuple[Command, Sequence[str]] | None:
    from teamctl.commands import COMMANDS, load  # noqa: PLC0415 -- the same
    from teamd.commandline import Command  # noqa: PLC0415 -- the same

    name, *rest = words or [""]
    found = load(name) if name in COMMANDS else None
    return (found, rest) if isinstance(found, Command) else None


def _build() -> click.Group:
    from teamctl.group import cli  # noqa: PLC0415 -- click, where a call is not plain

    return cli
