"""One trace of a request through real processes, from the client's span to the draft's session."""

import contextlib
import secrets
from collections.abc import Callable, Iterator

import grpc
import httpx
import pytest

from outrider.contract import traces as names
from outrider.contract.settings import Dtype, ModelSettings, PipelineSettings, Role
from outrider.protos.v1 import inference_pb2 as pb
from outrider.protos.v1 import inference_pb2_grpc
from outrider.worker.pipeline.scheduler import MAX_TRACED_SEGMENTS
from tests.ports import free_port
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.trace_sink import Collector, Seen, sink
from tests.process.workers import PROMPT, Worker, answer, pair_with

COUNT = 300
SILENCE_MS = 60_000
"""No stage is to be given up: machines may be busy."""
CLOCKS_APART = 1_000_000_000
"""Nanoseconds: a time is made of two clocks, and a process may lose its processor in between."""
STAGES = {names.QUEUE, names.PREFILL, names.DECODE}
WHOLE = {names.REQUEST, names.DRAFT_SESSION, *STAGES}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with sink() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield collector


@pytest.fixture(scope="module")
def traced(collector: Collector, folders: Folders) -> Iterator[Worker]:
    """A target that traces, with a draft that does."""
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(workers.started(folders.settings(role), folders.logs))
            for role in (Role.TARGET, Role.DRAFT)
        ]
        pair_with(both[0], both[1].address)
        yield both[0]


def ask_over_http(worker: Worker, traceparent: str) -> dict[str, int]:
    """Usage of one answer."""
    body = {"prompt": PROMPT, "max_tokens": COUNT, "temperature": 0, "ignore_eos": True}
    answered = httpx.post(
        f"{worker.url}/v1/completions",
        json={**body, "priority": 3},
        headers={"traceparent": traceparent},
        timeout=120,
        trust_env=False,
    )
    assert answered.status_code == 200, answered.text
    figures = answered.json()["outrider"]["choices"][0]
    return {name: int(figures[name]) for name in ("passes", "draft_rows", "accepted_rows")}


def ask_over_grpc(worker: Worker, traceparent: str) -> dict[str, int]:
    """Usage of one answer."""
    with grpc.insecure_channel(worker.address) as channel:
        request = pb.GenerateRequest(text=PROMPT, max_tokens=COUNT, ignore_end=True, priority=3)
        stub = inference_pb2_grpc.InferenceStub(channel)
        metadata = (("traceparent", traceparent),)
        last = list(stub.Generate(request, timeout=120, metadata=metadata))[-1]
    usage = last.usage
    return {name: getattr(usage, name) for name in ("passes", "draft_rows", "accepted_rows")}


def assert_inside(inner: Seen, outer: Seen) -> None:
    """A child, within its parent's time."""
    assert inner.span.parent_span_id == outer.span.span_id
    assert outer.span.start_time_unix_nano <= inner.span.start_time_unix_nano + CLOCKS_APART
    assert inner.span.start_time_unix_nano <= inner.span.end_time_unix_nano


@pytest.mark.parametrize("ask", [ask_over_http, ask_over_grpc])
def test_one_trace_has_the_clients_request_its_stages_and_the_drafts_session(
    traced: Worker, collector: Collector, ask: Callable[[Worker, str], dict[str, int]]
) -> None:
    trace, parent = secrets.token_bytes(16), secrets.token_bytes(8)
    usage = ask(traced, f"00-{trace.hex()}-{parent.hex()}-01")
    spans = collector.until(trace, lambda spans: set(spans) == WHOLE)
    request, session = spans[names.REQUEST], spans[names.DRAFT_SESSION]
    assert request.span.parent_span_id == parent
    for name in (*STAGES, names.DRAFT_SESSION):
        assert_inside(spans[name], request)
    assert (request.service, session.service) == (names.TARGET_SERVICE, names.DRAFT_SERVICE)
    seen = request.attributes
    assert seen[names.MODEL] == "tiny"
    assert seen[names.COMPLETION_TOKENS] == COUNT
    assert seen[names.FINISH_REASONS] == ["length"]
    assert seen[names.PRIORITY] == 3
    assert seen[names.SPECULATED] is (usage["draft_rows"] > 0)
    assert {name: seen[f"outrider.{name}"] for name in usage} == usage
    drafted = session.attributes
    assert drafted[names.CLOSE_REASON] == "finished"
    assert drafted[names.ROWS] >= drafted[names.PASSES] > 0
    assert drafted[names.NODES] > 0
    assert 0 < drafted[names.COMMITTED_TOKENS] <= COUNT


def test_a_pipelined_targets_segments_are_spans_of_their_requests(
    collector: Collector, folders: Folders
) -> None:
    pipeline = PipelineSettings(stages=2, cut=(1, 49), silence_ms=SILENCE_MS)
    settings = folders.settings(Role.TARGET, pipeline=pipeline)
    trace = secrets.token_bytes(16)
    with workers.started(settings, folders.logs) as worker:
        ask_over_grpc(worker, f"00-{trace.hex()}-{'1' * 16}-01")
        collector.until(trace, lambda spans: names.REQUEST in spans)
    every = collector.all(trace)
    (request,) = [one for one in every if one.span.name == names.REQUEST]
    segments = {one.span.span_id: one for one in every if one.span.name == names.SEGMENT}
    assert len(segments) == MAX_TRACED_SEGMENTS == request.attributes[names.SEGMENTS_TRACED]
    stages = [one for one in every if one.span.name == names.STAGE]
    assert len(stages) == 2 * len(segments)
    for segment in segments.values():
        assert_inside(segment, request)
        assert segment.attributes[names.ROWS] >= 1
    for stage in stages:
        assert_inside(stage, segments[stage.span.parent_span_id])
        assert stage.attributes[names.COMPUTE_SECONDS] > 0
        assert stage.attributes[names.QUEUE_SECONDS] >= 0
    numbers = [one.attributes[names.FIRST_ROW] for one in segments.values()]
    assert len(set(numbers)) == len(numbers)


def test_a_client_that_does_not_sample_gets_no_spans(traced: Worker, collector: Collector) -> None:
    quiet, loud = secrets.token_bytes(16), secrets.token_bytes(16)
    ask_over_http(traced, f"00-{quiet.hex()}-{'1' * 16}-00")
    ask_over_http(traced, f"00-{loud.hex()}-{'1' * 16}-01")
    collector.until(loud, lambda spans: set(spans) == WHOLE)
    assert collector.trace(quiet) == {}


def test_a_colocated_drafts_session_is_in_the_trace_too(
    collector: Collector, folders: Folders
) -> None:
    draft = ModelSettings(uri=f"file://{folders.draft}", dtype=Dtype.FP32)
    settings = folders.settings(Role.TARGET, colocated=draft)
    trace = secrets.token_bytes(16)
    with workers.started(settings, folders.logs) as worker:
        pair_with(worker)
        ask_over_http(worker, f"00-{trace.hex()}-{'1' * 16}-01")
        spans = collector.until(trace, lambda spans: set(spans) == WHOLE)
    assert {one.service for one in spans.values()} == {names.TARGET_SERVICE}


def test_a_dead_collector_costs_neither_a_request_nor_an_orderly_end(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with workers.started(folders.settings(Role.TARGET), folders.logs) as worker:
        for _ in range(2):
            assert len(answer(worker, 50).tokens) == 50
    assert worker.process.returncode == 0
    assert "traces go to" in worker.log.read_text()
