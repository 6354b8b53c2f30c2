"""The contract's table of tools, to be held against what the server was sent."""

from __future__ import annotations

from typing import Final

from tests.strict.exchange import Accepted

# The contract's table, grown by a command's `description?`, by `role?` of a task, by jobs that are
# all listed without a `job_id`, and by an agent that leads, which answers a shutdown_request as
# everybody does, and interrupts and pauses those that it leads.
ALL: Final = {
    "bash": "command timeout? description?",
    "read_file": "path offset? limit?",
    "write_file": "path content",
    "edit_file": "path old_text new_text replace_all?",
    "send_message": "to content summary?",
    "read_inbox": "",
    "task_create": "subject description? blocked_by? role? check?",
    "task_get": "task_id",
    "task_update": "task_id status? owner? add_blocked_by? remove_blocked_by? check?",
    "task_list": "",
    "claim_task": "task_id",
    "shutdown_response": "request_id approve reason?",
    "background_run": "command",
    "check_background": "job_id?",
    "stop_background": "job_id",
    "load_skill": "name",
}
TEAMMATE: Final = ALL | {"submit_plan": "plan"}
LEAD: Final = ALL | {
    "task": "prompt background? name? role? team?",
    "spawn_teammate": "name role prompt team?",
    "list_teammates": "",
    "broadcast": "content",
    "shutdown_request": "teammate",
    "interrupt_teammate": "teammate text?",
    "pause_teammate": "teammate",
    "resume_teammate": "teammate",
    "review_plan": "request_id approve feedback?",
    "create_team": "name",
    "delete_team": "name",
}


def inputs(accepted: Accepted) -> dict[str, str]:
    """The tools that the server was sent, each with its inputs as the contract writes them."""
    found = {}
    for tool in accepted.body["tools"]:
        schema = tool["input_schema"]
        given = schema.get("properties", {})
        needed = schema.get("required", [])
        found[tool["name"]] = " ".join(key if key in needed else f"{key}?" for key in given)
    order = TEAMMATE | LEAD
    return {name: _in_order(text, order.get(name, "")) for name, text in found.items()}


def _in_order(found: str, wanted: str) -> str:
    """The same inputs in the contract's order, which is of no account."""
    return wanted if set(found.split()) == set(wanted.split()) else found
