"""The gRPC status and the HTTP code of each error, as plain data.

Knows names only, so that it needs neither grpc nor an HTTP library; each server looks its own up.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """Status and code of one error, as a client sees them."""

    grpc: str
    """Name of the `grpc.StatusCode`."""
    http: int
    """HTTP status code."""


ANSWERS = {
    "InvalidField": ErrorAnswer("INVALID_ARGUMENT", 400),
    "TooLong": ErrorAnswer("INVALID_ARGUMENT", 400),
    "GrammarFailed": ErrorAnswer("INVALID_ARGUMENT", 400),
    "UnknownModel": ErrorAnswer("INVALID_ARGUMENT", 404),
    "QueueFull": ErrorAnswer("RESOURCE_EXHAUSTED", 429),
    "Cancelled": ErrorAnswer("CANCELLED", 499),
    "RequestFailed": ErrorAnswer("INTERNAL", 500),
    "PolicySuperseded": ErrorAnswer("FAILED_PRECONDITION", 409),
    "ModelError": ErrorAnswer("FAILED_PRECONDITION", 500),
    "WaitedTooLong": ErrorAnswer("DEADLINE_EXCEEDED", 503),
    "Stopping": ErrorAnswer("UNAVAILABLE", 503),
    "StagesMissing": ErrorAnswer("UNAVAILABLE", 503),
    "DeadlineExceeded": ErrorAnswer("DEADLINE_EXCEEDED", 504),
}
"""Answer by the name of the error's class."""
INTERNAL = ErrorAnswer("INTERNAL", 500)
"""Answer to an error that is not named in `ANSWERS`: a bug."""

RETRY_AFTER = "retry-after"
"""Where a refusal says in how many seconds there may be room: an HTTP header, or gRPC's trailing
metadata."""
RETRY_AFTER_SECONDS = 1
"""What it says where nothing better is known."""
