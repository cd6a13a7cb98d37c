"""`/openapi.json`: the endpoints of a target and the fields of their bodies, as OpenAPI 3.1.

What a body may be is `schemas`' and its neighbours'; responses are OpenAI's, and are not repeated.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outrider.contract.version import version
from outrider.worker.api.http.infill import InfillBody
from outrider.worker.api.http.responses.body import ResponsesBody
from outrider.worker.api.http.schemas import ChatBody, CompletionBody

PATH = "/openapi.json"
BODIES: Mapping[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponsesBody,
    "/infill": InfillBody,
}
READ = {
    "/v1/models": ("The model that is served", True),
    "/v1/models/{name}": ("The model by its name", True),
    "/health": ("Whether requests should come", False),
    "/healthz": ("Whether the process lives", False),
    "/readyz": ("Whether the model is loaded, and the target takes requests", False),
    "/version": ("The version of the package", False),
    "/metrics": ("Metrics for Prometheus", False),
}
"""Summaries of what is only read, and whether it needs a key."""
KEY = "key"
STANDARD = {"ge": "minimum", "le": "maximum"}
"""Names in JSON Schema of limits that pydantic writes by its own, behind validators of ours."""


@cache
def document() -> dict[str, Any]:
    """Return the description of all endpoints."""
    kinds = [(kind, "validation") for kind in BODIES.values()]
    reference = "#/components/schemas/{model}"
    names, defined = models_json_schema(kinds, ref_template=reference)  # type: ignore[arg-type]
    paths: dict[str, Any] = {
        path: {"get": _operation(words, closed)} for path, (words, closed) in READ.items()
    }
    paths["/v1/models/{name}"]["parameters"] = [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
    for path, kind in BODIES.items():
        body = {"application/json": {"schema": names[kind, "validation"]}}
        paths[path] = {
            "post": _operation(f"An answer; see {kind.__name__}", True)
            | {"requestBody": {"required": True, "content": body}}
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Outrider", "version": version()},
        "paths": paths,
        "components": {
            "schemas": _standard(defined["$defs"]),
            "securitySchemes": {KEY: {"type": "http", "scheme": "bearer"}},
        },
    }


def route() -> Route:
    """Return the route of the description."""

    async def send(request: Request) -> Response:
        return JSONResponse(document())

    return Route(PATH, send)


def _operation(summary: str, closed: bool) -> dict[str, Any]:
    responses = {"200": {"description": "Success"}, "default": {"description": "An error"}}
    security: dict[str, Any] = {"security": [{KEY: []}, {}]} if closed else {}
    return {"summary": summary, "responses": responses, **security}


def _standard(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {STANDARD.get(key, key): _standard(value) for key, value in schema.items()}
    return [_standard(one) for one in schema] if isinstance(schema, list) else schema
