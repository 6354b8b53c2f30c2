"""The proxy and the certificates of the environment: mistakes in them, and their precedence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from teamctl.hosts.certificates import new_authority
from teamd.errors import TeamError
from teamd.model_server import connection
from teamd.model_server.connection import DEFAULT_URL, Variable

URL = "https://model.example"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("SSL_CERT_"):
            monkeypatch.delenv(name)
    for name in ("REQUESTS_CA_BUNDLE", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


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
def test_a_usable_proxy_is_not_a_mistake(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    assert list(connection.mistakes(None)) == []


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
@pytest.mark.parametrize("variable", ["ALL_PROXY", "https_proxy", "HTTP_PROXY", "All_Proxy"])
def test_an_unusable_proxy_is_a_mistake(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    (mistake,) = connection.mistakes(None)
    assert mistake.startswith(f"{variable} {words}")
    assert mistake.endswith(f"use one such as socks5://localhost:1080, or unset {variable}")


def test_no_proxy_with_a_star_disables_all_proxies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks4://localhost:1080")
    monkeypatch.setenv("NO_PROXY", "localhost, *")
    assert list(connection.mistakes(None)) == []
    assert connection.find_proxy(URL) is None


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://other"}, None),
        ({"ALL_PROXY": "socks5://me:pass@proxy:1"}, Variable("ALL_PROXY", "socks5://proxy:1")),
        ({"ALL_PROXY": "a:1", "https_proxy": "b:1"}, Variable("https_proxy", "http://b:1")),
        ({"HTTPS_PROXY": "a:1", "https_proxy": "b:1"}, Variable("https_proxy", "http://b:1")),
        ({"HTTPS_PROXY": "a:1", "https_proxy": ""}, None),
        ({"Https_Proxy": "a:1", "HTTPS_PROXY": ""}, Variable("Https_Proxy", "http://a:1")),
        ({"ALL_PROXY": "a:1", "No_Proxy": "model.example, *"}, None),
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
def test_readable_certificates_are_trusted(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(new_authority("company").cert)
    monkeypatch.setenv(variable, str(file))
    assert list(connection.mistakes(None)) == []
    (trusted,) = connection.make_tls().get_ca_certs()
    assert (("commonName", "company"),) in trusted["subject"]


def test_the_file_that_openssl_names_takes_precedence_over_that_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    assert connection.find_certificates() == Variable(
        "SSL_CERT_FILE", str(tmp_path / "SSL_CERT_FILE")
    )


@pytest.mark.parametrize(
    ("text", "why"), [(None, "(No such file or directory)"), ("", "("), ("no certificate", "(")]
)
def test_unreadable_certificates_are_a_mistake(
    text: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))
    (mistake,) = connection.mistakes(None)
    told = f"REQUESTS_CA_BUNDLE names {file}, which holds no certificates that can be read {why}"
    assert mistake.startswith(told)
    assert mistake.endswith("; correct it or unset it")


BAD_ADDRESSES = [
    "localhost:1234", "127.0.0.1", "http://", "ftp://x", "http://x:0", "http://x:99999",
    " http://x", "http://x ", "http://[::1", "http://x\n", "//x", "https://:80",
]  # fmt: skip


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_an_invalid_address_is_a_mistake(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (mistake,) = connection.mistakes(address)
    assert mistake.startswith("[model] base_url is ")
    with pytest.raises(TeamError, match="base_url"):
        connection.check_address(address)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", address)
    (mistake,) = connection.mistakes(None)
    assert mistake.startswith("ANTHROPIC_BASE_URL is ")
    assert mistake.endswith("not the address of a model's server; use one such as " + DEFAULT_URL)
    assert "; " not in mistake.partition("; ")[2]


@pytest.mark.parametrize("address", ["http://localhost:1234", "HTTPS://x/", "http://[::1]:80/api"])
def test_an_address_with_a_scheme_and_a_host_is_not_a_mistake(address: str) -> None:
    assert list(connection.mistakes(address)) == []


def test_an_address_is_shown_without_its_login() -> None:
    (mistake,) = connection.mistakes("http://me:secret@x:0")
    assert "secret" not in mistake


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_folder_without_hashes(path: Path) -> None:
    path.mkdir()
    (path / "ca.pem").write_bytes(new_authority("company").cert)


@pytest.mark.timeout(20)  # reading a FIFO would block
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"])
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_fifo, "it is not a regular file"),
        (Path.mkdir, "no file in it has a name as given by `openssl rehash`"),
        (make_folder_without_hashes, "no file in it has a name as given by `openssl rehash`"),
    ],
)
def test_certificates_outside_of_a_file_or_a_hashed_folder_are_a_mistake(
    variable: str,
    make: Callable[[Path], None],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "certificates"
    make(path)
    monkeypatch.setenv(variable, str(path))
    (mistake,) = connection.mistakes(None)
    assert mistake == (
        f"{variable} names {path}, which holds no certificates that can be read ({why}); "
        "correct it or unset it"
    )


def test_a_folder_of_hashed_certificates_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "12345678.0").write_bytes(new_authority("company").cert)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert list(connection.mistakes(None)) == []
