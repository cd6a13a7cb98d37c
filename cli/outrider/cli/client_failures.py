"""Errors of calls to a target, as failures that say what to do."""

from outrider.cli.failures import BadInput, Failure
from outrider.client.errors import ClientError, InvalidRequest, Unauthenticated, Unavailable

CLOSED = "Socket closed"
"""What gRPC says where one side speaks TLS and the other does not, among other things."""
REFUSED = "Connection refused"
"""What the system says, within gRPC's words, where nothing listens."""
HTTP_1 = "http1.x server"
"""What gRPC says where the OpenAI API's port answers."""


def failure_of(error: Exception) -> Failure | None:
    """Return the failure that an error of a call is; None: it is no such error."""
    match error:
        case Unavailable():
            return Failure(f"cannot reach the target, or lost it: {error}{_hint(error)}")
        case Unauthenticated():
            return BadInput(f"{error}; --api-key-env VARIABLE says where it is")
        case InvalidRequest():
            return BadInput(str(error))
        case ClientError():
            return Failure(str(error))
    return None


def _hint(error: Unavailable) -> str:
    if CLOSED in str(error):
        return "; a target with TLS needs --tls-ca FILE, or --tls-ca system"
    if REFUSED in str(error):
        return "; `outrider serve MODEL` starts one, which listens once it says `Serving`"
    if HTTP_1 in str(error):
        return "; that port speaks HTTP: --address takes the one that stands after `gRPC at`"
    return ""
