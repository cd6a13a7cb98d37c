"""Authentication at a target: API keys.

Leaves the refusal over HTTP, and the paths that need no key, to `http.middleware`.
"""

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from outrider.contract.files import api_keys
from outrider.contract.settings import SettingsError
from outrider.worker.api.setting_files import read_text, stamp
from outrider.worker.messages import NO_KEY

logger = logging.getLogger(__name__)

AUTHORIZATION = "authorization"
SCHEME = "bearer "
OPEN_SERVICE = "/grpc.health.v1.Health/"
REFUSAL = "authorization: send one of this target's API keys as `Bearer KEY`"


class ApiKeys:
    """API keys of a file, read again whenever it has changed; requests must have one of them."""

    def __init__(self, file: str) -> None:
        """Read one key a line, empty lines aside; raise `SettingsError`."""
        self._file = file
        self._stamp = stamp(file)
        self._digests = _digests(file)
        self._problem = ""
        """Why the file could not be read when it was last tried."""
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
        self._look()
        text = _readable(authorization)
        given = _digest(text[len(SCHEME) :].strip())
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        if not any(matches) or text[: len(SCHEME)].lower() != SCHEME:
            return NO_KEY
        return self._numbers.setdefault(given, len(self._numbers))

    def _look(self) -> None:
        """Take the keys of a file that has changed: nobody's, where it cannot be read."""
        found = stamp(self._file)
        if found == self._stamp:
            return
        try:
            self._digests = _digests(self._file)
            self._stamp, self._problem = found, ""
            logger.info("%d API keys are in force: their file has changed", len(self._digests))
        except SettingsError as error:  # what failed may pass: the next request reads again
            self._digests, self._stamp = (), None
            if self._problem != str(error):
                logger.error("nobody is let in: %s", error)
            self._problem = str(error)


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


def _readable(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _digests(file: str) -> tuple[bytes, ...]:
    keys = api_keys(read_text("api_keys_file", file))
    if not keys:
        raise SettingsError(f"settings.api_keys_file: {file} holds no key; give one a line")
    return tuple(map(_digest, keys))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
