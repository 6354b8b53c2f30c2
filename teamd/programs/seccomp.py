"""A filter of system calls for commands in a sandbox: no user namespaces, and no keys.

In a namespace of their own they could leave what is mounted behind, and a folder that no mount
holds any more can be renamed, though the sandbox keeps it. The keyrings of the person's session,
see keyrings(7), are in no namespace at all. The filter is a program of the kernel's, see
seccomp(2); `--seccomp` in bwrap(1) takes it. Numbers are those of `linux/audit.h` and `asm/unistd`.
"""

from __future__ import annotations

import errno
import os
import struct
from contextlib import contextmanager
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

_NEW_USER: Final = 0x10000000  # CLONE_NEWUSER, in the flags: the first argument everywhere here
_CLONE3: Final = 435  # the same everywhere
# clone, unshare and add_key, by the number of the architecture.
_CALLS: Final = {
    0xC000003E: (56, 272, 248),  # x86_64
    0x40000003: (120, 310, 286),  # i386
    0xC00000B7: (220, 97, 217),  # aarch64
    0x40000028: (120, 337, 309),  # arm
    0xC00000F3: (220, 97, 217),  # riscv64
    0xC0000102: (220, 97, 217),  # loongarch64
    0xC0000015: (120, 282, 269),  # ppc64le
}
_ABOUT_KEYS: Final = 3  # add_key, request_key and keyctl follow each other everywhere
# Where in `struct seccomp_data` these stand; of the first argument the lower half.
_NUMBER, _ARCHITECTURE, _FLAGS = 0, 4, 16
_LOAD, _RETURN = 0x20, 0x06  # BPF_LD|W|ABS, BPF_RET
_EQUAL, _FROM, _HAS = 0x15, 0x35, 0x45  # BPF_JMP|K with JEQ, JGE and JSET
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
_X32: Final = 0x40000000  # the bit of another table of calls for x86_64


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

    What calls it cannot read the flags of, as those of `clone3`, it answers as an old kernel does:
    programs go on with `clone` then. On another architecture it refuses every call.
    """
    refused = _say(_RETURN, _REFUSE | errno.ENOSYS)
    parts = [_say(_LOAD, _ARCHITECTURE)]
    for architecture, calls in _CALLS.items():
        rules = _rules(*calls)
        parts += [_say(_EQUAL, architecture, no=len(rules)), *rules]
    return b"".join([*parts, refused])


def _rules(clone: int, unshare: int, keys: int) -> list[bytes]:
    """Return what is asked on one architecture; whoever jumps on does so to one of the last."""
    asked = [
        _say(_LOAD, _NUMBER),
        _say(_HAS, _X32, yes=9),
        _say(_EQUAL, _CLONE3, yes=8),
        _say(_EQUAL, clone, yes=3),
        _say(_EQUAL, unshare, yes=2),
        _say(_FROM, keys + _ABOUT_KEYS, yes=3),
        _say(_FROM, keys, yes=3, no=2),
        _say(_LOAD, _FLAGS),
        _say(_HAS, _NEW_USER, yes=1),
    ]
    answers = [_ALLOW, _REFUSE | errno.EPERM, _REFUSE | errno.ENOSYS]
    return asked + [_say(_RETURN, answer) for answer in answers]


def _say(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)
