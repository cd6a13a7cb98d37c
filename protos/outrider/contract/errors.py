"""How each error reaches a client: its gRPC status and its HTTP code, as plain data.

Knows names only, so that it needs neither grpc nor an HTTP library; each server looks its own up.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client sees of an error."""

    grpc: str
    """Name of the `grpc.StatusCode`."""
    http: int
    """HTTP status code."""


ANSWERS = {
    "InvalidField": Answer("INVALID_ARGUMENT", 400),
    "TooLong": Answer("INVALID_ARGUMENT", 400),
    "FormFailed": Answer("INVALID_ARGUMENT", 400),
    "UnknownModel": Answer("INVALID_ARGUMENT", 404),
    "QueueFull": Answer("RESOURCE_EXHAUSTED", 429),
    "Cancelled": Answer("CANCELLED", 499),
    "RequestFailed": Answer("INTERNAL", 500),
    "ModelError": Answer("FAILED_PRECONDITION", 500),
    "WaitedTooLong": Answer("DEADLINE_EXCEEDED", 503),
    "Stopping": Answer("UNAVAILABLE", 503),
    "DeadlineExceeded": Answer("DEADLINE_EXCEEDED", 504),
}
"""Answer by the name of the error's class."""
INTERNAL = Answer("INTERNAL", 500)
"""Answer to an error that is not named in `ANSWERS`: a bug."""

RETRY_AFTER = "retry-after"
"""Where a refusal says in how many seconds there may be room: an HTTP header, or gRPC's trailing
metadata."""
