"""Liveness of a target follows its engine: stopped is not alive; busy, loading and draining are."""

import os
import signal
import sys
from collections.abc import Iterator

import httpx
import pytest

from outrider.contract.settings import Role
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.workers import ANSWER_SECONDS, Worker, answer, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds engines in /proc")

TOKENS = 200
ALIVE = (200, "alive\n")


@pytest.fixture
def worker(folders: Folders) -> Iterator[Worker]:
    settings = folders.settings(Role.TARGET, lame_duck_seconds=600)
    with workers.started(settings, folders.logs) as found:
        yield found
        found.client.drain(grace_seconds=0)


def health(worker: Worker) -> tuple[int, str]:
    found = httpx.get(f"{worker.url}/healthz", timeout=ANSWER_SECONDS, trust_env=False)
    return found.status_code, found.text


def test_a_stopped_engine_is_not_alive_and_one_that_goes_on_is(worker: Worker) -> None:
    assert health(worker) == ALIVE
    (engine,) = worker.children()
    os.kill(engine, signal.SIGSTOP)
    try:
        wait_until(lambda: health(worker)[0] == 503, ANSWER_SECONDS, "it is seen to be stopped")
        assert health(worker)[1] == "the engine is stopped by a signal\n"
    finally:
        os.kill(engine, signal.SIGCONT)
    wait_until(lambda: health(worker) == ALIVE, ANSWER_SECONDS, "it is alive again")
    assert len(answer(worker, 8).tokens) == 8
    assert "/healthz fails: the engine is stopped" in worker.log.read_text()


def test_a_target_is_alive_while_it_answers_and_while_it_drains(worker: Worker) -> None:
    seen: list[tuple[int, str]] = []
    moments = {number: lambda: seen.append(health(worker)) for number in range(10, TOKENS, 40)}
    answer(worker, TOKENS, moments)
    worker.client.drain(grace_seconds=600)
    worker.until(lambda state: state.draining)
    assert [*seen, health(worker)] == [ALIVE] * (len(moments) + 1)
