"""`/openapi.json` describes what a target serves: its endpoints, and bodies that it takes."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from outrider.worker.api.auth import ApiKeys
from outrider.worker.api.http.app import target_application
from outrider.worker.api.http.openapi import BODIES, PATH, document
from outrider.worker.api.text import Text
from tests.unit.worker.api.scripted import Scripted, ScriptedHandle

SCHEMAS = document()["components"]["schemas"]
UNDESCRIBED = {PATH, "/v1/embeddings"}
"""The description itself, and an endpoint that only says that it is not there."""


def test_every_endpoint_is_described_and_no_other(text: Text) -> None:
    target = Scripted(text)

    async def application() -> Any:
        return target_application(target._inference(ScriptedHandle(b"")), None, ())

    routes = [one for one in asyncio.run(application()).app.app.routes if isinstance(one, Route)]
    served = {route.path.replace(":path", "") for route in routes} - UNDESCRIBED
    assert {*document()["paths"]} == served | {"/metrics"}
    for path in BODIES:
        assert target.post(path).status_code == 400, path


def test_the_description_needs_no_key_and_is_json(text: Text, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    answer = Scripted(text, keys=ApiKeys(str(tmp_path / "keys"))).ask("GET", PATH)
    assert (answer.status_code, answer.json()) == (200, document())


def test_every_reference_leads_somewhere_and_limits_have_standard_names() -> None:
    written = json.dumps(document())
    assert {*re.findall(r'"#/components/schemas/(\w+)"', written)} <= {*SCHEMAS}
    assert not re.search(r'"(ge|le|gt|lt)":', written)


@pytest.mark.parametrize(
    ("schema", "field", "kinds"),
    [
        ("CompletionBody", "prompt", {"string", "array"}),
        ("CompletionBody", "stop", {"string", "array", "null"}),
        ("ChatMessage", "content", {"string", "array", "null"}),
        ("ChatMessage", "name", {"string", "null"}),
        ("ResponsesBody", "input", {"string", "array"}),
        ("PredictionBody", "content", {"string", "array"}),
        ("ChatBody", "guided_json", {"string", "object", "null"}),
        ("ChatBody", "guided_choice", {"array", "null"}),
        ("ChatBody", "max_tokens", {"integer", "null"}),
    ],
)
def test_a_field_has_all_the_types_that_are_taken(schema: str, field: str, kinds: set[str]) -> None:
    found = SCHEMAS[schema]["properties"][field]
    assert {one["type"] for one in found["anyOf"]} == kinds
