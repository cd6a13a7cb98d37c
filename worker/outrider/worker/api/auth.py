"""Authentication at a target: API keys.

Leaves the refusal over HTTP, and the paths that need no key, to `http.middleware`.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from outrider.contract.files import api_keys
from outrider.contract.settings import SettingsError
from outrider.worker.api.setting_files import WatchedFiles, read_text
from outrider.worker.messages import NO_KEY

AUTHORIZATION = "authorization"
SCHEME = "bearer "
OPEN_SERVICE = "/grpc.health.v1.Health/"
REFUSAL = "authorization: send one of this target's API keys as `Bearer KEY`"


class ApiKeys:
    """API keys of a file, read again whenever it has changed; requests must have one of them."""

    def __init__(self, file: str) -> None:
        """Read one key a line, empty lines aside; raise `SettingsError`."""
        self._digests = WatchedFiles[tuple[bytes, ...]](
            (file,),
            lambda: _digests(file),
            lambda now: f"{len(now)} API keys are in force: their file has changed",
            "nobody is let in",
            fallback=(),
        )
        self._numbers: dict[bytes, int] = {}
        """Of the keys that requests came with, by their digests."""

    def allows(self, authorization: str | bytes) -> bool:
        """True if this `Authorization` holds one of the keys that the file has now; takes the same
        time for any text."""
        return self.number(authorization) != NO_KEY

    def number(self, authorization: str | bytes) -> int:
        """Return the number of the key that this `Authorization` holds, or `NO_KEY`.

        A number is one key's for as long as this worker lives, whatever its file holds later.
        """
        if isinstance(authorization, bytes):
            authorization = authorization.decode(errors="replace")
        given = _digest(authorization[len(SCHEME) :].strip())
        matches = [hmac.compare_digest(given, digest) for digest in self._digests.current()]
        if not any(matches) or authorization[: len(SCHEME)].lower() != SCHEME:
            return NO_KEY
        return self._numbers.setdefault(given, len(self._numbers))


class KeyInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """UNAUTHENTICATED for calls without a key, to every service but health."""

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """Return the method's handler, or one that refuses."""
        given = dict(details.invocation_metadata).get(AUTHORIZATION, "")
        if details.method.startswith(OPEN_SERVICE) or self._keys.allows(given):
            return await continuation(details)
        return grpc.unary_stream_rpc_method_handler(_refuse)


async def _refuse(request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, REFUSAL)


def _digests(file: str) -> tuple[bytes, ...]:
    keys = api_keys(read_text("api_keys_file", file))
    if not keys:
        raise SettingsError(f"settings.api_keys_file: {file} holds no key; give one a line")
    return tuple(map(_digest, keys))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
