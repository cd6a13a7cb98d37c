"""Why a stream ended, where a write to it failed before the peer's status came."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from outrider.worker.errors import StageLost
from outrider.worker.host import call_status
from outrider.worker.pipeline.wire.stream import StageStream

CORE = "Internal error from Core"
SILENCE = 600.0
"""Seconds: nobody is to be given up."""


class Call:
    """A call whose status comes after it was asked for a few times."""

    def __init__(self, asked: int) -> None:
        self._asked = asked

    async def code(self) -> grpc.StatusCode:
        self._asked -= 1
        return grpc.StatusCode.INTERNAL if self._asked > 0 else grpc.StatusCode.UNAVAILABLE

    async def details(self) -> str:
        return CORE if self._asked > 0 else "stage 1: the next one is gone"


async def failing(error: grpc.aio.BaseError) -> AsyncIterator[bytes]:
    yield b""
    raise error


def core() -> grpc.aio.AioRpcError:
    """A write that failed, as grpcio has it."""
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, none, none, CORE)


def ended(call: Call | None, error: grpc.aio.BaseError | None = None) -> str:
    """What is said."""

    async def carry() -> None:
        incoming = failing(error or core())
        await StageStream("stage 1 at x").carry(incoming, SILENCE, lambda payload: None, call)

    with pytest.raises(StageLost) as caught:
        asyncio.run(carry())
    return str(caught.value)


def test_the_reason_of_the_peer_is_waited_for() -> None:
    assert ended(Call(asked=3)) == "stage 1: the next one is gone"


def test_a_status_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_status, "STATUS_SECONDS", 0.05)
    assert ended(Call(asked=1 << 30)) == f"stage 1 at x: INTERNAL: {CORE}"


def test_without_a_call_the_error_is_said_as_it_is() -> None:
    assert ended(None) == f"stage 1 at x: INTERNAL: {CORE}"


def test_a_call_that_was_ended_here_is_no_failure_of_the_stage() -> None:
    assert "is ended here" in ended(None, grpc.aio.AbortError("Locally aborted."))
