"""The worker's errors; what a client sees of each stands in `outrider.contract.errors`.

WorkerError
├── InvalidField        a request field is out of its limits        INVALID_ARGUMENT
│   └── TooLong         prompt and answer do not fit the context  INVALID_ARGUMENT
├── FormFailed          an answer cannot be kept in its form       INVALID_ARGUMENT
├── UnknownModel        the field `model` names none of this target  INVALID_ARGUMENT
├── QueueFull           too many requests wait                      RESOURCE_EXHAUSTED
├── WaitedTooLong       a request found no room in time             DEADLINE_EXCEEDED
├── Stopping            the worker drains or its engine is gone     UNAVAILABLE
├── DeadlineExceeded    a request ran longer than it may        DEADLINE_EXCEEDED
├── RequestFailed       the engine could not go on with a request    INTERNAL
├── ModelError          weights or tokenizer cannot be used         FAILED_PRECONDITION
├── GroupLost           a rank of the model is gone                 (ends the engine)
├── DeviceLost          a GPU failed and runs nothing any more      (ends the engine)
├── ProtocolViolation   a peer broke the link's rules               (closes the session or link)
└── PairRefused         a draft and a target cannot work together   (the link stays refused)
"""

import grpc

from outrider.contract.errors import ANSWERS, INTERNAL, RETRY_AFTER


class WorkerError(Exception):
    """Root of everything that a worker raises on purpose."""


class InvalidField(WorkerError):
    """A request field is out of its limits; the message names field, value and limit."""

    def __init__(self, field: str, value: object, limit: str) -> None:
        super().__init__(f"{field}: {value!r} is not allowed; {limit}")
        self.field = field


class TooLong(InvalidField):
    """Prompt and answer together are more than the context length."""


class FormFailed(WorkerError):
    """The answer cannot be kept in the form that the request asks for: too much of it is open."""


class UnknownModel(WorkerError):
    """The request names a model that is not served here."""


class QueueFull(WorkerError):
    """Too many requests wait already; there may be room in `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class WaitedTooLong(WorkerError):
    """A request found no room for its first step within the time that it may wait."""


class Stopping(WorkerError):
    """The worker is draining, or its engine is gone."""


class DeadlineExceeded(WorkerError):
    """The request was not answered within the time that it had."""


class RequestFailed(WorkerError):
    """The engine could not go on with this request; others are not touched."""


class ModelError(WorkerError):
    """Weights, configuration or tokenizer that cannot be used; the message names what and why."""


class GroupLost(WorkerError):
    """A rank that shares the model is gone or stuck: no pass can be run any more."""


class DeviceLost(WorkerError):
    """A GPU failed: it answers every further call of this process with the same error."""


class ProtocolViolation(WorkerError):
    """A peer broke the rules of the link."""


class PairRefused(WorkerError):
    """A draft and a target that cannot work together; the message says why."""


def status(error: WorkerError) -> grpc.StatusCode:
    """The gRPC status of an error, by the one table that all parts share."""
    return grpc.StatusCode[ANSWERS.get(type(error).__name__, INTERNAL).grpc]


def trailers(error: WorkerError) -> tuple[tuple[str, str], ...]:
    """The gRPC metadata that goes with an error."""
    if isinstance(error, QueueFull):
        return ((RETRY_AFTER, str(error.retry_after)),)
    return ()
