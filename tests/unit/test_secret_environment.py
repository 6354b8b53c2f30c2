"""Variables that hold secrets, and their way from one process to the next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.errors import TeamError
from teamd.secret_environment import (
    handed_over,
    receive,
    secrets_in_address,
    secrets_in_headers,
    secrets_of,
    split,
)

NAMES = st.sampled_from(["PATH", "ANTHROPIC_API_KEY", "GITHUB_TOKEN", "HTTP_PROXY", "HOME"])
# Environments may contain any bytes except NUL; Python shows them as surrogates.
VALUES = st.binary(max_size=99).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("ANTHROPIC_API_KEY", "sk-1", ["sk-1"]),
        ("ANTHROPIC_AUTH_TOKEN", "t", ["t"]),
        ("ANTHROPIC_API_KEY", "", []),
        ("ANTHROPIC_IDENTITY_TOKEN", "jwt", ["jwt"]),
        ("ANTHROPIC_IDENTITY_TOKEN_FILE", "/run/token", []),
        ("ANTHROPIC_BASE_URL", "http://localhost:8080", []),
        ("ANTHROPIC_BASE_URL", "https://me:pa%20ss@host/x", ["pa%20ss", "pa ss"]),
        ("https_proxy", "http://me:pass@proxy:3128", ["pass"]),
        ("HTTP_PROXY", "me:pass@proxy:3128", ["pass"]),
        ("ALL_PROXY", "socks5://token@proxy", ["token"]),
        ("NO_PROXY", "localhost,127.0.0.1", []),
        ("HTTPS_PROXY", "http://[::1", []),
        ("ANTHROPIC_CUSTOM_HEADERS", "X-Key: a b\nUser-Agent: me", ["a b", "b"]),
        ("GITHUB_TOKEN", "ghp_1", ["ghp_1"]),
        ("AWS_SECRET_ACCESS_KEY", "x/y", ["x/y"]),
        ("OPENAI_API_KEY", "sk", ["sk"]),
        ("POSTGRES_PASSWORD", "p", ["p"]),
        ("TLS_PRIVATE_KEY", "/etc/key.pem", []),
        ("PATH", "/bin", []),
        ("KEYBOARD", "us", []),
        ("TOKENIZERS_PARALLELISM", "false", []),
    ],
)
def test_a_variable_s_secrets_are_known_by_its_name(
    name: str, value: str, secrets: list[str]
) -> None:
    assert secrets_of(name, value) == secrets
    assert split({name: value}) == (({}, {name: value}) if secrets else ({name: value}, {}))


def test_values_of_headers_are_secrets_except_for_common_ones() -> None:
    headers = {"X-Team": "blue", "Authorization": "Bearer k", "anthropic-beta": "context-1m"}
    assert secrets_in_headers(headers) == ["blue", "Bearer k", "k"]


@given(st.text(max_size=40))
def test_any_address_is_accepted(address: str) -> None:
    assert isinstance(secrets_in_address(address), list)


@given(st.dictionaries(NAMES, VALUES))
def test_secrets_that_are_handed_over_arrive_and_the_descriptor_is_closed(
    environment: dict[str, str],
) -> None:
    plain, secret = split(environment)
    with handed_over(environment) as fd:
        given_on = os.dup(fd)
    assert receive(given_on) == secret
    assert {**plain, **secret} == environment
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(given_on)


def test_secrets_too_long_for_a_pipe_are_refused_with_advice() -> None:
    """Otherwise a start would wait forever for a reader."""
    sentence = r"too long to be handed over \(\d+ bytes\); unset those that teamd does not need$"
    with pytest.raises(TeamError, match=sentence) as caught, handed_over({"A_TOKEN": "x" * 99_999}):
        pass
    assert caught.value.exit_code == 1


def test_a_descriptor_that_was_not_handed_over_is_refused(tmp_path: Path) -> None:
    """The option is hidden but not secret."""
    file = tmp_path / "file"
    file.write_text("{")
    for fd in (os.open(file, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY), 9999):
        with pytest.raises(TeamError, match=r"--secrets-fd is an option of teamd's own; leave it"):
            receive(fd)
