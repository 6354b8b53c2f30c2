"""The address of the model's server, and the proxy and certificates by which it is reached.

The address is a setting or comes from the environment; the others come from the environment, as
for other programs. A mistake there is found before a teammate needs the connection.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from teamd.errors import TeamError

if TYPE_CHECKING:
    import ssl

BASE_URL_VARIABLE: Final = "ANTHROPIC_BASE_URL"
DEFAULT_URL: Final = "https://api.anthropic.com"
_LOGIN: Final = re.compile(r"//[^/@]*@")
_PROXY_KINDS: Final = ("http", "https", "socks5", "socks5h")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")
# The first that is set counts. `requests` reads the last one, and many companies set only that.
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
_HASHED: Final = re.compile(r"[0-9a-f]{8}\.\d+")  # see SSL_CTX_load_verify_locations(3)


class Variable(NamedTuple):
    """A variable of the environment, spelled as it is there."""

    name: str
    value: str


def check_connection(base_url: str | None) -> None:
    """Check that the address of the server, the proxies and the certificates can be used.

    Args:
        base_url: the address in the settings.

    Raises:
        TeamError: one cannot; the sentence names the setting or the variable.
    """
    for mistake in mistakes(base_url):
        raise TeamError(mistake)


def check_address(base_url: str | None) -> None:
    """Check that the address of the server can be used.

    Raises:
        TeamError: it cannot; the sentence names the setting or the variable.
    """
    if wrong := _mistake_of_address(base_url):
        raise TeamError(wrong)


def server_address(base_url: str | None) -> str:
    """Return the address of the server that is asked, without a login."""
    base = base_url or os.environ.get(BASE_URL_VARIABLE) or DEFAULT_URL
    return without_login(base).rstrip("/")


def without_login(url: str) -> str:
    """Return an address without a login, which may hold a proxy's password."""
    return _LOGIN.sub("//", url)


def mistakes(base_url: str | None) -> Iterator[str]:
    """Yield the mistakes in the address of the server, the proxies and the certificates."""
    if wrong := _mistake_of_address(base_url):
        yield wrong
    for proxy in _proxies():
        if wrong := _mistake_of_proxy(proxy):
            yield wrong
    certificates = find_certificates()
    if certificates is not None:
        try:
            make_tls()
        except OSError as error:  # ssl.SSLError is one
            why = error.strerror or str(error)
            yield (
                f"{certificates.name} names {certificates.value}, which holds no certificates that "
                f"can be read ({why}); correct it or unset it"
            )


def find_certificates() -> Variable | None:
    """Return the variable that names the trusted certificates; `None` to use the machine's."""
    found = (Variable(name, os.environ.get(name, "")) for name in _CERTIFICATES)
    return next((one for one in found if one.value), None)


def make_tls() -> ssl.SSLContext:
    """Make the TLS context for a model's server.

    Raises:
        OSError: the file or folder of certificates cannot be read.
    """
    certificates = find_certificates()
    if certificates is None:
        import httpx2  # noqa: PLC0415 -- the SDK's; slow to load

        return httpx2.create_ssl_context()
    import ssl  # noqa: PLC0415 -- 10 ms, and few set such a variable

    path = Path(certificates.value)
    if path.is_dir():
        if not any(_HASHED.fullmatch(one.name) for one in path.iterdir()):
            raise OSError(errno.ENOENT, "no file in it has a name as given by `openssl rehash`")
        return ssl.create_default_context(capath=path)
    if path.exists() and not path.is_file():  # a FIFO would never be read to its end
        raise OSError(errno.EINVAL, "it is not a regular file")
    return ssl.create_default_context(cafile=path)


def is_untrusted(said: str) -> bool:
    """Return whether a connection failed because the certificate of the server is not trusted."""
    return "CERTIFICATE_VERIFY_FAILED" in said


def certificate_remedy() -> str:
    """Return what to do about a certificate that is not trusted."""
    now = find_certificates()
    if now is not None:
        return f"{now.name} is {now.value}: add the missing certificate there, then `teamd restart`"
    return (
        "set SSL_CERT_FILE or REQUESTS_CA_BUNDLE to a file with the certificate of your company "
        "or proxy, then `teamd restart`"
    )


def find_proxy(url: str) -> Variable | None:
    """Return the variable that names the proxy for an address, or `None`.

    Its value has no login.
    """
    from urllib.request import proxy_bypass  # noqa: PLC0415 -- loads TLS and mail, for an error

    parts = urlsplit(url)
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    named = {proxy.name.lower(): proxy for proxy in _proxies()}
    found = named.get(f"{parts.scheme}_proxy") or named.get("all_proxy")
    if found is None:
        return None
    scheme, _, rest = found.value.rpartition("://")
    return Variable(found.name, f"{scheme or 'http'}://{rest.rpartition('@')[2]}")


def _proxies() -> Iterator[Variable]:
    """Yield the proxies that the environment names; the lower-case spelling comes first."""
    without = _find_variable("no_proxy")
    if without is not None and "*" in (host.strip() for host in without.value.split(",")):
        return
    yield from filter(None, map(_find_variable, _PROXIES))


def _find_variable(name: str) -> Variable | None:
    """Find a variable of proxies in any case, as `urllib.request.getproxies_environment` does.

    The last spelling that ends in `_proxy` takes precedence; if it is empty there is no proxy.
    """
    spelled = [one for one in os.environ if one.lower() == name]
    own = [one for one in spelled if one.endswith("_proxy")]
    others = [one for one in spelled if os.environ[one]]
    for found in (own or others)[-1:]:
        if value := os.environ[found]:
            return Variable(found, value)
    return None


def _mistake_of_address(base_url: str | None) -> str | None:
    base, place = server_address(base_url), "[model] base_url" if base_url else BASE_URL_VARIABLE
    if not _is_address(base) or urlsplit(base).scheme not in ("http", "https"):
        return (
            f"{place} is {base!r}, which is not the address of a model's server; "
            f"use one such as {DEFAULT_URL}"
        )
    if urlsplit(base).path.endswith("/v1"):
        return (
            f"{base} ends in /v1, which is added to it: requests would go to /v1/v1/messages; "
            f"leave /v1 out of {place}"
        )
    return None


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and text.isprintable() and " " not in text


def _mistake_of_proxy(proxy: Variable) -> str | None:
    address = proxy.value if "://" in proxy.value else f"http://{proxy.value}"
    example = f"use one such as socks5://localhost:1080, or unset {proxy.name}"
    if not _is_address(address):
        return f"{proxy.name} is not the address of a proxy; {example}"
    if (scheme := urlsplit(address).scheme) not in _PROXY_KINDS:
        kinds = ", ".join(_PROXY_KINDS)
        return f"{proxy.name} names a {scheme}:// proxy, and teamd can use {kinds}; {example}"
    return None
