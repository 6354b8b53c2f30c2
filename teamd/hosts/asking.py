"""Commands for another host: each is a line in its outbox and a file for the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from teamd import clocks
from teamd.errors import DeadlinePassed, NotAMessage, StoreError
from teamd.files import directories, files
from teamd.files.paths import TeamPaths
from teamd.files.watch import wait_for
from teamd.hosts.far import FarHosts
from teamd.hosts.lines import REQUEST
from teamd.hosts.outbox import Outbox
from teamd.hosts.places import HostPlaces
from teamd.hosts.requests import FarAnswer, FarRequest
from teamd.messages import new_id, parse_object

_KEPT_SECONDS: Final = 3600.0  # age at which uncollected answers are removed
_UNKNOWN_BOOT: Final = "unknown"


def ask(
    far: FarHosts,
    host: str,
    command: str,
    arguments: Mapping[str, Any],
    *,
    seconds: float,
    request_id: str | None = None,
) -> FarAnswer:
    """Send a command to another host, and wait for its answer.

    Args:
        far: the other hosts.
        host: the host that executes the command.
        command: one of `CROSSING`.
        arguments: of the command.
        seconds: the time limit for the start of the command and for the answer.
        request_id: in the format of `new_id`; by default a new id.

    Raises:
        DeadlinePassed: the host is unreachable and the command was not sent; or no answer came in
            time, and the command will no longer start.
        StoreError: too much is waiting for the host, or the command could not be written.
    """
    if (why := far.obstacle(host)) is not None:
        raise DeadlinePassed(f"{host} was not asked: {why}; `teamctl hosts` shows when it is back")
    deadline = clocks.elapsed() + seconds
    request = FarRequest(
        id=request_id or new_id(),
        command=command,
        arguments=arguments,
        deadline=deadline,
        boot=own_boot(),
    )
    answer = _expect(far.paths, host, request.id)
    try:
        outbox = Outbox(far.paths, host, far.durable, far.max_bytes)
        outbox.append(REQUEST, **request.encode())
        found = wait_for(
            answer.parent, lambda: _collect(far.paths, request.id), timeout_seconds=seconds
        )
    finally:
        files.remove(answer)
    if found is None:
        hint = "`teamctl team --hosts` shows whether it was done"
        raise DeadlinePassed(f"{host} did not answer within {seconds:g} s; {hint}")
    return found


def _expect(paths: TeamPaths, host: str, request: str) -> Path:
    """Make the file for an answer, which contains the expected host; return its path."""
    HostPlaces(paths).create()
    file = HostPlaces(paths).answer(request)
    files.replace(file, _expected(host), durable=False)
    return file


def _expected(host: str) -> bytes:
    return f"{host.lower()}\n".encode()


def own_boot() -> str:
    """Return the id of this boot that other hosts see."""
    return clocks.boot() or _UNKNOWN_BOOT


def keep_answer(paths: TeamPaths, host: str, line: Mapping[str, Any]) -> None:
    """Write the answer of another host to the file for which the command waits.

    Args:
        paths: the team that sent the command.
        host: the answering host.
        line: untrusted fields of the answer.

    Raises:
        NotAMessage: it is not an answer, or no command waits for one from that host.
        StoreError: it cannot be written.
    """
    answer = FarAnswer.decode(line)
    file = HostPlaces(paths).answer(answer.id)
    if files.read(file) != _expected(host):
        raise NotAMessage("nobody waits for it")
    content = json.dumps(answer.encode(), ensure_ascii=False).encode("utf-8", "replace")
    files.replace(file, content + b"\n", durable=False)


def sweep_answers(paths: TeamPaths) -> None:
    """Remove old answers that were not collected."""
    answers = directories.list_files(HostPlaces(paths).answer("").parent, "*.json")
    for file in directories.older(answers, seconds=_KEPT_SECONDS):
        files.remove(file)


def _collect(paths: TeamPaths, request: str) -> FarAnswer | None:
    file = HostPlaces(paths).answer(request)
    content = files.read(file)
    if content is None or not content.startswith(b"{"):
        return None
    try:
        return FarAnswer.decode(parse_object(content))
    except NotAMessage as error:
        raise StoreError(f"{file} is no answer ({error})") from error
