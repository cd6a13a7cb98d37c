"""Errors of the worker; the status and code of each for clients are in `outrider.contract.errors`.

WorkerError
├── InvalidField        a request field is out of its limits            INVALID_ARGUMENT
│   └── TooLong         prompt and answer do not fit the context        INVALID_ARGUMENT
├── GrammarFailed       an answer cannot follow its grammar             INVALID_ARGUMENT
├── UnknownModel        the field `model` names none of this target     INVALID_ARGUMENT
├── QueueFull           too many requests wait                          RESOURCE_EXHAUSTED
├── WaitedTooLong       a request found no room in time                 DEADLINE_EXCEEDED
├── Stopping            the worker drains or its engine is gone         UNAVAILABLE
├── StagesMissing       a stage was gone for as long as a request had   UNAVAILABLE
├── DeadlineExceeded    a request ran longer than it may                DEADLINE_EXCEEDED
├── RequestFailed       the engine could not go on with a request       INTERNAL
├── PlanFailed          a request's part of a step failed               (ends the request)
├── PolicySuperseded    a newer policy is in force                      FAILED_PRECONDITION
├── ModelError          weights or tokenizer cannot be used             FAILED_PRECONDITION
├── GroupLost           a rank of the model is gone                     (ends the engine)
├── StageLost           a pipeline stage is gone, stopped or unreachable (ends the group)
├── StageRefused        stages of a pipeline cannot work together       (the group never begins)
├── DeviceLost          a GPU failed and runs nothing any more          (ends the engine)
├── ProtocolViolation   a peer broke the link's rules                   (closes the session or link)
├── PeerLeft            a peer has left what carries a link             (ends the link)
├── LinkBroken          what carries a link cannot be trusted           (falls back to gRPC)
└── PairRefused         a draft and a target cannot work together       (the link stays refused)
"""

import grpc

from outrider.contract.errors import ANSWERS, INTERNAL, RETRY_AFTER, RETRY_AFTER_SECONDS


class WorkerError(Exception):
    """Root of the errors that a worker raises on purpose."""


class InvalidField(WorkerError):
    """A request field is out of its limits; the message names field, value and limit."""

    def __init__(self, field: str, value: object, limit: str) -> None:
        super().__init__(field, value, limit)
        self.field = field
        """Its name, which may be changed to that by which the client knows it."""
        self.reason = f"{value!r} is not allowed; {limit}"

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class TooLong(InvalidField):
    """Prompt and answer together are more than the context length."""

    def __init__(self, field: str, value: object, limit: str, context: int) -> None:
        super().__init__(field, value, limit)
        self.context = context
        """Tokens that there is room for."""


class GrammarFailed(WorkerError):
    """The answer cannot follow the grammar of its response format: too much of it is open."""

    field = "format"
    """Name of the request's field that the format comes from, which may be changed likewise."""


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


class StagesMissing(WorkerError):
    """A stage of the pipelined target was gone for as long as the request could wait."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"the stages of this target do not run as one: {detail}")


class DeadlineExceeded(WorkerError):
    """The request was not answered within the time that it had."""


class RequestFailed(WorkerError):
    """The engine could not go on with this request; all others go on."""


class PlanFailed(WorkerError):
    """A request's part of the next step cannot be planned; the scheduler has ended the request."""


class PolicySuperseded(WorkerError):
    """A policy is not newer than the one in force; the message names the newest version."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(f"policy.version: {version} is superseded; the newest is {newest}")


class ModelError(WorkerError):
    """Weights, configuration or tokenizer that cannot be used; the message names what and why."""


class GroupLost(WorkerError):
    """A rank of the model is gone or stuck: no pass can be run any more."""


class StageLost(WorkerError):
    """A stage of the pipeline is gone, stopped, or out of reach; its group has ended."""


class StageRefused(WorkerError):
    """Leader and stages of a pipeline cannot work together; the message says why."""


class DeviceLost(WorkerError):
    """A GPU failed: it answers every further call of this process with the same error."""


class ProtocolViolation(WorkerError):
    """A peer broke the rules of the link."""


class PeerLeft(WorkerError):
    """A peer is gone, or has ended what carries the messages of its link."""


class LinkBroken(WorkerError):
    """What carries a link's messages beside gRPC cannot be trusted any more, or never came up."""


class PairRefused(WorkerError):
    """A draft and a target cannot work together; the message says why."""


def status(error: WorkerError) -> grpc.StatusCode:
    """Return the gRPC status of an error."""
    return grpc.StatusCode[ANSWERS.get(type(error).__name__, INTERNAL).grpc]


def trailers(error: WorkerError) -> tuple[tuple[str, str], ...]:
    """Return the gRPC metadata that goes with an error."""
    if isinstance(error, QueueFull):
        return ((RETRY_AFTER, str(error.retry_after)),)
    if isinstance(error, Stopping):  # another target takes it
        return ((RETRY_AFTER, str(RETRY_AFTER_SECONDS)),)
    return ()
