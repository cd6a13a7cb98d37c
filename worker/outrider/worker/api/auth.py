"""Who may ask a target: API keys, and the certificate that its servers show.

Leaves to `http` and to gRPC how a refusal looks; what needs no key is said by each.
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
    """Keys of which every request must bring one."""

    _digests: tuple[bytes, ...]

    @classmethod
    def read(cls, file: str) -> Self:
        """One key a line, empty lines aside; raises `SettingsError`."""
        keys = api_keys(_text("api_keys_file", file))
        if not keys:
            raise SettingsError(f"settings.api_keys_file: {file} holds no key; give one a line")
        return cls(tuple(map(_digest, keys)))

    def allows(self, authorization: str) -> bool:
        """Whether this `Authorization` holds one of the keys; takes the same time for any text."""
        given = _digest(authorization[len(SCHEME) :].strip())
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        return any(matches) and authorization[: len(SCHEME)].lower() == SCHEME


class RequireKey(grpc.aio.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """UNAUTHENTICATED for calls without a key, to every service but health."""

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """The method's handler, or one that refuses."""
        given = dict(details.invocation_metadata).get("authorization", "")
        if details.method.startswith(OPEN_SERVICE) or self._keys.allows(_readable(given)):
            return await continuation(details)
        return grpc.unary_stream_rpc_method_handler(_refuse)


def server_credentials(settings: WorkerSettings) -> grpc.ServerCredentials | None:
    """What the gRPC server shows; None: it speaks no TLS. Raises `SettingsError`."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    certificate = _text("tls_cert", settings.tls_cert)
    key = _text("tls_key", settings.tls_key)
    _check_pair(settings.tls_cert, settings.tls_key)
    return grpc.ssl_server_credentials([(key.encode(), certificate.encode())])


def _check_pair(certificate: str, key: str) -> None:
    """gRPC takes files that do not fit together, and then refuses every client."""
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
