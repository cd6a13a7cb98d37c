"""Spans of requests and sessions, and workers that make none."""

import subprocess
import sys

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from outrider.contract import traces as names
from outrider.contract.inference import Timing, Usage
from outrider.contract.settings import Role
from outrider.contract.version import missing_extra
from outrider.worker.messages import (
    Finish,
    Finished,
    SegmentTraced,
    SessionEnded,
    StageVisit,
    Submit,
)
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.server.tracing.environment import asks_for_traces, start_traces
from outrider.worker.server.tracing.traces import Traces, stages, tracer_provider

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}
TIMING = Timing(queued_seconds=0.5, first_token_seconds=2.0, total_seconds=7.5, decode_seconds=5.0)
SUBMIT = Submit(7, np.arange(3, dtype=np.int32), SamplingParams(), 10, (), True, arrived=100.0)
CLIENT = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
UNTRACED = """
import sys
import outrider.worker.server.serve, outrider.worker.launch.run
from outrider.contract.settings import Role
from outrider.worker.server.tracing.environment import start_traces
assert start_traces({}, Role.TARGET, "tiny", "1") is None
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(exporter: InMemorySpanExporter) -> Traces:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return Traces(made, "tiny")


def ended(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) * 1e-9


def test_a_request_lasts_as_long_as_its_timing_says(
    traces: Traces, exporter: InMemorySpanExporter
) -> None:
    submit = traces.begin(SUBMIT, CLIENT)
    traces.finished(Finished(7, Finish.STOP, Usage(), TIMING))
    spans = ended(exporter)
    assert {name: round(seconds(span), 3) for name, span in spans.items()} == {
        names.REQUEST: 7.5,
        names.QUEUE: 0.5,
        names.PREFILL: 1.5,
        names.DECODE: 5.0,
    }
    request = spans[names.REQUEST]
    assert request.status.status_code is StatusCode.UNSET
    assert request.parent is not None
    assert request.parent.span_id == int("b" * 16, 16)
    assert submit.traceparent == f"00-{'a' * 32}-{request.context.span_id:016x}-01"


@pytest.mark.parametrize("finish", [Finish.FAILED, Finish.EXPIRED, Finish.GRAMMAR_FAILED])
def test_a_failed_request_says_why(
    traces: Traces, exporter: InMemorySpanExporter, finish: Finish
) -> None:
    traces.begin(SUBMIT, {})
    traces.finished(Finished(7, finish, Usage(), Timing(total_seconds=1.0), "no room"))
    status = ended(exporter)[names.REQUEST].status
    assert (status.status_code, status.description) == (StatusCode.ERROR, "no room")


def test_a_request_that_never_started_was_in_the_queue_only() -> None:
    assert stages(Timing(total_seconds=3.0)) == [(names.QUEUE, 0.0, 3.0)]


def test_a_request_without_tokens_has_no_decode() -> None:
    assert stages(Timing(queued_seconds=1.0, total_seconds=3.0)) == [
        (names.QUEUE, 0.0, 1.0),
        (names.PREFILL, 1.0, 3.0),
    ]


def test_a_request_that_is_open_at_the_end_fails(
    traces: Traces, exporter: InMemorySpanExporter
) -> None:
    traces.begin(SUBMIT, {})
    traces.close()
    assert ended(exporter)[names.REQUEST].status.status_code is StatusCode.ERROR


SEGMENT = SegmentTraced(
    request=7,
    segment=12,
    first_row=40,
    rows=3,
    segment_rows=5,
    sent=101.0,
    back=104.0,
    visits=(StageVisit(5, 101.25, 101.5, 102.0), StageVisit(4, 102.5, 102.5, 103.5)),
)


def test_a_segment_is_a_span_with_one_for_each_stage(
    traces: Traces, exporter: InMemorySpanExporter
) -> None:
    traces.begin(SUBMIT, CLIENT)
    traces.segment_back(SEGMENT)
    traces.finished(Finished(7, Finish.STOP, Usage(), TIMING))
    first, second, segment, *_ = exporter.get_finished_spans()
    request = ended(exporter)[names.REQUEST]
    assert segment.parent is not None
    assert segment.parent.span_id == request.context.span_id
    assert round(seconds(segment), 3) == 3.0
    assert dict(segment.attributes or {}) == {
        names.SEGMENT_NUMBER: 12,
        names.FIRST_ROW: 40,
        names.ROWS: 3,
        names.SEGMENT_ROWS: 5,
    }
    for number, (stage, length) in enumerate([(first, 0.75), (second, 1.0)]):
        assert stage.name == names.STAGE
        assert stage.parent is not None
        assert stage.parent.span_id == segment.context.span_id
        assert stage.attributes is not None
        assert stage.attributes[names.STAGE_NUMBER] == number
        assert round(seconds(stage), 3) == length
    assert first.attributes is not None
    assert first.attributes[names.QUEUE_SECONDS] == 0.25
    assert first.attributes[names.COMPUTE_SECONDS] == 0.5
    assert (request.attributes or {})[names.SEGMENTS_TRACED] == 1


def test_a_segment_of_a_request_that_has_ended_is_no_span(
    traces: Traces, exporter: InMemorySpanExporter
) -> None:
    traces.segment_back(SEGMENT)
    assert exporter.get_finished_spans() == ()


def test_what_the_client_does_not_sample_reaches_no_draft(traces: Traces) -> None:
    quiet = {"traceparent": CLIENT["traceparent"][:-1] + "0"}
    assert traces.begin(SUBMIT, quiet) is SUBMIT
    traces.finished(Finished(7, Finish.STOP, Usage(), TIMING))


@pytest.mark.parametrize("traceparent", ["nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_targets_nonsense_makes_a_trace_of_its_own(
    traces: Traces, exporter: InMemorySpanExporter, traceparent: str
) -> None:
    traces.session_ended(SessionEnded(traceparent, 1.0, 2, 3, 4, 5, "finished"))
    assert ended(exporter)[names.DRAFT_SESSION].parent is None


@pytest.mark.parametrize(
    ("more", "asks"),
    [
        ({}, True),
        ({"OTEL_SDK_DISABLED": "false"}, True),
        ({"OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_the_standard_variables_decide(more: dict[str, str], asks: bool) -> None:
    assert asks_for_traces(ENDPOINT | more) is asks
    assert not asks_for_traces(more)


def test_a_protocol_that_is_not_spoken_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    environment = ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    assert start_traces(environment, Role.TARGET, "tiny", "1") is None
    assert "'http/protobuf' is not spoken; allowed: 'grpc'" in caplog.text


def test_traces_without_the_package_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "outrider.worker.server.tracing.traces")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    assert start_traces(ENDPOINT, Role.TARGET, "tiny", "1") is None
    assert missing_extra("tracing") in caplog.text


def test_an_untraced_worker_imports_nothing_of_opentelemetry() -> None:
    command = [sys.executable, "-P", "-c", UNTRACED]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("variable", "value", "service"),
    [
        ("OTEL_BSP_SCHEDULE_DELAY", "5000", names.DRAFT_SERVICE),
        ("OTEL_SERVICE_NAME", "mine", "mine"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=ours", "ours"),
    ],
)
def test_the_environment_may_name_the_service(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, service: str
) -> None:
    monkeypatch.setenv(variable, value)
    made = tracer_provider(Role.DRAFT, "1")
    assert made.resource.attributes["service.name"] == service
    made.shutdown()
