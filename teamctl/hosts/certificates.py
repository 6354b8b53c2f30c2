"""Keys and certificates of a broker and its hosts: the only module that creates them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

TEN_YEARS: Final = timedelta(days=3650)  # hosts are excluded by removal, not by expiry
_EARLIER: Final = timedelta(days=2)  # unmaintained clocks may be wrong by hours
_COMMON_NAME_CHARACTERS: Final = 64
_OTHER_USES: Final = (
    "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "encipher_only", "decipher_only",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in PEM."""

    cert: bytes
    key: bytes


def new_authority(name: str) -> Pair:
    """Create a CA for one team's certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _certify(name, key, _named(name), key)


def issue_server(
    authority: Pair, name: str, addresses: Iterable[str], lifetime: timedelta = TEN_YEARS
) -> Pair:
    """Issue the broker's certificate, valid from two days ago.

    Args:
        authority: the CA.
        name: the broker's name, for display.
        addresses: the host names and IP addresses by which hosts reach it.
        lifetime: how long from now it is valid.
    """
    names = list(map(_general, addresses))
    return _issue(authority, name, names, ExtendedKeyUsageOID.SERVER_AUTH, lifetime)


def issue_host(authority: Pair, name: str, user: str, lifetime: timedelta = TEN_YEARS) -> Pair:
    """Issue a host's certificate, valid from two days ago.

    Args:
        authority: the CA.
        name: the host's name, for display.
        user: a URN that the broker's configuration admits.
        lifetime: how long from now it is valid.
    """
    names = [x509.UniformResourceIdentifier(user)]
    return _issue(authority, name, names, ExtendedKeyUsageOID.CLIENT_AUTH, lifetime)


def validity(cert: bytes) -> tuple[datetime, datetime]:
    """Return the period in which a certificate is valid; both times have a time zone.

    Raises:
        ValueError: the data is not a certificate.
    """
    found = x509.load_pem_x509_certificate(cert)
    return found.not_valid_before_utc, found.not_valid_after_utc


def belong_together(pair: Pair, ca: bytes) -> bool:
    """Return whether that CA issued the certificate, and the key matches the certificate.

    Raises:
        ValueError: one of them cannot be parsed.
    """
    cert = x509.load_pem_x509_certificate(pair.cert)
    key = serialization.load_pem_private_key(pair.key, None)
    try:
        cert.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))
    except Exception:  # noqa: BLE001 -- other signature types raise other errors
        return False
    return key.public_key() == cert.public_key()


def _issue(
    authority: Pair,
    name: str,
    names: Sequence[x509.GeneralName],
    purpose: x509.ObjectIdentifier,
    lifetime: timedelta,
) -> Pair:
    issuer = x509.load_pem_x509_certificate(authority.cert).subject
    signer = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA's key is of another kind than those made here")
    extensions = (
        x509.ExtendedKeyUsage([purpose]),
        x509.SubjectAlternativeName(names),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
    )
    key = ec.generate_private_key(ec.SECP256R1())
    return _certify(name, key, issuer, signer, extensions=extensions, lifetime=lifetime)


def _certify(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    *,
    extensions: Sequence[x509.ExtensionType] = (),
    lifetime: timedelta = TEN_YEARS,
) -> Pair:
    public, now, is_ca = key.public_key(), datetime.now(UTC), key is signer
    builder = x509.CertificateBuilder().subject_name(_named(name)).issuer_name(issuer)
    builder = builder.public_key(public).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _EARLIER).not_valid_after(now + lifetime)
    uses = {"digital_signature": not is_ca, "key_cert_sign": is_ca, "crl_sign": is_ca}
    usage = x509.KeyUsage(**uses, **dict.fromkeys(_OTHER_USES, False))
    for critical in (x509.BasicConstraints(is_ca, 0 if is_ca else None), usage):
        builder = builder.add_extension(critical, critical=True)
    for extension in (x509.SubjectKeyIdentifier.from_public_key(public), *extensions):
        builder = builder.add_extension(extension, critical=False)
    cert = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form, encryption = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return Pair(cert, key.private_bytes(serialization.Encoding.PEM, form, encryption))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_COMMON_NAME_CHARACTERS])])


def _general(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
