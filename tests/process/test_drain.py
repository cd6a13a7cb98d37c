"""A target that is told to stop while others still send it requests, as in a cluster."""

import os
import signal
import sys
from collections.abc import Iterator

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.client import Client, Unavailable
from outrider.contract.settings import Role
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.workers import ANSWER_SECONDS, PROMPT, Worker, started, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds engines in /proc")

NEVER = 3600
"""Seconds that no test waits."""
LENGTH, LONG = 200, 1900
BODY = {"prompt": PROMPT, "max_tokens": LENGTH, "ignore_eos": True, "temperature": 0}
STATUS = health_pb2.HealthCheckResponse
CLOSES = ("connection", "close")


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """Keeps its connections."""
    with httpx.Client(timeout=ANSWER_SECONDS, trust_env=False) as made:
        yield made


def tell_to_stop(target: Worker, http: httpx.Client) -> None:
    target.process.send_signal(signal.SIGTERM)
    ready = f"{target.url}/readyz"
    wait_until(lambda: http.get(ready).status_code == 503, workers.END_SECONDS, "it is not ready")


def signal_engine(target: Worker, number: int) -> None:
    (engine,) = target.children()
    os.kill(engine, number)


def test_a_target_that_is_not_ready_any_more_takes_requests_for_its_lame_duck_time(
    folders: Folders, http: httpx.Client
) -> None:
    settings = folders.settings(
        Role.TARGET, max_running=2, lame_duck_seconds=NEVER, grace_seconds=2 * NEVER
    )
    with started(settings, folders.logs) as target:
        given = {"max_tokens": LENGTH, "ignore_end": True, "timeout": ANSWER_SECONDS}
        with target.client.generate(PROMPT, **given) as stream:
            first = next(iter(stream))
            tell_to_stop(target, http)
            assert target.client.state().draining
            fresh = http.post(f"{target.url}/v1/completions", json=BODY)
            assert fresh.status_code == 200
            assert CLOSES in fresh.headers.items(), "the next request is to go to another target"
            again = target.client.complete(PROMPT, **given)
            text = first.text + "".join(chunk.text for chunk in stream)
        assert text == again.text == fresh.json()["choices"][0]["text"]
        assert len(again.token_ids) == LENGTH
        target.client.drain(0)
        assert target.process.wait(workers.END_SECONDS) == 0


def test_after_its_lame_duck_time_a_target_refuses_and_finishes_what_runs(
    folders: Folders, http: httpx.Client
) -> None:
    settings = folders.settings(
        Role.TARGET, lame_duck_seconds=1, grace_seconds=NEVER, queue_seconds=NEVER
    )
    with (
        started(settings, folders.logs) as target,
        grpc.insecure_channel(target.address) as channel,
        Client(target.address) as client,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch
        health = watch(health_pb2.HealthCheckRequest(), timeout=ANSWER_SECONDS)
        assert next(health).status == STATUS.SERVING
        streamed = {**BODY, "stream": True, "max_tokens": LONG}
        signal_engine(target, signal.SIGSTOP)  # the answer cannot come to its end
        with http.stream("POST", f"{target.url}/v1/completions", json=streamed) as stream:
            assert stream.status_code == 200, "it is taken"
            tell_to_stop(target, http)
            assert next(health).status == STATUS.NOT_SERVING
            refused = http.post(f"{target.url}/v1/completions", json=BODY)
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert CLOSES in refused.headers.items()
            with pytest.raises(Unavailable):
                client.complete(PROMPT, max_tokens=1)
            signal_engine(target, signal.SIGCONT)
            rest = [line for line in stream.iter_lines() if line]
        assert rest[-1] == "data: [DONE]"
        assert any('"finish_reason":"length"' in line.replace(" ", "") for line in rest)
        assert target.process.wait(workers.END_SECONDS) == 0
