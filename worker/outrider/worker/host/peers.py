"""Mutual TLS among the workers of a service: credentials from files, and whom a server takes.

Files are read again for each connection, so that a renewed certificate counts for the next one and
ends none. Leaves which server wants what to `server`, `link` and `pipeline`.
"""

import logging
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from outrider.contract.addresses import is_loopback
from outrider.contract.peers import AUTHORITIES, CERTIFICATE, KEY, PeerSettings
from outrider.contract.settings import SettingsError

logger = logging.getLogger(__name__)

NAMES = "x509_subject_alternative_name"
Context = Any
Options = Iterable[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class PeerFiles:
    """What a folder of certificates holds, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    authorities: bytes

    @classmethod
    def read(cls, folder: str) -> "PeerFiles":
        """Read the files as they were written together; raises `OSError`.

        A kubelet replaces all of them at once, by one link that they are reached through.
        """
        here = (Path(folder) / CERTIFICATE).resolve(strict=True).parent
        return cls(*((here / name).read_bytes() for name in (CERTIFICATE, KEY, AUTHORITIES)))


@dataclass(slots=True)
class _Renewals:
    """The files of a server, which asks before each handshake whether they are others."""

    folder: str
    known: PeerFiles

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """Return what is known, as gRPC takes it."""
        pair = (self.known.key, self.known.certificate)
        return grpc.ssl_server_certificate_configuration([pair], self.known.authorities)

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Return other files; None: they are the same, or cannot be read just now."""
        try:
            found = PeerFiles.read(self.folder)
        except OSError as error:
            logger.error("certificates stay as they are: %s", error)
            return None
        if found == self.known:
            return None
        self.known = found
        logger.info("new connections get the certificate that %s has now", self.folder)
        return self.configuration()


@dataclass(frozen=True, slots=True)
class AllowedCaller:
    """Callers that a service takes: those whose certificate holds a name."""

    name: str | None = None
    """None: all, for there are no certificates."""

    async def check(self, context: Context) -> None:
        """End a call of anybody else with PERMISSION_DENIED."""
        if self.name is None:
            return
        found = [name.decode(errors="replace") for name in context.auth_context().get(NAMES, ())]
        if self.name not in found:
            theirs = ", ".join(found) or "nobody"
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"this is for {self.name}, and the caller's certificate is {theirs}'s",
            )


EVERYBODY = AllowedCaller()


def beyond_loopback(peers: PeerSettings | None, address: str) -> PeerSettings | None:
    """Return the certificates that count at an address: none on loopback, where no stranger is."""
    return None if is_loopback(address) else peers


def server_credentials(peers: PeerSettings) -> grpc.ServerCredentials:
    """Return credentials of a server that wants its clients' certificates; raises
    `SettingsError`."""
    try:
        files = PeerFiles.read(peers.folder)
        here = Path(peers.folder)  # gRPC takes a wrong pair, and then refuses every client
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(here / CERTIFICATE, here / KEY)
        context.load_verify_locations(here / AUTHORITIES)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"settings.peers.folder: {peers.folder}: {error}") from error
    renewals = _Renewals(peers.folder, files)
    fetch: Any = renewals.fetch  # the stubs do not know that None leaves all as it is
    return grpc.dynamic_ssl_server_credentials(
        renewals.configuration(), fetch, require_client_authentication=True
    )


def add_port(server: grpc.aio.Server, address: str, peers: PeerSettings | None) -> int:
    """Add a port for peers, or for all where there are no certificates; return it.

    Raises `RuntimeError` if it is taken, and `SettingsError`.
    """
    if peers is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, server_credentials(peers))


def open_channel(
    address: str, options: Options, peers: PeerSettings | None, name: str
) -> grpc.aio.Channel:
    """Return a channel to a worker whose certificate must hold `name`; raises `OSError`."""
    if peers is None:
        return grpc.aio.insecure_channel(address, options=tuple(options))
    files = PeerFiles.read(peers.folder)
    credentials = grpc.ssl_channel_credentials(files.authorities, files.key, files.certificate)
    checked = (("grpc.ssl_target_name_override", name),)
    return grpc.aio.secure_channel(address, credentials, options=(*options, *checked))
