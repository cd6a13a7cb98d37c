"""Answers to gRPC calls that fail, for every method that takes one request.

A `WorkerError` gets its status; settings that are none, and bytes that are no message, are an
argument that is not allowed: gRPC itself would answer UNKNOWN, as if the server had failed. Streams
of messages carry raw bytes, which their service decodes.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from outrider.contract.settings import SettingsError
from outrider.worker.errors import InvalidField, WorkerError, status, trailers
from outrider.worker.server.message_fields import MAX_FIELDS, has_few_fields

Context = Any  # grpc.aio.ServicerContext, whose stubs want both message types at every use


class CallErrors(grpc.aio.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """Ends calls with the status of what their method raises."""

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """Return the method's handler, with a deserializer that does not fail."""
        handler = await continuation(details)
        if handler is None or handler.request_streaming or handler.request_deserializer is None:
            return handler
        read = tolerant(handler.request_deserializer)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                answered_stream(handler.unary_stream), read, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            answered(handler.unary_unary), read, handler.response_serializer
        )


def tolerant(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return `read`, a message's `FromString`, with its refusal as result."""
    kind = read.__self__.DESCRIPTOR  # type: ignore[attr-defined]

    def read_or_error(payload: bytes) -> Any:
        if not has_few_fields(payload, kind):
            limit = f"it must be a message of at most {MAX_FIELDS} fields"
            return InvalidField("request", f"{len(payload)} bytes", limit)
        try:
            return read(payload)
        except DecodeError as error:
            return error

    return read_or_error


def answered(method: Callable[[Any, Context], Awaitable[Any]]) -> Callable[[Any, Context], Any]:
    """Return `method`, called with messages only."""

    async def call(request: Any, context: Context) -> Any:
        await refuse_unreadable(request, context)
        try:
            return await method(request, context)
        except (WorkerError, SettingsError) as error:
            await refuse(error, context)

    return call


def answered_stream(
    method: Callable[[Any, Context], AsyncIterator[Any]],
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    """Return `method`, which answers with a stream, called with messages only."""
    if inspect.iscoroutinefunction(method):  # it writes to the context, as health's Watch does
        return answered(method)

    async def call(request: Any, context: Context) -> AsyncIterator[Any]:
        await refuse_unreadable(request, context)
        try:
            async for response in method(request, context):
                yield response
        except (WorkerError, SettingsError) as error:
            await refuse(error, context)

    return call


async def refuse(error: WorkerError | SettingsError, context: Context) -> None:
    """End the call with the status of an error."""
    if isinstance(error, SettingsError):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    else:
        await context.abort(status(error), str(error), trailers(error))


async def refuse_unreadable(request: Any, context: Context) -> None:
    """End the call if its request is a refusal."""
    if isinstance(request, InvalidField):
        await refuse(request, context)
    if isinstance(request, DecodeError):
        detail = f"request: its bytes are no message, or text in it is no UTF-8: {request}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, detail)
