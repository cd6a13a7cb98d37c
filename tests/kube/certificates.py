"""A certificate authority for one control plane, and what it signs.

Leaves who is called what to `control_plane`. Nothing here outlives a test run.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=2)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Files of one certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject("control-plane-authority", ())
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pair = self._write("ca", certificate, self._key)

    def server(self, name: str, names: Sequence[str], addresses: Sequence[str]) -> KeyPair:
        """For a server that is reached under these names and addresses."""
        also = [x509.DNSName(value) for value in names]
        numeric = [x509.IPAddress(ipaddress.ip_address(value)) for value in addresses]
        alternatives = x509.SubjectAlternativeName([*also, *numeric])
        return self._sign(name, (), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, user: str, *groups: str) -> KeyPair:
        """For a user of the API server."""
        return self._sign(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _sign(
        self,
        name: str,
        groups: Sequence[str],
        purpose: x509.ObjectIdentifier,
        *extensions: x509.ExtensionType,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(name, groups), self._name, key.public_key())
        for extension in (x509.ExtendedKeyUsage([purpose]), *extensions):
            builder = builder.add_extension(extension, critical=False)
        return self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _write(
        self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> KeyPair:
        stem = name.replace(":", "-")
        pair = KeyPair(self.folder / f"{stem}.crt", self.folder / f"{stem}.key")
        pair.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        pair.key.write_bytes(_pem(key))
        return pair


def signing_key(folder: Path) -> KeyPair:
    """The key of service accounts' tokens; its public half stands in place of a certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    pair = KeyPair(folder / "tokens.pub", folder / "tokens.key")
    pair.certificate.write_bytes(public)
    pair.key.write_bytes(_pem(key))
    return pair


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFE)
    )
