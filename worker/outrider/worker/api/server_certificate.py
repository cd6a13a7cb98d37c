"""The certificate of a target's servers, which they look for anew at each handshake.

Connections that are open go on as they began. Leaves certificates of workers for each other to
`outrider.worker.host.peers`.
"""

import ssl
from dataclasses import dataclass, field
from typing import Any, cast

import grpc

from outrider.contract.settings import SettingsError, WorkerSettings
from outrider.worker.api.setting_files import WatchedFiles, read_text


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with those of its issuers, and its private key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    context: ssl.SSLContext = field(repr=False, compare=False)
    """Shows them."""

    @classmethod
    def read(cls, certificate: str, key: str) -> "Pair":
        """Read two files; raises `SettingsError` for what does not fit together: gRPC would take
        it, and then refuse every client."""
        shown = read_text("tls_cert", certificate).encode()
        private = read_text("tls_key", key).encode()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(certificate, key, password="")  # else a terminal would be asked
        except (ssl.SSLError, OSError) as error:
            words = f"{certificate} and {key} are no pair: {error}"
            raise SettingsError(f"settings.tls_cert, settings.tls_key: {words}") from error
        return cls(shown, private, context)

    @property
    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """The same, as gRPC takes it."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)])


class ServerCertificate:
    """What one server shows: the pair of its files, or the last that could be read of them."""

    def __init__(self, certificate: str, key: str) -> None:
        """Read both; raises `SettingsError`."""
        self.pair = WatchedFiles(
            (certificate, key),
            lambda: Pair.read(certificate, key),
            lambda _: f"new connections get the certificate that {certificate} has now",
            "the certificate stays as it is",
        )

    @classmethod
    def of(cls, settings: WorkerSettings) -> "ServerCertificate | None":
        """Return what servers of a worker show; None: they speak no TLS. Raises `SettingsError`."""
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        return cls(settings.tls_cert, settings.tls_key)

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials of a gRPC server."""
        shown = self.pair.current()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            before, shown = shown, self.pair.current()
            return None if shown == before else shown.configuration

        renewed = cast(Any, fetch)  # the stubs do not know that None leaves all as it is
        return grpc.dynamic_ssl_server_credentials(shown.configuration, renewed)

    def context(self) -> ssl.SSLContext:
        """Return the context of a server of another protocol."""
        base = self.pair.current().context

        def renew(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            connection.context = self.pair.current().context

        base.sni_callback = renew  # called for each handshake, with and without a name
        return base
