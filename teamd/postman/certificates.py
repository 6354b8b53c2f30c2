"""The TLS certificates of a host for its connection to the broker."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from teamd.errors import TeamError


@dataclass(frozen=True, slots=True)
class Certificates:
    """A host's TLS files, in PEM.

    Attributes:
        cert: the host's certificate.
        key: the key of that certificate.
        ca: the only CA whose certificates are trusted.
    """

    cert: Path
    key: Path
    ca: Path

    def context(self) -> ssl.SSLContext:
        """Load the files into a TLS context that verifies both ends.

        Raises:
            TeamError: a file is missing, or the files do not match.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        again = "`teamctl hosts join FILE` writes them anew"
        try:
            context.load_verify_locations(cafile=self.ca)
            context.load_cert_chain(self.cert, self.key)
        except ssl.SSLError as error:
            raise TeamError(
                f"{self.ca}, {self.cert} and {self.key} are not certificates that belong together "
                f"({error.reason or error}); {again}"
            ) from error
        except OSError as error:
            files = f"one of {self.ca}, {self.cert} and {self.key}"
            raise TeamError(f"{files} cannot be read ({error.strerror}); {again}") from error
        return context
