"""Explain why the broker cannot be reached, in sentences with a remedy."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from teamd.errors import TeamError

# Codes of OpenSSL's X509_V_ERR_…
_EXPIRED: Final = (9, 10)  # not yet valid, or expired
_FOREIGN: Final = (18, 19, 20, 21)  # self-signed, or issued by another CA
_OTHER_NAME: Final = (62, 64)  # a host name, an IP address
_NOT_ADMITTED: Final = ("authorization violation", "authorization failed", "authentication revoked")
_ENDED: Final = ("unexpected EOF", "empty response from server")  # wording of nats-py


class NotSecure(ConnectionError):
    """The server does not offer TLS."""


class NotAdmitted(ConnectionError):
    """The broker ended the connection after it had identified this host."""


class Silence(ConnectionError):
    """Nothing was received on the connection for too long."""


_SENTENCES: Final[dict[type[Exception], str]] = {
    NotSecure: "{server} offers no TLS, so it is no broker of this team; nothing was sent to it",
    NotAdmitted: (
        "{server} refuses this host's certificate: it is another team's, or it has expired; "
        "`teamctl hosts remove` and `hosts add` on the broker's host make a new one"
    ),
    Silence: "{server} is silent: the way there is cut, or the broker hangs",
    socket.gaierror: "no machine is known by the name {name}; look at [hosts] servers",
    ConnectionRefusedError: "nothing listens at {server}; does the broker run there?",
    TimeoutError: "{server} does not answer; is the machine up, and is the port open?",
}


def explain(error: BaseException | None, server: str, name: str) -> str:
    """Return why a server is unreachable, or no longer reachable.

    Args:
        error: the error; `None` if the server closed the connection.
        server: its address as in the settings.
        name: the machine in the address.
    """
    if isinstance(error, ssl.SSLError):
        return _explain_tls(error, server, name)
    for kind, sentence in _SENTENCES.items():
        if isinstance(error, kind):
            return sentence.format(server=server, name=name)
    if isinstance(error, OSError):
        return f"{server}: {error.strerror or str(error) or type(error).__name__}"
    if isinstance(error, TeamError):
        return str(error)
    return _explain_words(str(error or _ENDED[0]), server)


def is_refusal(error: BaseException | None) -> bool:
    """Return whether only a person can fix the error, so that frequent retries are useless."""
    if isinstance(error, ssl.SSLError | NotAdmitted | NotSecure | TeamError):
        return True
    return error is not None and any(one in str(error).lower() for one in _NOT_ADMITTED)


def _explain_tls(error: ssl.SSLError, server: str, name: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_NAME:
            return (
                f"the broker's certificate is not for {name}; take a name that it is for in "
                "[hosts] servers, or run "
                f"`teamctl hosts init --renew --address {name}` on the broker's host"
            )
        if error.verify_code in _EXPIRED:
            return (
                f"the certificate of {server} has expired, or this machine's clock is wrong; "
                "`teamctl hosts init --renew` on the broker's host makes a new one"
            )
        if error.verify_code in _FOREIGN:
            return (
                f"the certificate of {server} is not of this team; look at [hosts] servers and ca"
            )
    elif "ALERT" in (error.reason or ""):
        return _SENTENCES[NotAdmitted].format(server=server)
    return f"{server}: TLS fails: {error.reason or error}"


def _explain_words(words: str, server: str) -> str:
    """Explain the broker's last message, or the error that nats-py made of it."""
    if any(one in words.lower() for one in _NOT_ADMITTED):
        return (
            f"{server} does not admit this host: its certificate was removed; "
            "`teamctl hosts add` on the broker's host makes a new one"
        )
    if any(one in words for one in _ENDED):
        return f"{server} has closed the connection"
    said = words.removeprefix("nats: ").strip().strip("'")
    return f"{server}: {said or 'the connection is lost'}"
