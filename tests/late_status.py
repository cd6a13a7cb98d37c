"""A channel whose calls fail to write before the peer's status comes, as grpcio may have it."""

from typing import Any, Self

import grpc

CORE = "Internal error from Core"


def failed_write() -> grpc.aio.AioRpcError:
    """What such a call raises."""
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, none, none, CORE)


class LateCall:
    """A call whose status comes after it was asked for a few times."""

    def __init__(self, asked: int, code: grpc.StatusCode, details: str) -> None:
        self._asked, self._code, self._details = asked, code, details

    async def code(self) -> grpc.StatusCode:
        self._asked -= 1
        return grpc.StatusCode.INTERNAL if self._asked > 0 else self._code

    async def details(self) -> str:
        return CORE if self._asked > 0 else self._details

    def cancel(self) -> None:
        """Nothing is under way."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        raise failed_write()


class LateChannel:
    """A channel that has one such call."""

    def __init__(self, call: LateCall) -> None:
        self._call = call

    def stream_stream(self, method: str) -> Any:
        return lambda requests: self._call

    async def close(self) -> None:
        """Nothing is open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""
