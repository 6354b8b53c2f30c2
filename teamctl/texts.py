"""Texts that the person gives to a command, without the secrets of its environment."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from teamd.command_line import terminal
from teamd.errors import TeamError
from teamd.masking import Mask
from teamd.secret_environment import secrets_in

_MOST_BYTES: Final = 1 << 24  # of standard input, which may have no end


def text_or_stdin(argument: str) -> str:
    """The argument itself, or all of standard input where it is `-`; without known secrets.

    Raises:
        TeamError: that is far too much.
    """
    if argument != "-":
        return without_secrets(argument)
    found = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        what = f"standard input holds more than {_MOST_BYTES} bytes"
        raise TeamError(f"{what}; put the text into a file and send its path")
    return without_secrets(found.decode("utf-8", "replace"))


def not_empty(text: str) -> str:
    """Return a message's text.

    Raises:
        TeamError: there is nothing in it: whoever reads it would be asked about nothing.
    """
    if not text.strip():
        raise TeamError("the text is empty; a message needs one, such as `teamctl send bob Hello`")
    return text


def confirm(question: str) -> None:
    """Ask whether something is to be done that cannot be undone; a script has decided it already.

    Raises:
        TeamError: the person does not want it.
    """
    if sys.stdin.isatty() and ask(f"{question} [y/N]").lower() not in ("y", "yes"):
        raise TeamError("nothing was done")


def ask(question: str) -> str:
    """Ask the person for a line; nothing where nobody is there to be asked."""
    if not sys.stdin.isatty():
        return ""
    click.echo(terminal.plain(question), err=True)
    return without_secrets(sys.stdin.readline().strip())


def without_secrets(text: str) -> str:
    """Return a text of the person's without the secrets that its environment holds."""
    return Mask(*secrets_in(os.environ)).text(text)
