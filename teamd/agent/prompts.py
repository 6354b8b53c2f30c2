"""The words that a teammate's model reads besides those of other people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_ATTRIBUTES = ("type", "summary", "request_id", "approve", "reason")

CUT_OFF_CALL = "this call did not run: your reply was cut off before it was complete"
CUT_OFF_REPLY = "<note>Your reply was cut off at its length limit. Go on where you stopped.</note>"
INTERRUPTED_CALL = (
    "teamd was stopped while this call was under way. Whether it had any effect is not known: "
    "look before you repeat it."
)

_PLAN_RULE = """

Plan: you work by plan. For each task read what you need, then submit a plan with submit_plan and \
end your turn; the answer comes as mail. Until your plan is approved, bash, write_file, edit_file \
and background_run are refused. Every new task from 'lead' needs a new plan."""

IDLE_SO_LEFT = "idle, and no mail waits"
PAUSED_SO_LEFT = "paused"
LEFT = (
    "<note>You agreed to shutdown_request {ids} and were shut down here. If you read this, you "
    "were woken again: that request is done with, there is nothing to answer.</note>"
)
CLOSED = (
    "<note>shutdown_request {ids} is no longer open: you were shut down since, and woken again. "
    "There is nothing to answer.</note>"
)


def system_prompt(*, name: str, role: str, team: str, workspace: Path, plan: bool = False) -> str:
    """What a teammate is told once, at the beginning of its conversation."""
    prompt = f"""You are '{name}', role: {role}.

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
    return prompt + _PLAN_RULE if plan else prompt


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
