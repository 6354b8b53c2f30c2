"""Keys and certificates of a broker and its hosts: the only module that creates them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import Certificate, CertificateBuilder
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_EARLIER: Final = timedelta(days=2)  # unmaintained clocks may be wrong by hours
_YEARS: Final = timedelta(days=3650)
_COMMON_NAME_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class Validity:
    """The period in which a certificate is valid; both times have a time zone."""

    begin: datetime
    end: datetime

    @classmethod
    def long(cls) -> Validity:
        """Return ten years from now; hosts are excluded by removal, not by expiry."""
        now = datetime.now(UTC)
        return cls(now - _EARLIER, now + _YEARS)

    def covers(self, moment: datetime) -> bool:
        return self.begin <= moment <= self.end


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in PEM."""

    cert: bytes
    key: bytes


def new_authority(name: str) -> Pair:
    """Create a CA for one team's certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    builder = _begin(subject, key, Validity.long()).issuer_name(subject)
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    builder = builder.add_extension(constraints, critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _packed(builder.sign(key, hashes.SHA256()), key)


def issue_server(authority: Pair, name: str, addresses: Iterable[str], valid: Validity) -> Pair:
    """Issue the broker's certificate.

    Args:
        authority: the CA.
        name: the broker's name, for display.
        addresses: the host names and IP addresses by which hosts reach it.
        valid: the period of validity.
    """
    names = x509.SubjectAlternativeName(list(map(_general, addresses)))
    return _issue(authority, name, names, ExtendedKeyUsageOID.SERVER_AUTH, valid)


def issue_host(authority: Pair, name: str, user: str, valid: Validity) -> Pair:
    """Issue a host's certificate.

    Args:
        authority: the CA.
        name: the host's name, for display.
        user: a URN that the broker's configuration admits.
        valid: the period of validity.
    """
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(user)])
    return _issue(authority, name, names, ExtendedKeyUsageOID.CLIENT_AUTH, valid)


def validity(cert: bytes) -> Validity:
    """Return the period in which a certificate is valid.

    Raises:
        ValueError: the data is not a certificate.
    """
    found = x509.load_pem_x509_certificate(cert)
    return Validity(found.not_valid_before_utc, found.not_valid_after_utc)


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
    names: x509.SubjectAlternativeName,
    purpose: x509.ObjectIdentifier,
    valid: Validity,
) -> Pair:
    ca = x509.load_pem_x509_certificate(authority.cert)
    signer = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA's key is of another kind than those made here")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _begin(_named(name), key, valid).issuer_name(ca.subject)
    constraints = x509.BasicConstraints(ca=False, path_length=None)
    builder = builder.add_extension(constraints, critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(names, critical=False)
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(by, critical=False)
    return _packed(builder.sign(signer, hashes.SHA256()), key)


def _begin(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, valid: Validity
) -> CertificateBuilder:
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = x509.CertificateBuilder().subject_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).add_extension(own, critical=False)
    return builder.not_valid_before(valid.begin).not_valid_after(valid.end)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_COMMON_NAME_CHARACTERS])])


def _general(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _packed(cert: Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return Pair(cert.public_bytes(serialization.Encoding.PEM), secret)
