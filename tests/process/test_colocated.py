"""A draft in the target's own process, drafting and verifying in turn."""

import dataclasses
from collections.abc import Iterator

import grpc
import pytest

from outrider.client import Sampling
from outrider.contract.settings import Dtype, ModelSettings, PolicySettings, Role
from outrider.protos.v1.internal import control_pb2 as pb
from outrider.protos.v1.internal.control_pb2_grpc import ControlStub
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.workers import Worker, answer, assert_speculated

COUNT = 300


@pytest.fixture(scope="module")
def colocated(folders: Folders) -> Iterator[Worker]:
    settings = folders.settings(
        Role.TARGET,
        colocated=ModelSettings(uri=f"file://{folders.draft}", dtype=Dtype.FP32),
        policy=PolicySettings(off_below_percent=0),
    )
    with workers.started(settings, folders.logs) as worker:
        yield worker


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=0.9, top_p=0.95, top_k=50, seed=5)]
)
def test_serial_drafting_writes_plain_decodings_text(colocated: Worker, sampling: Sampling) -> None:
    expected = answer(colocated, COUNT, speculate=False, sampling=sampling)
    given = answer(colocated, COUNT, sampling=sampling)
    assert given.tokens == expected.tokens
    assert expected.result.usage.draft_rows == 0
    assert_speculated(given)
    assert colocated.client.state().counters.drafting_seconds > 0


def test_a_cancelled_answer_frees_the_memory(colocated: Worker) -> None:
    with colocated.client.generate(workers.PROMPT, max_tokens=1500, ignore_end=True) as stream:
        for _ in range(20):
            next(stream)
    colocated.until(lambda s: s.running == s.counters.kv_slots_used == 0)
    expected = answer(colocated, 100, speculate=False)
    assert answer(colocated, 100).tokens == expected.tokens


def test_a_target_that_awaits_an_arrangement_measures_and_then_serves_as_told(
    folders: Folders,
) -> None:
    settings = folders.settings(
        Role.TARGET,
        colocated=ModelSettings(uri=f"file://{folders.draft}", dtype=Dtype.FP32),
        await_arrangement=True,
    )
    passes = [pb.MeasuredPass(draft=draft, rows=2) for draft in (True, False)]
    with (
        workers.started(settings, folders.logs, ready=False) as worker,
        grpc.insecure_channel(worker.address) as channel,
    ):
        worker.until(lambda state: not state.ready)
        control = ControlStub(channel)
        asked = pb.MeasureRequest(threads=1, passes=passes, prompts=["Why?"], tokens=8, seconds=9)
        found = control.Measure(asked)
        assert all(seconds > 0 for seconds in found.seconds)
        assert 0 < found.guesses <= 8
        arranged = dataclasses.replace(settings, threads=2, await_arrangement=False)
        control.Arrange(pb.ArrangeRequest(settings=arranged.to_json()))
        assert worker.until(lambda state: state.ready).threads == 2
        assert_speculated(answer(worker, COUNT))
        with pytest.raises(grpc.RpcError) as refused:
            control.Measure(asked)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
