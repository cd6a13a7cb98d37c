"""A request that finds no room within `queue_seconds` ends unrun, and the running one goes on."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from outrider.client import DeadlineExceeded
from outrider.contract import metrics
from outrider.contract.settings import Role
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.event_stream import data_of
from tests.process.test_metrics import grown, scrape
from tests.process.workers import ANSWER_SECONDS, PROMPT, Worker, answer

QUEUE_SECONDS = 1
LONG = 1800
"""Tokens of the running answer: far longer than anybody waits."""
WAITED = r"no room for this request in [1-9]\d*\.\d s"
BODY = {"prompt": PROMPT, "max_tokens": 5}


@pytest.fixture
def impatient(folders: Folders) -> Iterator[Worker]:
    """A target that runs one request, and lets others wait for a second."""
    settings = folders.settings(Role.TARGET, max_running=1, queue_seconds=QUEUE_SECONDS)
    with workers.started(settings, folders.logs) as worker:
        yield worker


def over_grpc(target: Worker) -> str:
    """Has a request wait over gRPC; what its refusal says."""
    with pytest.raises(DeadlineExceeded) as refusal:
        target.client.complete(PROMPT, max_tokens=5, timeout=ANSWER_SECONDS)
    assert refusal.value.tokens == 0
    return str(refusal.value)


def over_http(target: Worker) -> str:
    """The same over HTTP."""
    answered = httpx.post(
        f"{target.url}/v1/completions", json=BODY, trust_env=False, timeout=ANSWER_SECONDS
    )
    assert answered.status_code == 503
    assert int(answered.headers["retry-after"]) > 0
    return message_of(answered.json()["error"])


def streamed(target: Worker) -> str:
    """The same, where a stream had begun before the wait was over: its last event says so."""
    answered = httpx.post(
        f"{target.url}/v1/completions",
        json=BODY | {"stream": True},
        trust_env=False,
        timeout=ANSWER_SECONDS,
    )
    assert answered.status_code == 200
    (event,) = data_of(answered.text)
    return message_of(json.loads(event)["error"])


def message_of(error: dict[str, object]) -> str:
    """What an error in OpenAI's shape says."""
    message = error.pop("message")
    assert error == {"type": "service_unavailable", "param": None, "code": "queue_timeout"}
    return str(message)


def all_wait(target: Worker) -> list[str]:
    """What each way of waiting, all at once, was told in the end."""
    with ThreadPoolExecutor(len(WAYS)) as pool:
        return list(pool.map(lambda wait: wait(target), WAYS))


WAYS: tuple[Callable[[Worker], str], ...] = (over_grpc, over_http, streamed)


def test_requests_without_room_in_time_end_unrun_and_the_running_one_goes_on(
    impatient: Worker, plain: tuple[int, ...]
) -> None:
    before, seen = impatient.client.state().counters, scrape(impatient)
    said: list[str] = []
    given = answer(impatient, LONG, {20: lambda: said.extend(all_wait(impatient))}, speculate=False)
    assert len(said) == len(WAYS)
    assert all(re.fullmatch(WAITED, message) for message in said), said
    assert given.tokens == plain
    after = impatient.until(lambda s: s.running == s.waiting == 0).counters
    assert after.requests_expired - before.requests_expired == len(WAYS)
    assert after.requests_finished - before.requests_finished == 1
    assert after.prompt_tokens - before.prompt_tokens == given.result.usage.prompt_tokens
    assert after.generation_tokens - before.generation_tokens == LONG
    assert grown(seen, scrape(impatient), metrics.REQUEST_FAILURES, reason="expired") == len(WAYS)
