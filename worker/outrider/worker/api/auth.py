"""Authentication at a target: API keys, and the certificate of its servers.

Leaves the refusal over HTTP, and the paths that need no key, to `http.middleware`.
"""

import hashlib
import hmac
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc

from outrider.contract.api_keys import api_keys
from outrider.contract.settings import SettingsError, WorkerSettings

SCHEME = "bearer "
OPEN_SERVICE = "/grpc.health.v1.Health/"
REFUSAL = "authorization: send one of this target's API keys as `Bearer KEY`"


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """API keys; every request must have one of them."""

    _digests: tuple[bytes, ...]

    @classmethod
    def read(cls, file: str) -> Self:
        """Read one key a line, empty lines aside; raise `SettingsError`."""
        keys = api_keys(_text("api_keys_file", file))
        if not keys:
            raise SettingsError(f"settings.api_keys_file: {file} holds no key; give one a line")
        return cls(tuple(map(_digest, keys)))

    def allows(self, authorization: str) -> bool:
        """True if this `Authorization` holds one of the keys; takes the same time for any text."""
        given = _digest(authorization[len(SCHEME) :].strip())
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        return any(matches) and authorization[: len(SCHEME)].lower() == SCHEME


class KeyInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """UNAUTHENTICATED for calls without a key, to every service but health."""

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """Return the method's handler, or one that refuses."""
        given = dict(details.invocation_metadata).get("authorization", "")
        if details.method.startswith(OPEN_SERVICE) or self._keys.allows(_readable(given)):
            return await continuation(details)
        return grpc.unary_stream_rpc_method_handler(_refuse)


def server_credentials(settings: WorkerSettings) -> grpc.ServerCredentials | None:
    """Return the gRPC server's certificate; None: it speaks no TLS. Raises `SettingsError`."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    certificate = _text("tls_cert", settings.tls_cert)
    key = _text("tls_key", settings.tls_key)
    _check_pair(settings.tls_cert, settings.tls_key)
    return grpc.ssl_server_credentials([(key.encode(), certificate.encode())])


def _check_pair(certificate: str, key: str) -> None:
    """Refuse a pair that does not fit together: gRPC takes it, and then refuses every client."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        text = f"settings.tls_cert, settings.tls_key: {certificate} and {key} are no pair: {error}"
        raise SettingsError(text) from error


async def _refuse(request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, REFUSAL)


def _readable(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def _text(name: str, file: str) -> str:
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings.{name}: {file} cannot be read: {error}") from error
