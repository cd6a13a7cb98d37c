"""Errors of a call, and the one table from gRPC status to error.

    ClientError              any status that is not named below
    ├── InvalidRequest       INVALID_ARGUMENT      a field is out of its limits; do not retry
    ├── Overloaded           RESOURCE_EXHAUSTED    the queue is full; retry later
    ├── Unavailable          UNAVAILABLE           no answer, or the worker is stopping; retry
    ├── Cancelled            CANCELLED             this side, or the server, ended the call
    ├── DeadlineExceeded     DEADLINE_EXCEEDED     the timeout passed
    ├── ServerError          INTERNAL, UNKNOWN, DATA_LOSS, FAILED_PRECONDITION: the server's fault
    ├── Unauthenticated      UNAUTHENTICATED       no API key was given, or a wrong one
    └── Incomplete           (no status)           the result was read before the answer ended

The message is the server's own text, so a refusal still names the field and its limit.
"""

import re
from typing import cast

import grpc

from outrider.contract.errors import RETRY_AFTER


class ClientError(Exception):
    """Root of everything that a call raises; `status` is the gRPC status behind it.

    `tokens` is how many tokens of the answer had come; more than 0 are told in the message too.
    `retry_after` is in how many seconds there may be room, where the server says so.
    """

    def __init__(
        self,
        message: str,
        status: grpc.StatusCode,
        tokens: int = 0,
        retry_after: int | None = None,
    ) -> None:
        came = f" (after {tokens} token{'s' if tokens > 1 else ''})" if tokens else ""
        super().__init__(message + came)
        self.status = status
        self.tokens = tokens
        self.retry_after = retry_after


class InvalidRequest(ClientError):
    """A field of the request is out of its limits; the message names it."""


class Overloaded(ClientError):
    """Too many requests wait already, at every target that was tried.

    `retry_after` says in how many seconds the last of them may have room.
    """


class Unavailable(ClientError):
    """Nobody answers at any address, or the worker is stopping or has lost its engine.

    With `tokens` above 0 it was lost amid an answer, and no other target was tried.
    """


class Cancelled(ClientError):
    """The call was cancelled, usually by closing its stream."""


class DeadlineExceeded(ClientError):
    """The call's timeout passed."""


class ServerError(ClientError):
    """The server failed at something that was no fault of the request."""


class Unauthenticated(ClientError):
    """The worker wants an API key, and got none or a wrong one."""


class Incomplete(ClientError):
    """The answer's last message, which carries its result, has not come."""

    def __init__(self) -> None:
        super().__init__("the answer has not ended: iterate it first", grpc.StatusCode.UNKNOWN)


ERRORS: dict[grpc.StatusCode, type[ClientError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.INTERNAL: ServerError,
    grpc.StatusCode.UNKNOWN: ServerError,
    grpc.StatusCode.DATA_LOSS: ServerError,
    grpc.StatusCode.FAILED_PRECONDITION: ServerError,
}


def from_rpc(error: grpc.RpcError, tokens: int = 0) -> ClientError:
    """The error that stands for a failed call, sync or async, that had brought `tokens`."""
    call = cast(grpc.Call, error)
    status = call.code()
    kind = ERRORS.get(status, ClientError)
    return kind(call.details() or status.name, status, tokens, _retry_after(call))


def _retry_after(call: grpc.Call) -> int | None:
    said = str(dict(call.trailing_metadata() or ()).get(RETRY_AFTER, ""))
    return int(said) if re.fullmatch("[0-9]{1,9}", said) else None
