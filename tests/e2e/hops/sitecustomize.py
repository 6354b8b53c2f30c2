"""Record which functions of teamd a message passes at each station of its way.

Python imports this module at the start of every process whose PYTHONPATH names its folder. A
station is a call that hands the message on: a write or a read of a file in the team directory, a
fork, the assignment of a name to a spare process, a task, the SDK's call of the model. With `HOPS`
in the environment, each call appends a line to that file: the station, and the functions of the
program on the stack, outermost first.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from types import FrameType
from typing import Any

_REPOSITORY = __file__.rpartition("/tests/")[0]  # the repository may itself be named `teamd`
_OURS = re.compile(re.escape(_REPOSITORY) + r"/((?:teamd|teamctl)/.*)\.py$")
_FILES = re.compile(r"/\.team/(inbox|transcripts|config)|/(\.teamd-)")
_SDK = "/anthropic/_base_client.py"
_ASKS = ("post",)
_TASKS = ("create_task", "ensure_future")
_CALLS = (os.pwrite, os.pread, os.fork, os.write)


def _trace(frame: FrameType, event: str, argument: Any) -> None:
    if event == "call" and frame.f_code.co_name in _ASKS and _SDK in frame.f_code.co_filename:
        _note("request", frame)
    elif event == "call" and frame.f_code.co_name in _TASKS:
        _note("task", frame)
    elif event == "c_call" and argument in _CALLS:
        fd = frame.f_locals.get("fd")
        place = _path(fd) if isinstance(fd, int) else ""
        if argument is os.write:
            if place.startswith("pipe:"):
                _note("write pipe", frame)
        elif argument is os.fork or _FILES.search(place):
            _note(f"{argument.__name__} {place.partition('/.team/')[2]}", frame)


def _path(fd: int) -> str:
    with suppress(OSError):  # an exception in a profiler would disable it
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 -- of a descriptor
    return ""


def _note(station: str, frame: FrameType) -> None:
    sys.setprofile(None)
    names = []
    here: FrameType | None = frame
    while here is not None:
        if found := _OURS.search(here.f_code.co_filename):
            names.append(f"{found[1]}:{here.f_code.co_qualname}")
        here = here.f_back
    line = "\t".join([station, *reversed(names)]) + "\n"
    fd = os.open(os.environ["HOPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)
    sys.setprofile(_trace)


if "HOPS" in os.environ:
    sys.setprofile(_trace)
