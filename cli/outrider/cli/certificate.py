"""Certificates: their fields, and whether one fits its key.

Knows nothing of workers; `access` decides what to do with its names.
"""

import contextlib
import ssl
from dataclasses import dataclass
from typing import Any

HANDSHAKE_ROUNDS = 3
"""Flights of a handshake of TLS 1.2, which takes more of them than 1.3."""
KINDS = ("DNS", "IP Address")
"""Of names that a server can have."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The server's own certificate of a file."""

    pem: bytes
    """That one only, without those of its issuers."""
    names: tuple[str, ...]
    """DNS names and IP addresses that it holds for, as it lists them; else its common name."""

    @classmethod
    def read(cls, file: str, key: str) -> "Certificate":
        """From PEM files; raises `ssl.SSLError` or `OSError` for what no client could accept."""
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(file, key, password=_refuse)
        shown = _shown(server, file)
        pem = ssl.DER_cert_to_PEM_cert(shown.getpeercert(binary_form=True) or b"")
        return cls(pem.encode(), _names(shown.getpeercert() or {}))


def _shown(server: ssl.SSLContext, file: str) -> ssl.SSLObject:
    """The client's end of a handshake, in memory, with a server that shows this certificate.

    `ssl` shows the names of a certificate only to a client that has checked it.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # no issuer is needed to trust it
    client.load_verify_locations(file)
    down, up = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for _ in range(HANDSHAKE_ROUNDS):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0]


def _names(shown: Any) -> tuple[str, ...]:
    listed = tuple(name for kind, name in shown.get("subjectAltName", ()) if kind in KINDS)
    subject = (pair for part in shown.get("subject", ()) for pair in part)
    return listed or tuple(name for kind, name in subject if kind == "commonName")


def _refuse() -> str:
    """Instead of a question at the terminal; servers have no terminal."""
    raise ssl.SSLError(0, "the private key is encrypted")
