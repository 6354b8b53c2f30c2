"""A process that has loaded the program once and forks for each command: `python starter.py`.

A line of its standard input is a JSON object: `argv`, `folder`, `environment`, the file `output`
and the `log` of the recorder. A line of its standard output is the pid of the child or, later,
`ended PID STATUS`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any, NoReturn

from teamctl.main import main as teamctl
from teamd.__main__ import main as teamd
from teamd.models import claude
from teamd.secret_environment import OPTION, handed_over
from tests.process.powercut.preload.sitecustomize import install


def serve() -> None:
    """Fork until standard input ends."""
    claude.warm_up()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    poll = [sys.stdin.fileno(), reader]
    rest = b""
    while True:
        readable, _, _ = select.select(poll, [], [])
        if reader in readable:
            os.read(reader, 1 << 10)
            _reap()
        if poll[0] in readable:
            data = os.read(poll[0], 1 << 20)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _say(f"{_fork(json.loads(line))}")


def _fork(wanted: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _become(wanted)
    return pid


def _become(wanted: dict[str, Any]) -> NoReturn:
    status = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.chdir(wanted["folder"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        silent, output = (
            os.open(os.devnull, os.O_RDONLY),
            os.open(wanted["output"], _WRITING, 0o600),
        )
        for fd, standard in ((silent, 0), (output, 1), (output, 2)):
            os.dup2(fd, standard)
        install(wanted["log"], wanted["folder"], "")
        sys.argv = wanted["argv"]
        if "--foreground" in sys.argv:  # it would start anew, without the recorder
            with handed_over(os.environ) as secrets:
                sys.argv = [*sys.argv, OPTION, str(os.dup(secrets))]
        {"teamd": teamd, "teamctl": teamctl}[sys.argv[0]]()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _say(f"ended {pid} {os.waitstatus_to_exitcode(status)}")


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


_WRITING = os.O_WRONLY | os.O_CREAT | os.O_APPEND

if __name__ == "__main__":
    serve()
