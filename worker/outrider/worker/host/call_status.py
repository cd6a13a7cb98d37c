"""The status with which a peer ended a call of gRPC."""

import asyncio

import grpc

STATUS_SECONDS = 0.5
"""Longest wait for a peer's status once a write to it has failed."""


async def final_error(
    error: grpc.aio.AioRpcError, call: grpc.aio.Call | None
) -> grpc.aio.AioRpcError:
    """Return `error`, with the peer's own status where a failed write was noticed first.

    grpcio then says INTERNAL, "Internal error from Core", until the status has come. `call`: the
    one that failed, if this party made it; None: `error` stays as it is.
    """
    code, details = error.code(), error.details()
    late = asyncio.get_running_loop().time() + STATUS_SECONDS
    while code is grpc.StatusCode.INTERNAL and call is not None:
        if asyncio.get_running_loop().time() > late:
            break
        await asyncio.sleep(STATUS_SECONDS / 50)
        code, details = await call.code(), await call.details()
    return grpc.aio.AioRpcError(code, error.initial_metadata(), error.trailing_metadata(), details)
