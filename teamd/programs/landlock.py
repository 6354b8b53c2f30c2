"""Runs a program that can neither reach abstract Unix sockets of others nor signal them.

This is a script, started as `python -I -S landlock.py PROGRAM ARGUMENT…`. Abstract sockets belong
to the network namespace; a program that shares it reaches, for example, those of a desktop. Linux
6.12 and later can forbid it, see landlock(7); on earlier versions this script changes nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_NO_NEW_PRIVS = 38
_CREATE_RULESET = 444
_RESTRICT_SELF = 446
_VERSION = 1
_FIRST_WITH_SCOPES = 6
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


class _RulesetAttributes(ctypes.Structure):
    """`struct landlock_ruleset_attr` of linux/landlock.h."""

    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


def confine() -> bool:
    """Confine this process; return whether the kernel supports it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_CREATE_RULESET, None, 0, _VERSION) < _FIRST_WITH_SCOPES:
        return False
    attributes = _RulesetAttributes(0, 0, _ABSTRACT_SOCKETS_AND_SIGNALS)
    size = ctypes.sizeof(attributes)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    done = libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 <= ruleset
    return bool(done and libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)


if __name__ == "__main__":
    confine()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 -- what it is for
