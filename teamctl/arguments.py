"""The arguments of commands: options, texts, names that the shell completes, the team's post."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from teamd.board.files import ids_in
from teamd.cli import Choice, Seconds
from teamd.errors import TeamError
from teamd.files import find_team
from teamd.mail.routing import Post
from teamd.masking import Mask
from teamd.messages import LEAD, TEAMD, USER
from teamd.secret_environment import secrets_in
from teamd.team.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from teamd.approvals.approval import Approval
    from teamd.files.paths import TeamPaths

    Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


_MOST_BYTES: Final = 1 << 24  # of standard input, which may have no end
REQUEST_SECONDS: Final = 30.0  # until the supervisor has answered

fresh_option = click.option(
    "--fresh", is_flag=True, help="Begin a new conversation; the transcript keeps the old one."
)
grace_option = partial(
    click.option, "--timeout", type=Seconds(zero=True), default=10.0, show_default=True
)


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


def without_secrets(text: str) -> str:
    """Return a text of the person's without the secrets that its environment holds."""
    return Mask(*secrets_in(os.environ)).text(text)


def team_post(choice: Choice) -> Post:
    """Return the post of the team that is meant, as its settings want mail to be kept."""
    paths = choice.existing()
    mail = choice.settings(paths).mail
    return Post(
        paths,
        durable=mail.durability == "disk",
        max_bytes=mail.max_message_bytes,
        max_inbox_bytes=mail.max_inbox_bytes,
    )


def _completing(find: Callable[[TeamPaths], Iterable[str]]) -> Complete:
    """Return click's callback for what `find` finds in the team that is meant."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:  # noqa: ARG001 -- click's
        options = context.find_root().params
        try:
            found = list(find(find_team.existing(options.get("team_dir"), options.get("team"))))
        except TeamError:
            return []  # whoever presses Tab wants no error
        return [name for name in found if name.lower().startswith(begun.lower())]

    return complete


def _members(team: TeamPaths) -> list[str]:
    return [member.name for member in Roster(team).read().members]


def open_approvals(team: TeamPaths) -> list[Approval]:
    """Return the approvals that wait for an answer, to look at them and no more."""
    from teamd.approvals.store import Approvals  # noqa: PLC0415 -- only where they are looked at

    return Approvals(team, Post(team, durable=False, max_bytes=0)).open_ones()


def _answerable(team: TeamPaths) -> Iterable[str]:
    return (one.id for one in open_approvals(team) if one.may_be_answered_by(USER))


teammates = _completing(_members)
boxes = _completing(lambda team: (*_members(team), LEAD))
logs = _completing(lambda team: (*_members(team), TEAMD))
tasks = _completing(lambda team: ids_in(team.tasks))
approvals = _completing(_answerable)
