"""The hosts that commands in a sandbox reach through the proxy."""

from __future__ import annotations

import pytest

from teamd.sandbox.proxy import is_allowed


@pytest.mark.parametrize(
    ("allowed", "host", "port", "expected"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "example.com", 80, True),
        ("example.com", "example.com", 22, False),
        ("example.com", "a.example.com", 443, False),
        ("example.com", "example.com.evil.org", 443, False),
        ("example.com:22", "example.com", 22, True),
        ("example.com:22", "example.com", 443, False),
        ("*.example.com", "a.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", ".example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("*.example.com:8443", "a.example.com", 8443, True),
        ("*.example.com:8443", "a.example.com", 443, False),
    ],
)
def test_only_named_hosts_can_be_reached(
    allowed: str, host: str, port: int, *, expected: bool
) -> None:
    assert is_allowed(allowed, host, port) is expected
