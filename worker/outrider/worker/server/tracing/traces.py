"""Spans of one worker: a target's requests with their stages and segments, a draft's sessions.

Times and figures are those that the engine reports. Spans go in batches, on a thread, to an OTLP
collector over gRPC: one that is slow or gone costs spans, never a request. Called on the server's
loop only.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outrider.contract import traces as names
from outrider.contract.inference import Timing, Usage
from outrider.contract.settings import Role
from outrider.worker.messages import (
    Finish,
    Finished,
    SegmentTraced,
    SessionEnded,
    StageVisit,
    Submit,
)

SCOPE = "outrider"
SERVICES = {Role.TARGET: names.TARGET_SERVICE, Role.DRAFT: names.DRAFT_SERVICE}
FLUSH_SECONDS = 2.0
"""Longest wait of a worker that stops for its collector."""
FAILURES = (Finish.FAILED, Finish.EXPIRED, Finish.GRAMMAR_FAILED)
TRACEPARENT = "traceparent"
LINK = TraceContextTextMapPropagator()
"""Propagator between workers: always W3C's, whatever clients use."""


@dataclass(slots=True)
class _OpenSpan:
    """An open request and its span."""

    submit: Submit
    span: Span
    segments: int = 0
    """Segments that have spans."""


@dataclass(slots=True)
class Traces:
    """All spans of one worker."""

    provider: TracerProvider
    model: str
    _tracer: Tracer = field(init=False)
    _open: dict[int, _OpenSpan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tracer = self.provider.get_tracer(SCOPE)

    def begin(self, submit: Submit, metadata: Mapping[str, Any]) -> Submit:
        """Begin the span of a request; `metadata` has the client's metadata or headers.

        The request that is returned carries the span to the draft, if it is sampled.
        """
        span = self._tracer.start_span(
            names.REQUEST,
            extract(metadata, Context()),
            SpanKind.SERVER,
            start_time=nanoseconds(submit.arrived),
        )
        if not span.is_recording():
            return submit
        sent: dict[str, str] = {}
        LINK.inject(sent, set_span_in_context(span, Context()))
        self._open[submit.request] = _OpenSpan(submit, span)
        return replace(submit, traceparent=sent[TRACEPARENT])

    def finished(self, finished: Finished) -> None:
        """End the span of a request, and make those of its stages."""
        request = self._open.pop(finished.request, None)
        if request is None:
            return
        span = request.span
        span.set_attributes(self._figures(request.submit, finished))
        if request.segments:
            span.set_attribute(names.SEGMENTS_TRACED, request.segments)
        if finished.finish in FAILURES:
            span.set_status(StatusCode.ERROR, finished.detail)
        parent = set_span_in_context(span, Context())
        arrived = request.submit.arrived
        for name, start, end in stages(finished.timing):
            stage = self._tracer.start_span(name, parent, start_time=nanoseconds(arrived + start))
            stage.end(nanoseconds(arrived + end))
        span.end(nanoseconds(arrived + finished.timing.total_seconds))

    def segment_back(self, segment: SegmentTraced) -> None:
        """Make the span of a request's segment, and those of its stages, unless the request has
        ended meanwhile."""
        request = self._open.get(segment.request)
        if request is None:
            return
        request.segments += 1
        parent = set_span_in_context(request.span, Context())
        span = self._tracer.start_span(names.SEGMENT, parent, start_time=nanoseconds(segment.sent))
        span.set_attributes(
            {
                names.SEGMENT_NUMBER: segment.segment,
                names.FIRST_ROW: segment.first_row,
                names.ROWS: segment.rows,
                names.SEGMENT_ROWS: segment.segment_rows,
            }
        )
        for number, visit in enumerate(segment.visits):
            self._stage(set_span_in_context(span, Context()), number, visit)
        span.end(nanoseconds(segment.back))

    def _stage(self, parent: Context, number: int, visit: StageVisit) -> None:
        """Make the span of a segment's visit to one stage."""
        span = self._tracer.start_span(names.STAGE, parent, start_time=nanoseconds(visit.came))
        span.set_attributes(
            {
                names.STAGE_NUMBER: number,
                names.ROWS: visit.rows,
                names.QUEUE_SECONDS: visit.began - visit.came,
                names.COMPUTE_SECONDS: visit.ended - visit.began,
            }
        )
        span.end(nanoseconds(visit.ended))

    def session_ended(self, ended: SessionEnded) -> None:
        """Make the span of a draft's session that ends now."""
        span = self._tracer.start_span(
            names.DRAFT_SESSION,
            LINK.extract({TRACEPARENT: ended.traceparent}, Context()),
            SpanKind.SERVER,
            start_time=nanoseconds(ended.opened),
        )
        span.set_attributes(
            {
                names.MODEL: self.model,
                names.ROWS: ended.rows,
                names.PASSES: ended.passes,
                names.NODES: ended.nodes,
                names.COMMITTED_TOKENS: ended.tokens,
                names.CLOSE_REASON: ended.reason,
            }
        )
        span.end()

    def close(self) -> None:
        """End and send the open spans, as far as they can be sent soon; blocks meanwhile."""
        for request in self._open.values():
            request.span.set_status(StatusCode.ERROR, "the target stopped during this request")
            request.span.end()
        self._open.clear()
        flush(self.provider)

    def _figures(self, submit: Submit, finished: Finished) -> dict[str, Any]:
        usage: Usage = finished.usage
        return {
            names.MODEL: self.model,
            names.REQUEST_ID: submit.request,
            names.CHOICE: submit.sampling.choice,
            names.PRIORITY: submit.priority,
            names.PROMPT_TOKENS: len(submit.prompt),
            names.CACHED_TOKENS: usage.cached_prompt_tokens,
            names.COMPLETION_TOKENS: usage.completion_tokens,
            names.PASSES: usage.passes,
            names.DRAFT_ROWS: usage.draft_rows,
            names.ACCEPTED_ROWS: usage.accepted_rows,
            names.PLANNER_CHOICE: finished.planned,
            names.SPECULATED: usage.passes_with_nodes > 0,
            names.FINISH_REASONS: (finished.finish.value,),
        }


def stages(timing: Timing) -> list[tuple[str, float, float]]:
    """Return name, start and end of each stage that a request reached, in seconds from arrival."""
    end = timing.total_seconds
    if not timing.queued_seconds:
        return [(names.QUEUE, 0.0, end)]
    found = [(names.QUEUE, 0.0, timing.queued_seconds)]
    first = timing.first_token_seconds
    found.append((names.PREFILL, timing.queued_seconds, first or end))
    if first:
        found.append((names.DECODE, first, first + timing.decode_seconds))
    return found


def nanoseconds(moment: float) -> int:
    """Return the Unix time of a `time.monotonic()`, in nanoseconds."""
    return time.time_ns() - int((time.monotonic() - moment) * 1e9)


def tracer_provider(role: Role, instance: str) -> TracerProvider:
    """Return a provider of its own, not the process's global one; raise `ValueError`."""
    own = {"service.name": SERVICES[role], "service.instance.id": instance}
    resource = Resource.create(own).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def flush(provider: TracerProvider) -> None:
    """Send what has not been sent, within `FLUSH_SECONDS`; the rest is lost."""
    last = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
    last.start()
    last.join(FLUSH_SECONDS)
