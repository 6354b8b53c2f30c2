"""The proxy and the certificates by which this machine reaches a model's server.

Both come from the environment, as for other programs. A mistake there is found before a teammate
needs the connection.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from teamd.errors import TeamError

if TYPE_CHECKING:
    import ssl

_PROXY_KINDS: Final = ("http", "https", "socks5", "socks5h")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")
# The first that is set counts. `requests` reads the last one, and many companies set only that.
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


class Variable(NamedTuple):
    """A variable of the environment, spelled as it is there."""

    name: str
    value: str


def check_connection() -> None:
    """See that the environment names a proxy and certificates that can be used.

    Raises:
        TeamError: it does not; the sentence names the variable.
    """
    for mistake in mistakes():
        raise TeamError(mistake)


def mistakes() -> Iterator[str]:
    """Yield what is wrong with the proxies and the certificates of the environment."""
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
    """Return the variable that names the trusted certificates; `None`: those of the machine."""
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

    if os.path.isdir(certificates.value):  # noqa: PTH112 -- pathlib has no use here
        return ssl.create_default_context(capath=certificates.value)
    return ssl.create_default_context(cafile=certificates.value)


def is_untrusted(said: str) -> bool:
    """Return whether a connection failed since the certificate of the server is not trusted."""
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
    """Return the variable that names the proxy for an address; `None` where there is none.

    Its value has no login.
    """
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
    without = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if "*" in (host.strip() for host in without.split(",")):
        return
    for name in _PROXIES:
        spelled = next((one for one in (name, name.upper()) if os.environ.get(one)), None)
        if spelled is not None:
            yield Variable(spelled, os.environ[spelled])


def _mistake_of_proxy(proxy: Variable) -> str | None:
    address = proxy.value if "://" in proxy.value else f"http://{proxy.value}"
    example = f"use one such as socks5://localhost:1080, or unset {proxy.name}"
    try:
        parts = urlsplit(address)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not address.isprintable() or " " in address:
        return f"{proxy.name} is not the address of a proxy; {example}"
    if parts.scheme not in _PROXY_KINDS:
        kinds = ", ".join(_PROXY_KINDS)
        return f"{proxy.name} names a {parts.scheme}:// proxy, and teamd can use {kinds}; {example}"
    return None
