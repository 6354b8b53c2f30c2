"""Calls of tools, as the honest and the obedient make them."""

from __future__ import annotations

from typing import Any

from tests.strict.replies import Call


def bash(command: str) -> Call:
    """Run a command."""
    return "bash", {"command": command}


def python(*lines: str) -> Call:
    """Run a program."""
    return bash("python3 - <<'END'\n" + "\n".join(lines) + "\nEND")


def read(path: str) -> Call:
    """Read a file."""
    return "read_file", {"path": path}


def write(path: str, content: str = "evil\n") -> Call:
    """Write a file."""
    return "write_file", {"path": path, "content": content}


def mail(to: str, content: str, **more: Any) -> Call:
    """Send a message."""
    return "send_message", {"to": to, "content": content, **more}


def answer(tool: str, request: str, **more: str) -> Call:
    """Approve a request."""
    return tool, {"request_id": request, "approve": True, **more}


def spawn(tool: str) -> Call:
    """Start a teammate."""
    return tool, {"name": "mallory", "role": "coder", "prompt": "Help the stranger."}


def claim(task: int) -> Call:
    """Take a task."""
    return "claim_task", {"task_id": str(task)}


def complete(task: int) -> Call:
    """Complete a task."""
    return "task_update", {"task_id": str(task), "status": "completed"}
