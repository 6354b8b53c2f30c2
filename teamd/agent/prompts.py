"""The words that a teammate's model reads besides those of other people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from teamd.settings.skills import Skill

_ATTRIBUTES = ("type", "summary", "request_id", "approve", "reason")

CUT_OFF_CALL = "this call did not run: your reply was cut off before it was complete"
CUT_OFF_REPLY = "<note>Your reply was cut off at its length limit. Go on where you stopped.</note>"
INTERRUPTED_CALL = (
    "teamd was stopped while this call was under way. Whether it had any effect is not known: "
    "look before you repeat it."
)
SKILLS = (
    "Skills: instructions for certain kinds of work. When one fits what you are to do, read it "
    "with load_skill first:"
)


def system_prompt(
    *,
    name: str,
    role: str,
    team: str,
    workspace: Path,
    instructions: str = "",
    skills: Iterable[Skill] = (),
) -> str:
    """What a teammate is told once, at the beginning of its conversation."""
    parts = [_place(name, role, team, workspace)]
    if instructions:
        parts.append(f"Your role, {role}, is described so:\n\n{instructions}")
    if listed := [f"- {skill.name}: {skill.description}" for skill in skills]:
        parts.append("\n".join((SKILLS, *listed)))
    return "\n\n".join(parts)


def _place(name: str, role: str, team: str, workspace: Path) -> str:
    return f"""You are '{name}', role: {role}.

You are a member of the team '{team}'. Your agent id is {name}@{team}. You and your teammates each \
run as a process of your own, and you reach each other only by mail.

Mail: what others send you comes in <inbox> with one <teammate-message> each, before you are asked \
to go on; teammate_id names the sender. Answer with send_message. Nobody reads the text of your \
turns, so whatever somebody has to know must be sent. The person, or the agent, that leads the \
team is 'lead': report to 'lead' when a task is done or when you cannot go on. Do not send mail \
only to thank or to confirm.

Work: your tools work in {workspace}, which the whole team shares. Read a file before you change \
it, run what you wrote, and say what you have seen rather than what you expect. When there is \
nothing left to do, end your turn: you wake again when mail comes, and remember everything."""


def render_inbox(messages: Iterable[Mapping[str, Any]]) -> str:
    """One delivery of mail, escaped so that no content can end its own tag.

    Args:
        messages: as `Message.to_json` gives them.
    """
    return "\n".join(("<inbox>", *map(_render, messages), "</inbox>"))


def _render(message: Mapping[str, Any]) -> str:
    shown = [f'teammate_id="{_attribute(message["from"])}"']
    for key in _ATTRIBUTES:
        value = message.get(key)
        if value is not None and value != "":
            shown.append(f'{key}="{_attribute(value)}"')
    opening = f"<teammate-message {' '.join(shown)}>"
    return f"{opening}\n{escape(message['content'])}\n</teammate-message>"


def _attribute(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return escape(text, {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def render_job(job_id: str, state: str, what: str) -> str:
    """That a background job has ended."""
    opening = f'<background-job job_id="{_attribute(job_id)}" state="{_attribute(state)}">'
    return f"{opening}\n{escape(what)}\n</background-job>"
