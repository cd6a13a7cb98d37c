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
    one that failed, if this party made it; None: the status stays as it is. The traceback is gone:
    its frames hold the call, and a call holds its connection after the channel is closed.
    """
    error = error.with_traceback(None)
    if error.code() is not grpc.StatusCode.INTERNAL or call is None:
        return error
    code, clock = error.code(), asyncio.get_running_loop().time
    late = clock() + STATUS_SECONDS
    while code is grpc.StatusCode.INTERNAL and clock() < late:
        await asyncio.sleep(STATUS_SECONDS / 50)
        code = await call.code()
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, none, await call.details())
