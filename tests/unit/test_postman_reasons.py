"""The reason why the broker is not reached, as a sentence that names the remedy."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from teamd.errors import TeamError
from teamd.postman.connection import NotAdmitted, NotSecure, describe, is_refusal

SERVER, NAME = "tls://h9:4222", "h9"


def unverified(code: int) -> ssl.SSLCertVerificationError:
    """Return the error of a certificate that OpenSSL has refused for this reason."""
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.reason = code, "CERTIFICATE_VERIFY_FAILED"
    return error


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason.lower())
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (unverified(62), "is not for h9; take a name that it is for in [hosts] servers"),
        (unverified(10), "has expired, or this machine's clock is wrong"),
        (unverified(19), "is not of this team; look at [hosts] servers and ca"),
        (unverified(26), "tls://h9:4222: TLS fails: CERTIFICATE_VERIFY_FAILED"),
        (tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "tls://h9:4222 refuses this host's certificate"),
        (tls("WRONG_VERSION_NUMBER"), "tls://h9:4222: TLS fails: WRONG_VERSION_NUMBER"),
        (NotSecure(), "offers no TLS, so it is no broker of this team"),
        (NotAdmitted(), "refuses this host's certificate: it is another team's, or it has expired"),
        (TimeoutError(), "does not answer; is the machine up, and is the port open?"),
        (socket.gaierror(-2, "x"), "no machine is known by the name h9"),
        (ConnectionRefusedError(111, "x"), "nothing listens at tls://h9:4222"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "tls://h9:4222: No route to host"),
        (OSError("odd"), "tls://h9:4222: odd"),
        (OSError(), "tls://h9:4222: OSError"),
        (TeamError("the key is gone"), "the key is gone"),
        (Exception("nats: 'Authorization Violation'"), "its certificate was removed"),
        (Exception("nats: 'maximum connections exceeded'"), "h9:4222: maximum connections exceed"),
        (None, "tls://h9:4222 has closed the connection"),
    ],
)
def test_an_unreachable_broker_is_explained(error: BaseException | None, sentence: str) -> None:
    assert sentence in describe(error, SERVER, NAME)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (unverified(26), True),
        (NotAdmitted(), True),
        (TeamError("x"), True),
        (Exception("nats: 'Authorization Violation'"), True),
        (NotSecure(), True),
        (tls("WRONG_VERSION_NUMBER"), True),
        (TimeoutError(), False),
        (ConnectionRefusedError(), False),
        (None, False),
    ],
)
def test_a_failure_that_only_a_person_can_correct_is_tried_rarely(
    error: BaseException | None, *, refused: bool
) -> None:
    assert is_refusal(error) is refused
