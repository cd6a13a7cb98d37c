"""The certificate of a target's servers, which they look for anew at each handshake.

Connections that are open go on as they began. Leaves certificates of workers for each other to
`outrider.worker.host.peers`.
"""

import logging
import ssl
from dataclasses import dataclass, field
from typing import Any, cast

import grpc

from outrider.contract.settings import SettingsError, WorkerSettings
from outrider.worker.api.setting_files import read_text, stamp

logger = logging.getLogger(__name__)


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
        self._files = (certificate, key)
        self._pair, self._stamps = self._read()
        self._problem = ""
        """Why they could not be read when that was last tried."""

    @classmethod
    def of(cls, settings: WorkerSettings) -> "ServerCertificate | None":
        """Return what servers of a worker show; None: they speak no TLS. Raises `SettingsError`."""
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        return cls(settings.tls_cert, settings.tls_key)

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials of a gRPC server."""
        shown = self._pair

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            before, shown = shown, self.current()
            return None if shown == before else shown.configuration

        renewed = cast(Any, fetch)  # the stubs do not know that None leaves all as it is
        return grpc.dynamic_ssl_server_credentials(shown.configuration, renewed)

    def context(self) -> ssl.SSLContext:
        """Return the context of a server of another protocol."""
        base = self._pair.context

        def renew(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            connection.context = self.current().context

        base.sni_callback = renew  # called for each handshake, with and without a name
        return base

    def current(self) -> Pair:
        """Return what is to be shown now."""
        if self._look() != self._stamps:
            try:
                self._pair, self._stamps = self._read()
                self._problem = ""
                logger.info("new connections get the certificate that %s has now", self._files[0])
            except SettingsError as error:  # half of them is written: the next handshake reads both
                if self._problem != str(error):
                    logger.error("the certificate stays as it is: %s", error)
                self._problem = str(error)
        return self._pair

    def _read(self) -> tuple[Pair, tuple[object, ...]]:
        """Return the pair and the stamps of its files; read them again if they were replaced
        meanwhile, for they are read one after the other. Raises `SettingsError`."""
        stamps = self._look()
        pair = Pair.read(*self._files)
        if (after := self._look()) != stamps:
            return Pair.read(*self._files), after
        return pair, stamps

    def _look(self) -> tuple[object, ...]:
        return tuple(map(stamp, self._files))
