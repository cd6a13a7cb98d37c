"""The operator's certificate authorities, and what they sign. Pure, but for the keys it draws.

An authority is renewed long before it ends. The next one is trusted for a day before it signs, so
that no pod meets a certificate of an authority that it has not heard of.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=30)
"""Lifetime of a worker's certificate."""
AUTHORITY_LIFE = datetime.timedelta(days=730)
SETTLING = datetime.timedelta(days=1)
"""Time a new authority is only trusted; a kubelet takes about a minute to tell its pods."""
SKEW = datetime.timedelta(hours=1)
"""Time by which clocks of nodes may be behind the operator's."""
PURPOSES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def parsed(self) -> x509.Certificate:
        """The certificate; raises `ValueError`."""
        return x509.load_pem_x509_certificate(self.certificate)

    def is_due(self, now: datetime.datetime) -> bool:
        """True once two thirds of its life are over."""
        found = self.parsed
        life = found.not_valid_after_utc - found.not_valid_before_utc
        return now >= found.not_valid_before_utc + life * 2 / 3


@dataclass(frozen=True, slots=True)
class Authorities:
    """Those whose signatures count, the oldest first."""

    pairs: tuple[KeyPair, ...] = ()

    @classmethod
    def from_data(cls, data: Mapping[str, bytes]) -> Self:
        """Read what `to_data` has written; raises `ValueError`."""
        count = sum(name.endswith(".crt") for name in data)
        try:
            pairs = tuple(KeyPair(data[f"{n}.crt"], data[f"{n}.key"]) for n in range(count))
        except KeyError as error:
            raise ValueError(f"the key {error} is missing") from None
        if not pairs or not all(_is_whole(pair) for pair in pairs):
            raise ValueError("no certificate, or one without its key")
        return cls(pairs)

    def to_data(self) -> dict[str, bytes]:
        """Return the content of a Secret."""
        found: dict[str, bytes] = {}
        for number, pair in enumerate(self.pairs):
            found |= {f"{number}.crt": pair.certificate, f"{number}.key": pair.key}
        return found

    @property
    def bundle(self) -> bytes:
        """Their certificates."""
        return b"".join(pair.certificate for pair in self.pairs)

    def renewed(self, now: datetime.datetime) -> Self:
        """Return them without those that have ended, and with another where the newest is due."""
        living = tuple(one for one in self.pairs if one.parsed.not_valid_after_utc > now)
        if not living or living[-1].is_due(now):
            living += (_new_authority(now),)
        return type(self)(living)

    def signing(self, now: datetime.datetime) -> KeyPair:
        """Return the newest that everybody has heard of, else the oldest."""
        settled = [
            one for one in self.pairs if now >= one.parsed.not_valid_before_utc + SKEW + SETTLING
        ]
        return settled[-1] if settled else self.pairs[0]

    def issue(self, names: tuple[str, ...], now: datetime.datetime) -> KeyPair:
        """Return a new certificate of who has DNS names, for both ends of a connection."""
        signer = self.signing(now)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(names[0].split(".")[0], key.public_key(), now, LIFE)
            .issuer_name(signer.parsed.subject)
            .add_extension(x509.SubjectAlternativeName([*map(x509.DNSName, names)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(PURPOSES), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(_private(signer), hashes.SHA256())
        )
        return _pair(certificate, key)

    def vouch(self, pair: KeyPair, names: tuple[str, ...], now: datetime.datetime) -> bool:
        """True for a certificate of theirs with these names and its key, which is not due."""
        if not _is_whole(pair) or _names(pair.parsed) != [*names] or pair.is_due(now):
            return False
        return any(_has_signed(one.parsed, pair.parsed) for one in self.pairs)


def _new_authority(now: datetime.datetime) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    name = f"outrider {now:%Y-%m-%d} {x509.random_serial_number() % 10**6:06}"
    certificate = (
        _builder(name, key.public_key(), now, AUTHORITY_LIFE)
        .issuer_name(_subject(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def _builder(
    name: str, key: ec.EllipticCurvePublicKey, now: datetime.datetime, life: datetime.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(certificate.public_bytes(Encoding.PEM), plain)


def _private(pair: KeyPair) -> ec.EllipticCurvePrivateKey:
    """Return the key of a pair of ours; raises `ValueError` for one of another kind."""
    found = load_pem_private_key(pair.key, None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError("no key of an elliptic curve")
    return found


def _is_whole(pair: KeyPair) -> bool:
    """True for a certificate that can be read, with its own key."""
    try:
        return _private(pair).public_key() == pair.parsed.public_key()
    except UNREADABLE:
        return False


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return found.value.get_values_for_type(x509.DNSName)


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True
