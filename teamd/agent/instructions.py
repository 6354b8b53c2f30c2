"""The instructions of a project, which hold for everybody who works in it."""

from __future__ import annotations

import os
from typing import Final

from teamd.tools import ToolError
from teamd.tools.workspace import Workspace

FILE_NAMES: Final = ("AGENTS.md", "CLAUDE.md")  # the first that is there counts
MAX_BYTES: Final = 65_536
_HEAD: Final = "\n\n{name} of the workspace, which holds for everybody who works in it:\n\n"


def read_project_instructions(workspace: Workspace) -> str:
    """Return the text of `AGENTS.md` as it follows the system prompt, or else of `CLAUDE.md`.

    What is no UTF-8 is replaced, what is more than `MAX_BYTES` is cut, and says so. A link that
    leads out of the workspace is not followed: who may write here must not read elsewhere so.
    """
    return next(filter(None, (_read(workspace, name) for name in FILE_NAMES)), "")


def _read(workspace: Workspace, name: str) -> str:
    """Return the text of one file below its heading; nothing where there is none."""
    try:
        fd = workspace.open(workspace.resolve(name))
    except (OSError, ToolError):
        return ""
    with os.fdopen(fd, "rb") as file:
        data = file.read(MAX_BYTES + 1)
        size = os.fstat(fd).st_size
    text = data[:MAX_BYTES].decode("utf-8-sig", "replace").replace("\0", "\ufffd").strip()
    if len(data) > MAX_BYTES:
        text += f"\n[cut here: {name} has {size} bytes; read the rest with read_file]"
    return f"{_HEAD.format(name=name)}{text}" if text else ""
