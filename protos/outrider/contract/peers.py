"""Certificates by which the workers of one service, and who runs them, know each other.

Leaves making them to the operator, and handshakes to the worker.
"""

from dataclasses import dataclass

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
"""Files of a folder of certificates: the own one, its private key, whose signatures count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """One worker's certificate, and the DNS names that those of its peers hold."""

    folder: str
    """Folder with `tls.crt`, `tls.key` and `ca.crt`, in PEM; read again for each new connection."""
    target: str
    """Name in the certificates of targets, stages among them."""
    draft: str
    """Name in the certificates of drafts."""
    operator: str
    """Name in the certificate of who calls `Control`."""
