"""A filter of system calls for commands in a sandbox: what no namespace keeps from them.

In a user namespace of their own they could leave what is mounted behind, and a folder that no mount
holds any more can be renamed, though the sandbox keeps it. Whoever traces the first process can
keep it from ending, and all others with it. The keyrings of the person's session and the sockets
between a virtual machine and its host are in no namespace at all, see keyrings(7) and vsock(7).

The filter is a program of the kernel's, see seccomp(2); `--seccomp` in bwrap(1) takes it. Numbers
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
    """Of system calls on one architecture.

    Attributes:
        add_key: `request_key` and `keyctl` follow it everywhere.
        socketcall: makes sockets as well, and nothing of them can be seen here.
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

# Where in `struct seccomp_data` these stand; of an argument the lower half.
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
        to: the name of the one that is next where it holds; otherwise it is the one behind it.
    """

    code: int
    value: int
    to: str = ""
    name: str = ""


@contextmanager
def filter_to_read() -> Iterator[int]:
    """Yield a descriptor from which the filter can be read once.

    Raises:
        OSError: there is no descriptor left.
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

    Calls whose arguments it cannot see, as those of `clone3` and what io_uring is asked for, it
    answers as an old kernel does: programs go on without them. On another architecture it refuses
    every call.
    """
    parts = [_say(_LOAD, _ARCHITECTURE)]
    for architecture, numbers in _NUMBERS.items():
        rules = _rules(numbers)
        parts += [_say(_EQUAL, architecture, no=len(rules)), *rules]
    return b"".join([*parts, _say(_RETURN, _ANSWERS["no such call"])])


def _rules(numbers: _Numbers) -> list[bytes]:
    """Return what is asked on one architecture, and the answers."""
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
