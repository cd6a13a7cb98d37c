"""Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.

The HTTP code of each of the worker's errors is that of `outrider.contract.errors`; fields of the
gRPC request take the names that HTTP clients know.
"""

import re
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from outrider.contract.errors import ANSWERS, INTERNAL, RETRY_AFTER, RETRY_AFTER_SECONDS
from outrider.worker.errors import GrammarFailed, InvalidField, QueueFull, TooLong, WorkerError

SHOWN_CHARACTERS = 64
INVALID = "invalid_request_error"
KINDS = {
    400: (INVALID, None),
    401: (INVALID, "invalid_api_key"),
    403: (INVALID, "host_not_allowed"),
    404: (INVALID, None),
    405: (INVALID, None),
    408: ("timeout", None),
    413: (INVALID, "body_too_large"),
    415: (INVALID, None),
    429: ("rate_limit_error", "queue_full"),
    503: ("service_unavailable", "stopping"),
    504: ("timeout", "deadline_exceeded"),
}
"""Type and code by HTTP status."""
CODES = {
    "UnknownModel": "model_not_found",
    "TooLong": "context_length_exceeded",
    "WaitedTooLong": "queue_timeout",
}
"""Code by the name of an error, where the status alone does not say it."""
FIELD = re.compile("[a-z0-9_]+")
PARAMS = {"UnknownModel": "model"}
"""Parameter by the name of an error that has one field alone."""
FIELDS = (
    (re.compile(r"^sampling\."), ""),
    (re.compile(r"^tokens\.ids.*"), "prompt"),
    (re.compile(r"^text$"), "prompt"),
    (re.compile(r"^chat\.messages"), "messages"),
    (re.compile(r"^chat\.tools_json"), "tools"),
    (re.compile(r"^chat$"), "messages"),
    (re.compile(r"tool_calls_json"), "tool_calls"),
    (re.compile(r"^format\b.*"), "response_format"),
    (re.compile(r"^ignore_end"), "ignore_eos"),
)
"""Names of the gRPC request's fields, and their names over HTTP."""


class ApiError(Exception):
    """A refusal that only HTTP has."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


def refusal(error: WorkerError | ApiError) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and body of an error."""
    if isinstance(error, ApiError):
        return error.status, body(error.status, str(error), error.param, error.code)
    name = type(error).__name__
    status = ANSWERS.get(name, INTERNAL).http
    param = PARAMS.get(name)
    message = str(error)
    if isinstance(error, InvalidField | GrammarFailed):
        param = parameter(error.field)
    if isinstance(error, InvalidField):
        message = f"{param}: {error.reason}"
    if isinstance(error, TooLong):  # first in OpenAI's words, which clients look for
        message = f"This model's maximum context length is {error.context} tokens. {message}"
    return status, body(status, message, param, CODES.get(name))


def body(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Return an error as JSON."""
    kind, usual = KINDS.get(status, ("server_error", None))
    return {"error": {"message": message, "type": kind, "param": param, "code": code or usual}}


def parameter(field: str) -> str:
    """Return the HTTP name of a field of the gRPC request."""
    for pattern, name in FIELDS:
        field = pattern.sub(name, field)
    return field


def unreadable(error: ValidationError) -> ApiError:
    """Return the refusal of a body that is no request: its first problem."""
    problem = error.errors(include_url=False)[0]
    if problem["type"] == "json_invalid":
        words = str(problem["ctx"]["error"])
        if "recursion limit" in words:
            return ApiError(400, "the body is nested too deeply")
        return ApiError(400, f"the body is not JSON: {words}")
    if not problem["loc"] and problem["type"] == "model_type":
        return ApiError(400, "the body must be a JSON object")
    param, reason = _path(problem["loc"]), _reason(problem)
    if param is None:  # a rule over several fields, which begins with the name of the first
        return ApiError(400, reason, reason.partition(" ")[0])
    if problem["type"] == "missing":
        return ApiError(400, f"{param}: it is missing", param)
    given = repr(problem["input"])[:SHOWN_CHARACTERS]
    return ApiError(400, f"{param}: {given} is not allowed; {reason}", param)


def _reason(problem: ErrorDetails) -> str:
    own = problem.get("ctx", {}).get("error")
    text = str(own or problem["msg"])
    return text[:1].lower() + text[1:]


def _path(location: tuple[int | str, ...]) -> str | None:
    """Return a field's path; pydantic names the members of unions too, clients know only fields."""
    parts = (
        f"[{p}]" if isinstance(p, int) else f".{p}" for p in location if FIELD.fullmatch(str(p))
    )
    return "".join(parts).removeprefix(".") or None


async def handle_refusal(request: Request, error: Exception) -> JSONResponse:
    """Respond to `WorkerError` and `ApiError`."""
    assert isinstance(error, WorkerError | ApiError)
    status, content = refusal(error)
    seconds = error.retry_after if isinstance(error, QueueFull) else RETRY_AFTER_SECONDS
    return JSONResponse(content, status, headers(status, seconds))


async def handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Respond to Starlette's own refusals: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    text = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(body(error.status_code, text), error.status_code, error.headers)


async def handle_bug(request: Request, error: Exception) -> JSONResponse:
    """Respond to every other error; Starlette logs it afterwards."""
    return JSONResponse(body(500, "the server failed at this request; its log says why"), 500)


def headers(status: int, retry_after: int = RETRY_AFTER_SECONDS) -> dict[str, str]:
    """Return the headers of a refusal; `retry_after` in seconds, where trying again helps."""
    match status:
        case 401:
            return {"WWW-Authenticate": "Bearer"}
        case 429 | 503:
            return {RETRY_AFTER: str(retry_after)}
        case _:
            return {}
