"""Clients that people have, as they are published, against a server of this build.

Each has a tool of two turns, a stream, an answer in a form: what a client lacks is not in its row.
"""

from pathlib import Path

import pytest

from tests.clients.conftest import got, python
from tests.clients.scripted import AFTER

EXPECTED = {
    "tool": ["weather", {"city": "Paris"}, "It is 18 degrees in Paris."],
    "stream": "one two three four",
    "structured": {"name": "Ada", "age": 36},
    "tool and structured": ["weather", {"city": "Paris"}, {"name": "Ada", "age": 36}],
    "in pieces": {"name": "Ada", "age": 36},
    "by schema": {"name": "Ada", "age": 36},
    "whole": AFTER,
    "diff": AFTER,
    "file": AFTER,
    "answer": "It is 18 degrees in Paris.",
    "accuracy": 1.0,
}
ALL = ("tool", "stream", "structured")
AGENT = (*ALL, "tool and structured")
EXPECTED |= {f"{case} by responses": EXPECTED[case] for case in AGENT}
BOTH = (*AGENT, *(f"{case} by responses" for case in AGENT))
PYTHON = {
    "aider_cli": ("whole", "diff"),
    "instructor_client": ("structured", "in pieces", "by schema"),
    "langchain_client": ALL,
    "litellm_client": ALL,
    "llama_index_client": ALL,
    "llm_cli": ALL,
    "lm_eval_cli": ("accuracy",),
    "openai_agents": BOTH,
    "openai_python": ALL,
    "openai_responses": ALL,
    "pydantic_ai_client": ALL,
}
NODE = {"ai_sdk": BOTH, "continue_cli": ("answer", "file"), "openai": ALL}
pytestmark = pytest.mark.timeout(900)  # the first time, each client is downloaded


@pytest.mark.parametrize("client", PYTHON)
def test_a_client_for_python_gets_what_it_asks_for(client: str, there: dict[str, str]) -> None:
    assert python(client, there) == {case: EXPECTED[case] for case in PYTHON[client]}


@pytest.mark.parametrize("client", NODE)
def test_a_client_for_node_gets_what_it_asks_for(
    client: str, there: dict[str, str], node_folder: Path
) -> None:
    found = got(["node", str(node_folder / f"{client}.mjs")], there)
    assert found == {case: EXPECTED[case] for case in NODE[client]}
