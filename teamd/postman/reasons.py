"""Why the broker is not reached, in sentences that say what to do."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from teamd.errors import TeamError

# Of OpenSSL's X509_V_ERR_…
_EXPIRED: Final = (9, 10)  # not yet valid, or not any more
_FOREIGN: Final = (18, 19, 20, 21)  # self-signed, or by somebody who is not our CA
_OTHER_NAME: Final = (62, 64)  # a name, an address
_NOT_ADMITTED: Final = ("authorization violation", "authorization failed", "authentication revoked")
_ENDED: Final = ("unexpected EOF", "empty response from server")  # nats-py's words


class NotSecure(ConnectionError):
    """A server that wants to talk without TLS."""


class NotAdmitted(ConnectionError):
    """A broker that has ended the connection once it knew who this is."""


class Silence(ConnectionError):
    """A connection on which nothing has come for too long."""


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
    """Return why a server is not reached, or no longer.

    Args:
        error: what went wrong; `None` where the server has closed the connection.
        server: its address as the settings have it.
        name: the machine that the address names.
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
    """Return whether only a person can mend it, so that trying often is of no use."""
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
    """Explain what the broker says before it closes, or what nats-py makes of it."""
    if any(one in words.lower() for one in _NOT_ADMITTED):
        return (
            f"{server} does not admit this host: its certificate was removed; "
            "`teamctl hosts add` on the broker's host makes a new one"
        )
    if any(one in words for one in _ENDED):
        return f"{server} has closed the connection"
    said = words.removeprefix("nats: ").strip().strip("'")
    return f"{server}: {said or 'the connection is lost'}"
