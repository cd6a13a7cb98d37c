"""Why a stream ended, where a write to it failed before the peer's status came."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from outrider.worker.errors import StageLost, StageRefused
from outrider.worker.host import call_status
from outrider.worker.pipeline.wire.outgoing_stream import RUN, OutgoingStream, StageAddress
from outrider.worker.pipeline.wire.stream import StageStream
from tests.late_status import CORE, LateCall, LateChannel, failed_write
from tests.unit.worker.pipeline.wire.stage_servers import group

SILENCE = 600.0
"""Seconds: nobody is to be given up."""


def late(asked: int) -> LateCall:
    return LateCall(asked, grpc.StatusCode.UNAVAILABLE, "stage 1: the next one is gone")


async def failing(error: grpc.aio.BaseError) -> AsyncIterator[bytes]:
    yield b""
    raise error


def ended(call: LateCall | None, error: grpc.aio.BaseError | None = None) -> str:
    """What is said."""

    async def carry() -> None:
        incoming = failing(error or failed_write())
        await StageStream("stage 1 at x").carry(incoming, SILENCE, lambda payload: None, call)

    with pytest.raises(StageLost) as caught:
        asyncio.run(carry())
    return str(caught.value)


def test_the_reason_of_the_peer_is_waited_for() -> None:
    assert ended(late(asked=3)) == "stage 1: the next one is gone"


def test_a_status_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_status, "STATUS_SECONDS", 0.05)
    assert ended(late(asked=1 << 30)) == f"stage 1 at x: INTERNAL: {CORE}"


def test_without_a_call_the_error_is_said_as_it_is() -> None:
    assert ended(None) == f"stage 1 at x: INTERNAL: {CORE}"


def test_a_call_that_was_ended_here_is_no_failure_of_the_stage() -> None:
    assert "is ended here" in ended(None, grpc.aio.AbortError("Locally aborted."))


def test_a_refusal_of_hello_is_one_although_a_write_failed_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = LateCall(3, grpc.StatusCode.FAILED_PRECONDITION, "stage 1: of another model")
    monkeypatch.setattr(StageAddress, "channel", lambda self: LateChannel(call))

    async def greet() -> None:
        await OutgoingStream.open(StageAddress("x:1"), RUN, group(2), 1, 0)

    with pytest.raises(StageRefused, match=r"^stage 1: of another model$"):
        asyncio.run(greet())
