"""The key and the model as the supervisor has them, which were given to it at its start."""

from __future__ import annotations

from os import environ

from teamd import credentials
from teamd.control import ControlReply, ControlRequest
from teamd.credentials import BASE_URL_VARIABLE, digest_of, without_login
from teamd.supervisor.team_context import TeamContext


def describe_model(context: TeamContext, request: ControlRequest) -> ControlReply:
    """Say what teammates ask the model with; no server is asked, and no key is told.

    Raises:
        NotAMessage: no salt is given.
    """
    model, salt = context.settings.now.model, request.text("salt")
    missing, key = context.program.warning(), credentials.in_environment()
    digest = None if key is None or model.key_command else digest_of(key, salt)
    url = model.base_url or environ.get(BASE_URL_VARIABLE) or ""
    facts = {
        "model": model.name,
        "base_url": without_login(url).rstrip("/"),
        "key": missing is None,
        "key_digest": digest,
    }
    source = "by its key_command" if model.key_command else "in its environment"
    text = (
        f"teamd has a key {source}, for {model.name}" if missing is None else f"teamd has {missing}"
    )
    return ControlReply(text=text, data=facts)
