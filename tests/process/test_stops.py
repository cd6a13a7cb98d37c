"""Stop strings in the middle of many tokens that one pass accepts, by a model that says words."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from outrider.contract.settings import Role
from tests.chain_models import write_chain
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.workers import ANSWER_SECONDS, Worker

BEGIN = "<|answer|>"
WORDS = [f"w{number:02}, " for number in range(60)]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}" + BEGIN
MESSAGES = [{"role": "user", "content": "Count."}]
STOPS = {
    "the first token": ("w00", 1, ""),
    "a word within a block": ("w25", 26, "".join(WORDS[:25])),
    "text of two tokens": ("5, w36", 37, "".join(WORDS[:35]) + "w3"),
    "the last of a block": (WORDS[16], 17, "".join(WORDS[:16])),
}
"""Each with the tokens up to the one that completes it, and the text before it."""


@dataclass(frozen=True, slots=True)
class Served:
    """A target that says `WORDS`."""

    worker: Worker
    http: httpx.Client

    def ask(self, **asked: Any) -> Any:
        body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 60, "logprobs": True, **asked}
        return self.http.post("/v1/chat/completions", json=body).raise_for_status()


@pytest.fixture(scope="module")
def served(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = tmp_path_factory.mktemp("words") / "words"
    write_chain(model, {BEGIN: WORDS}, TEMPLATE)
    settings = workers.settings_for(Role.TARGET, model, folders.cache)
    with (
        workers.started(settings, folders.logs) as worker,
        httpx.Client(base_url=worker.url, timeout=ANSWER_SECONDS) as http,
    ):
        yield Served(worker, http)


@pytest.fixture(params=[False, True], ids=["a token a pass", "blocks"])
def predicted(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a request holds besides, so that a pass accepts many tokens."""
    whole = {"prediction": {"type": "content", "content": "".join(WORDS)}}
    return whole if request.param else {"speculate": False}


def test_a_pass_accepts_a_block(served: Served) -> None:
    whole = {"type": "content", "content": "".join(WORDS)}
    answer = served.ask(prediction=whole).json()
    assert answer["choices"][0]["message"]["content"] == "".join(WORDS)
    assert answer["outrider"]["choices"][0]["passes"] < len(WORDS) / 8


@pytest.mark.parametrize("name", STOPS)
def test_everything_ends_with_the_token_that_completes_a_stop_string(
    served: Served, predicted: dict[str, Any], name: str
) -> None:
    stop, count, text = STOPS[name]
    before = served.worker.client.state().counters.generation_tokens
    answer = served.ask(stop=stop, n=2, **predicted).json()
    for choice in answer["choices"]:
        assert (choice["message"]["content"], choice["finish_reason"]) == (text, "stop")
        tokens = [one["token"] for one in choice["logprobs"]["content"]]
        assert tokens == WORDS[:count]
    assert answer["usage"]["completion_tokens"] == 2 * count
    if "prediction" in predicted:
        costs = [(one["accepted_rows"], one["passes"]) for one in answer["outrider"]["choices"]]
        assert {count - accepted - passes for accepted, passes in costs} <= {0, 1}
    served.worker.until(lambda seen: seen.counters.generation_tokens == before + 2 * count)


@pytest.mark.parametrize("name", STOPS)
def test_a_stream_ends_as_the_whole_answer_does(
    served: Served, predicted: dict[str, Any], name: str
) -> None:
    stop, count, text = STOPS[name]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    lines = served.ask(stop=stop, **options, **predicted).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    choices = [choice for event in events for choice in event["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == text
    found = [one for choice in choices for one in (choice["logprobs"] or {}).get("content", ())]
    assert [one["token"] for one in found] == WORDS[:count]
    assert events[-1]["usage"]["completion_tokens"] == count
