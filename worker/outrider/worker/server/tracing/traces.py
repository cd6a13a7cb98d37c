"""Spans of one worker: a target's requests with their stages, a draft's sessions.

Knows times and figures from what the engine reports. Leaves sending to `export`; is called on the
server's loop only.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opentelemetry.context import Context
from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outrider.contract import traces as names
from outrider.worker.messages import Finish, Finished, SessionEnded, Submit, Timing, Usage
from outrider.worker.server.tracing.export import flush

SCOPE = "outrider"
FAILURES = (Finish.FAILED, Finish.EXPIRED, Finish.UNFORMED)
TRACEPARENT = "traceparent"
LINK = TraceContextTextMapPropagator()
"""Between workers it is always W3C's, whatever clients speak."""


@dataclass(frozen=True, slots=True)
class _OpenSpan:
    """A request on its way."""

    submit: Submit
    span: Span


@dataclass(slots=True)
class Traces:
    """All spans of one worker."""

    provider: TracerProvider
    model: str
    _tracer: Tracer = field(init=False)
    _open: dict[int, _OpenSpan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tracer = self.provider.get_tracer(SCOPE)

    def begin(self, submit: Submit, carrier: Mapping[str, Any]) -> Submit:
        """Begins the span of a request; `carrier` has the client's metadata or headers.

        The request that is returned carries the span to the draft, if it is sampled.
        """
        span = self._tracer.start_span(
            names.REQUEST,
            extract(carrier, Context()),
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
        """Ends the span of a request, and makes those of its stages."""
        request = self._open.pop(finished.request, None)
        if request is None:
            return
        span = request.span
        span.set_attributes(self._figures(request.submit, finished))
        if finished.finish in FAILURES:
            span.set_status(StatusCode.ERROR, finished.detail)
        parent = set_span_in_context(span, Context())
        arrived = request.submit.arrived
        for name, start, end in stages(finished.timing):
            stage = self._tracer.start_span(name, parent, start_time=nanoseconds(arrived + start))
            stage.end(nanoseconds(arrived + end))
        span.end(nanoseconds(arrived + finished.timing.total_seconds))

    def session_ended(self, ended: SessionEnded) -> None:
        """Makes the span of a draft's session that ends now."""
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
        """Ends what is open and sends it, if it can be sent soon; blocks meanwhile."""
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
            names.SPECULATED: usage.passes_with_nodes > 0,
            names.FINISH_REASONS: (finished.finish.value,),
        }


def stages(timing: Timing) -> list[tuple[str, float, float]]:
    """Name, start and end of each stage that a request reached, in seconds after its arrival."""
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
    """Unix time of a `time.monotonic()`."""
    return time.time_ns() - int((time.monotonic() - moment) * 1e9)
