"""Records each function of teamd and teamctl that a process executes.

Python imports this module at the start of every process whose PYTHONPATH names its folder. While
the symbolic link that `TRACED` names exists, a process appends each function once to its target, as
`file:function`. Another target begins anew; an inode would not do, since the kernel reuses them.
Comprehensions belong to their function, and imports are not counted.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from types import CodeType, FrameType
from typing import Any

_REPOSITORY = __file__.rpartition("/tests/")[0]  # which may be named `teamd` itself
_OURS = re.compile(re.escape(_REPOSITORY) + r"/((?:teamd|teamctl)/.*)\.py$")
_PARTS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_seen: dict[CodeType, str] = {}  # the target in which a function was recorded


def _trace(frame: FrameType, event: str, _: Any) -> None:
    if event != "call":
        return
    code = frame.f_code
    found = _OURS.search(code.co_filename)
    if found is None or code.co_name in _PARTS or not code.co_flags & inspect.CO_OPTIMIZED:
        return
    try:
        target = os.readlink(os.environ["TRACED"])  # noqa: PTH115 -- pathlib has functions, too
    except OSError:  # nothing is recorded now
        return
    if _seen.get(code) != target:
        _seen[code] = target
        fd = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, f"{found[1]}:{code.co_qualname}\n".encode())
        os.close(fd)


if "TRACED" in os.environ:
    sys.setprofile(_trace)
