"""The proxy and the certificates of the environment: what is wrong with them, and which count."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from teamctl.hosts.authority import new_authority
from teamd import connection
from teamd.connection import Variable

URL = "https://model.example"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("SSL_CERT_"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)


@pytest.mark.parametrize(
    "value",
    [
        "http://proxy:3128",
        "proxy:3128",
        "https://proxy",
        "socks5://localhost:1080",
        "socks5h://me:pass@[::1]:1080/",
    ],
)
def test_a_proxy_that_can_be_used_is_no_mistake(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    assert list(connection.mistakes()) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("socks://localhost:1080", "names a socks:// proxy"),
        ("socks4://localhost:1080", "names a socks4:// proxy"),
        ("ftp://proxy", "names a ftp:// proxy"),
        ("http://proxy:port", "is not the address of a proxy"),
        ("http://proxy:0", "is not the address of a proxy"),
        ("http://", "is not the address of a proxy"),
        ("http://[::1", "is not the address of a proxy"),
        ("http://pro xy", "is not the address of a proxy"),
    ],
)
@pytest.mark.parametrize("variable", ["ALL_PROXY", "https_proxy", "HTTP_PROXY"])
def test_a_proxy_that_cannot_be_used_is_a_mistake(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    (mistake,) = connection.mistakes()
    assert mistake.startswith(f"{variable} {words}")
    assert mistake.endswith(f"use one such as socks5://localhost:1080, or unset {variable}")


def test_no_proxy_for_any_host_makes_the_others_count_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks4://localhost:1080")
    monkeypatch.setenv("NO_PROXY", "localhost, *")
    assert list(connection.mistakes()) == []
    assert connection.find_proxy(URL) is None


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://other"}, None),
        ({"ALL_PROXY": "socks5://me:pass@proxy:1"}, Variable("ALL_PROXY", "socks5://proxy:1")),
        ({"ALL_PROXY": "a:1", "https_proxy": "b:1"}, Variable("https_proxy", "http://b:1")),
        ({"HTTPS_PROXY": "a:1", "https_proxy": "b:1"}, Variable("https_proxy", "http://b:1")),
        ({"ALL_PROXY": "a:1", "NO_PROXY": "model.example"}, None),
        ({"ALL_PROXY": "a:1", "NO_PROXY": "example.org"}, Variable("ALL_PROXY", "http://a:1")),
    ],
)
def test_the_proxy_of_an_address_is_found_and_shown_without_a_login(
    variables: dict[str, str], found: Variable | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert connection.find_proxy(URL) == found


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_certificates_that_can_be_read_are_the_ones_that_are_trusted(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(new_authority("company").cert)
    monkeypatch.setenv(variable, str(file))
    assert list(connection.mistakes()) == []
    (trusted,) = connection.make_tls().get_ca_certs()
    assert (("commonName", "company"),) in trusted["subject"]


def test_the_file_that_openssl_names_goes_before_that_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    assert connection.find_certificates() == Variable(
        "SSL_CERT_FILE", str(tmp_path / "SSL_CERT_FILE")
    )


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_certificates_that_cannot_be_read_are_a_mistake(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))
    (mistake,) = connection.mistakes()
    assert mistake.startswith(f"REQUESTS_CA_BUNDLE names {file}, which holds no certificates")
    assert mistake.endswith("; correct it or unset it")
