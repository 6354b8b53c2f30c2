"""A filter of system calls for commands in a sandbox, against dangers beyond namespaces.

In a user namespace of their own, commands could leave the mounts of the sandbox, and then rename
folders that the mounts protect. A process that traces the first process could keep the sandbox from
ending. The keyrings of the person's session and the sockets between a virtual machine and its host
do not belong to any namespace, see keyrings(7) and vsock(7).

The filter is a BPF program, see seccomp(2), and is passed with `--seccomp`, see bwrap(1). Numbers
are those of `linux/audit.h` and of each architecture's `asm/unistd.h`.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The numbers of system calls on one architecture.

    Attributes:
        add_key: `request_key` and `keyctl` have the next two numbers.
        socketcall: creates sockets as well, with arguments that a filter cannot read.
    """

    clone: int
    unshare: int
    ptrace: int
    add_key: int
    socket: int
    socketcall: int | None = None


_GENERIC: Final = _Numbers(220, 97, 117, 217, 198)
_NUMBERS: Final = {
    0xC000003E: _Numbers(56, 272, 101, 248, 41),  # x86_64
    0x40000003: _Numbers(120, 310, 26, 286, 359, 102),  # i386
    0xC00000B7: _GENERIC,  # aarch64
    0x40000028: _Numbers(120, 337, 26, 309, 281),  # arm
    0xC00000F3: _GENERIC,  # riscv64
    0xC0000102: _GENERIC,  # loongarch64
    0xC0000015: _Numbers(120, 282, 26, 269, 326, 102),  # ppc64le
}
_CLONE3, _IO_URING_SETUP = 435, 425  # the same everywhere
_KEY_CALLS: Final = 3
_X32: Final = 0x40000000  # the bit of another table of calls for x86_64
_NEW_USER: Final = 0x10000000  # CLONE_NEWUSER
_AF_VSOCK: Final = 40

# Offsets in `struct seccomp_data`; of an argument, of its lower half.
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
_LOAD, _RETURN = 0x20, 0x06  # BPF_LD|W|ABS, BPF_RET
_EQUAL, _FROM, _HAS = 0x15, 0x35, 0x45  # BPF_JMP|K with JEQ, JGE and JSET
_REFUSE: Final = 0x00050000  # SECCOMP_RET_ERRNO
_ANSWERS: Final = {
    "allow": 0x7FFF0000,  # SECCOMP_RET_ALLOW
    "forbid": _REFUSE | errno.EPERM,
    "no such family": _REFUSE | errno.EAFNOSUPPORT,
    "no such call": _REFUSE | errno.ENOSYS,
}


@dataclass(frozen=True, slots=True)
class _Step:
    """An instruction.

    Attributes:
        to: the name of the instruction to jump to if the condition holds.
    """

    code: int
    value: int
    to: str = ""
    name: str = ""


@contextmanager
def filter_to_read() -> Iterator[int]:
    """Yield a descriptor from which the filter can be read once.

    Raises:
        OSError: no descriptor is left.
    """
    readable, writable = os.pipe()
    try:
        try:
            os.write(writable, build())  # a pipe holds more than that
        finally:
            os.close(writable)
        yield readable
    finally:
        os.close(readable)


@cache
def build() -> bytes:
    """Return the filter: an array of `struct sock_filter`.

    Calls with arguments that a filter cannot read, such as `clone3` and those of io_uring, fail as
    on an old kernel, and programs fall back. On an unknown architecture every call fails.
    """
    parts = [_say(_LOAD, _ARCHITECTURE)]
    for architecture, numbers in _NUMBERS.items():
        rules = _rules(numbers)
        parts += [_say(_EQUAL, architecture, no=len(rules)), *rules]
    return b"".join([*parts, _say(_RETURN, _ANSWERS["no such call"])])


def _rules(numbers: _Numbers) -> list[bytes]:
    """Return the instructions for one architecture."""
    old = [] if numbers.socketcall is None else [_Step(_EQUAL, numbers.socketcall, "no such call")]
    steps = [
        _Step(_LOAD, _NUMBER),
        _Step(_HAS, _X32, "no such call"),
        _Step(_EQUAL, _CLONE3, "no such call"),
        _Step(_EQUAL, _IO_URING_SETUP, "no such call"),
        *old,
        _Step(_EQUAL, numbers.socket, "socket"),
        _Step(_EQUAL, numbers.clone, "namespaces"),
        _Step(_EQUAL, numbers.unshare, "namespaces"),
        _Step(_EQUAL, numbers.ptrace, "traced"),
        _Step(_FROM, numbers.add_key + _KEY_CALLS, "allow"),
        _Step(_FROM, numbers.add_key, "forbid"),
        _Step(_RETURN, _ANSWERS["allow"]),
        _Step(_LOAD, _FIRST, name="socket"),
        _Step(_EQUAL, _AF_VSOCK, "no such family"),
        _Step(_RETURN, _ANSWERS["allow"]),
        _Step(_LOAD, _FIRST, name="namespaces"),
        _Step(_HAS, _NEW_USER, "forbid"),
        _Step(_RETURN, _ANSWERS["allow"]),
        _Step(_LOAD, _SECOND, name="traced"),
        _Step(_EQUAL, 1, "forbid"),
        *(_Step(_RETURN, value, name=name) for name, value in _ANSWERS.items()),
    ]
    places = {step.name: at for at, step in enumerate(steps)}
    return [
        _say(step.code, step.value, yes=places[step.to] - at - 1 if step.to else 0)
        for at, step in enumerate(steps)
    ]


def _say(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)
