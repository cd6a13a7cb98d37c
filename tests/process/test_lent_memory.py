"""A draft in its target's process whose memory is lent to the target's KV, under load."""

import dataclasses
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from outrider.client import Memory
from outrider.contract import metrics
from outrider.contract.settings import (
    Dtype,
    ModelSettings,
    OffloadKind,
    PolicySettings,
    Role,
    WorkerSettings,
)
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.test_metrics import scrape
from tests.process.workers import Worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux")
RUNNING, TOKENS = 4, 400
BUDGET = 32 << 20
"""Bytes for the draft's weights and KV, and the target's: not for all requests at their longest."""
PROMPTS = [f"{name} was a" for name in ("Anna", "Bert", "Carl", "Dora", "Emil", "Fred")]
CANCELLED = "Gerd was a"


def crowded_settings(folders: Folders) -> WorkerSettings:
    """A target with a draft inside, and less KV than its requests want."""
    return folders.settings(
        Role.TARGET,
        colocated=ModelSettings(uri=f"file://{folders.draft}", dtype=Dtype.FP32),
        policy=PolicySettings(off_below_percent=0),
        max_running=RUNNING,
        max_context=512,
        kv_bytes=BUDGET,
    )


@pytest.fixture(scope="module")
def crowded(folders: Folders) -> Iterator[Worker]:
    with workers.started(crowded_settings(folders), folders.logs) as worker:
        yield worker


def memory_of(worker: Worker) -> Memory:
    """Who has how much, once the worker says so."""
    memory = worker.until(lambda state: state.memory is not None).memory
    assert memory is not None
    return memory


def text(worker: Worker, prompt: str) -> tuple[int, ...]:
    result = worker.client.complete(prompt, max_tokens=TOKENS, ignore_end=True, timeout=240.0)
    return result.token_ids


def cancel(worker: Worker) -> None:
    with worker.client.generate(CANCELLED, max_tokens=TOKENS, ignore_end=True) as stream:
        for _ in range(5):
            next(stream)


def speculate(worker: Worker, wanted: bool) -> None:
    policy = worker.client.state().policy
    worker.client.set_policy(
        dataclasses.replace(policy, version=policy.version + 1, speculate=wanted)
    )


def test_texts_stay_while_memory_is_lent_and_comes_back(crowded: Worker) -> None:
    alone = [text(crowded, prompt) for prompt in PROMPTS]
    memory = memory_of(crowded)
    assert memory.draft == "on_device"
    in_use = memory.target_kv_bytes + memory.draft_kv_bytes + memory.draft_weight_bytes
    assert BUDGET * 0.9 < in_use <= BUDGET
    speculate(crowded, False)
    with ThreadPoolExecutor(len(PROMPTS) + 1) as threads:
        texts = [threads.submit(text, crowded, prompt) for prompt in PROMPTS]
        gone = threads.submit(cancel, crowded)
        lent = crowded.until(lambda s: s.memory is not None and s.memory.draft == "on_host").memory
        shown = scrape(crowded)  # before the requests end: then calm begins, and it may go back
        assert [one.result() for one in texts] == alone
        gone.result()
    assert lent is not None
    assert shown(metrics.KV_EXPANSIONS) == 1
    assert shown(metrics.DRAFT_MEMORY_STATE, state="on_host") == 1
    assert shown(metrics.MEMORY_BYTES, use="target_kv") == lent.target_kv_bytes
    assert lent.target_kv_bytes == memory.target_kv_bytes + memory.lendable_bytes <= BUDGET
    assert (lent.draft_kv_bytes, lent.draft_weight_bytes, lent.expansions) == (0, 0, 1)
    speculate(crowded, True)
    back = crowded.until(lambda s: s.memory is not None and s.memory.draft == "on_device").memory
    assert back is not None
    assert (back.contractions, back.target_kv_bytes) == (1, memory.target_kv_bytes)
    again = workers.answer(crowded, 200)
    assert again.result.usage.accepted_rows > 0
    speculate(crowded, False)
    assert workers.answer(crowded, 200).tokens == again.tokens


def test_memory_that_may_not_be_lent_stays_under_load(folders: Folders) -> None:
    settings = dataclasses.replace(crowded_settings(folders), offload_draft=OffloadKind.NEVER)
    with workers.started(settings, folders.logs) as worker:
        speculate(worker, False)
        with ThreadPoolExecutor(len(PROMPTS)) as threads:
            asked = [threads.submit(text, worker, prompt) for prompt in PROMPTS]
            for one in asked:
                one.result()
        memory = memory_of(worker)
        assert (memory.draft, memory.expansions, memory.lendable_bytes) == ("on_device", 0, 0)


def test_a_budget_without_room_is_refused_with_the_numbers(folders: Folders) -> None:
    settings = folders.settings(
        Role.TARGET,
        colocated=ModelSettings(uri=f"file://{folders.draft}", dtype=Dtype.FP32),
        max_context=512,
        kv_bytes=20 << 20,
    )
    with workers.started(settings, folders.logs, ready=False) as worker:
        worker.process.wait(workers.START_SECONDS)
        assert (
            "settings.kv_bytes: 20971520 is not allowed; the draft's weights take" in worker.tail()
        )
