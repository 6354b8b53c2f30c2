"""The answers of the system call filter, computed as the kernel would."""

from __future__ import annotations

import errno
import os
import struct
from typing import Final

import pytest

from teamd.programs.seccomp import build, filter_to_read

ALLOWED: Final = 0x7FFF0000
REFUSED: Final = 0x00050000
NEW_USER, NEW_MOUNTS, THREAD = 0x10000000, 0x00020000, 0x003D0F00
# From `linux/audit.h` and each architecture's `asm/unistd.h`: its number, clone, unshare, ptrace,
# add_key, socket, socketcall or None, and two other calls.
X86_64: Final = (0xC000003E, 56, 272, 101, 248, 41, None, 247, 251)
GENERIC: Final = (220, 97, 117, 217, 198, None, 63, 221)
TABLES: Final = {
    "x86_64": X86_64,
    "i386": (0x40000003, 120, 310, 26, 286, 359, 102, 3, 289),
    "aarch64": (0xC00000B7, *GENERIC),
    "arm": (0x40000028, 120, 337, 26, 309, 281, None, 3, 312),
    "riscv64": (0xC00000F3, *GENERIC),
    "loongarch64": (0xC0000102, *GENERIC),
    "ppc64le": (0xC0000015, 120, 282, 26, 269, 326, 102, 3, 272),
}
AF_UNIX, AF_INET, AF_VSOCK = 1, 2, 40


def answer(architecture: int, call: int, first: int = 0, second: int = 0) -> int:
    """Run the filter on a call, see linux/bpf_common.h."""
    data = struct.pack("<IIQ6Q", call, architecture, 0, first, second, 0, 0, 0, 0)
    steps = list(struct.iter_unpack("<HBBI", build()))
    at = held = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("<I", data, value)
            case 0x15:
                at += yes if held == value else no
            case 0x35:
                at += yes if held >= value else no
            case 0x45:
                at += yes if held & value else no
            case 0x06:
                return int(value)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_calls_that_namespaces_do_not_confine_are_refused(table: tuple[int, ...]) -> None:
    architecture, clone, unshare, ptrace, add_key, make_socket, socketcall, *others = table
    for call in (clone, unshare):
        assert answer(architecture, call, NEW_USER) == REFUSED | errno.EPERM
        assert answer(architecture, call, NEW_USER | NEW_MOUNTS | THREAD) == REFUSED | errno.EPERM
        assert answer(architecture, call, THREAD) == ALLOWED
    for call in (add_key, add_key + 1, add_key + 2):
        assert answer(architecture, call) == REFUSED | errno.EPERM
    assert answer(architecture, make_socket, AF_VSOCK) == REFUSED | errno.EAFNOSUPPORT
    assert {answer(architecture, make_socket, one) for one in (AF_UNIX, AF_INET)} == {ALLOWED}
    assert answer(architecture, ptrace, 16, 1) == REFUSED | errno.EPERM, "the first process"
    assert answer(architecture, ptrace, 16, 2) == ALLOWED
    for call in filter(None, (435, 425, socketcall)):  # clone3, io_uring_setup
        assert answer(architecture, call) == REFUSED | errno.ENOSYS, "no argument can be seen"
    for call in (*others, 424, 434, 436):
        found = {answer(architecture, call, flags, 1) for flags in (NEW_USER, AF_VSOCK)}
        assert found == {ALLOWED}


def test_calls_of_another_architecture_are_refused() -> None:
    x86_64, clone, *_ = X86_64
    assert answer(x86_64, 0x40000000 | clone) == REFUSED | errno.ENOSYS
    assert answer(0x80000016, 3) == REFUSED | errno.ENOSYS, "s390x"


def test_the_filter_is_read_once_from_a_descriptor() -> None:
    with filter_to_read() as fd:
        assert os.read(fd, 1 << 16) == build()
        assert os.read(fd, 1) == b"", "its end"
