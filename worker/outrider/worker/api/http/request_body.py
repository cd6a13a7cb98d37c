"""Bodies of HTTP requests, read up to a limit of bytes, and the requests' time-outs.

Leaves the fields of a body to `schemas`, and their meaning to `from_openai`.
"""

import asyncio
import codecs
import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from outrider.worker.api.http.body_part import BodyPart
from outrider.worker.api.http.disconnect import ClientGone
from outrider.worker.api.http.errors import ApiError, unreadable
from outrider.worker.api.http.from_openai import OpenAIRequest
from outrider.worker.errors import DeadlineExceeded
from outrider.worker.host.json_members import MAX_MEMBERS, members
from outrider.worker.host.threads import started

MAX_BODY_BYTES = 16 << 20
"""As the largest gRPC message."""
LARGE_BYTES = 1 << 16
"""Size from which on a body is parsed on a thread, so that other requests need not wait."""
MAX_BODIES_BYTES = 64 << 20
"""Most bytes of all bodies that are read at the same time."""
TIMEOUT_HEADER = "x-request-timeout"
JSON = "application/json"

Kind = TypeVar("Kind", bound=BodyPart)


class BodyBudget:
    """Bytes that the bodies of all requests to a server may have while they are read, and the
    thread that parses large ones."""

    def __init__(self, most: int = MAX_BODIES_BYTES) -> None:
        self._most = self._left = most
        self.thread = started(1, "large bodies")
        """One body at a time: each holds the interpreter while its members become objects."""

    @contextlib.contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Yield what takes the bytes of one body as they come, but for the first `LARGE_BYTES`.

        It raises `ApiError` where bodies of others leave no room. All are given back at the end.
        """
        held = 0

        def grow(size: int) -> None:
            nonlocal held
            more = max(0, size - LARGE_BYTES) - held
            if more > self._left:
                words = f"requests of {self._most} bytes are on their way: try again"
                raise ApiError(503, words, code="overloaded")
            self._left -= more
            held += more

        try:
            yield grow
        finally:
            self._left += held


async def read_request(
    request: Request,
    kind: type[Kind],
    convert: Callable[[Kind], OpenAIRequest],
    seconds: float,
    budget: BodyBudget,
) -> OpenAIRequest:
    """Read and convert the body, which must come within `seconds`.

    Raises `ApiError`, `InvalidField` or `DeadlineExceeded`.
    """
    with budget.share() as grow:
        data = await read_body(request, seconds, grow)
        if len(data) < LARGE_BYTES:
            return _parsed(data, kind, convert)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(budget.thread, _parsed, data, kind, convert)


def _parsed(
    data: bytes, kind: type[Kind], convert: Callable[[Kind], OpenAIRequest]
) -> OpenAIRequest:
    if (count := members(data)) > MAX_MEMBERS:
        words = f"the body has {count} members of lists and objects"
        raise ApiError(413, f"{words}; at most {MAX_MEMBERS} are read")
    try:
        return convert(kind.model_validate_json(data))
    except ValidationError as error:
        raise unreadable(error) from None


async def read_body(request: Request, seconds: float, grow: Callable[[int], None]) -> bytes:
    """Return the body, without a byte-order mark; `grow` is told how many bytes have come.

    Raises `ApiError` or `DeadlineExceeded`.
    """
    try:
        async with asyncio.timeout(seconds):
            data = await _limited(request, grow)
    except TimeoutError:
        raise DeadlineExceeded("the body did not come within the time of the request") from None
    except ClientDisconnect:
        raise ClientGone from None
    return data.removeprefix(codecs.BOM_UTF8)


async def _limited(request: Request, grow: Callable[[int], None]) -> bytes:
    _check_kind(request.headers.get("content-type", ""))
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        words = f"content-encoding: {encoding!r:.64} is not supported; send the body as it is"
        raise ApiError(415, words)
    size = request.headers.get("content-length", "0")
    if size.isascii() and size.isdigit() and (len(size) > 18 or int(size) > MAX_BODY_BYTES):
        raise _too_large(size)
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MAX_BODY_BYTES:
            raise _too_large("more")
        grow(len(data))
    return bytes(data)


def _check_kind(kind: str) -> None:
    """Refuse what is not said to be JSON.

    A web page may send other kinds, and none, to any server; before it sends JSON its browser asks
    that server, which never agrees.
    """
    if kind.partition(";")[0].strip().lower() != JSON:
        given = f"{kind!r:.64}" if kind else "nothing"
        raise ApiError(415, f"content-type: {given} is not allowed; it must be {JSON}")


def _too_large(size: str) -> ApiError:
    return ApiError(413, f"the body has {size} bytes; at most {MAX_BODY_BYTES} are read")


def seconds_for(request: Request, longest: float) -> float:
    """Return the seconds that the answer may take: the client's time-out, at most `longest`.

    Raises `ApiError`.
    """
    text = request.headers.get(TIMEOUT_HEADER)
    if text is None:
        return longest
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        limit = "it must be a number of seconds above 0"
        raise ApiError(400, f"{TIMEOUT_HEADER}: {text!r:.64} is not allowed; {limit}")
    return min(seconds, longest)
