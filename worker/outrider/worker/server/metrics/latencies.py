"""Histograms of a target: latencies and sizes of its requests.

Observes requests and events at the engine's handle, in the server process.
"""

import time
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Histogram

from outrider.contract import metrics as names
from outrider.contract.metrics import Metric
from outrider.worker.engine.open_answer import Event
from outrider.worker.messages import Finish, Finished, Submit, Tokens


@dataclass(slots=True)
class _OpenRequest:
    """Times of one open request."""

    arrived: float
    """`time.monotonic()`."""
    last: float | None = None
    """When the latest tokens came; None before the first."""


@dataclass(slots=True)
class Latencies:
    """The histograms of one target."""

    first_token: Histogram
    between: Histogram
    whole: Histogram
    queued: Histogram
    prompt: Histogram
    answer: Histogram
    _open: dict[int, _OpenRequest] = field(default_factory=dict)

    @classmethod
    def start(cls, registry: CollectorRegistry, common: tuple[str, ...]) -> "Latencies":
        """Add the histograms to `registry`, with the values of the common labels."""

        def made(metric: Metric) -> Histogram:
            return Histogram(
                metric.name,
                metric.help,
                labelnames=names.COMMON,
                buckets=metric.buckets,
                registry=registry,
            ).labels(*common)

        return cls(
            first_token=made(names.TIME_TO_FIRST_TOKEN),
            between=made(names.INTER_TOKEN_LATENCY),
            whole=made(names.E2E_REQUEST_LATENCY),
            queued=made(names.REQUEST_QUEUE_TIME),
            prompt=made(names.REQUEST_PROMPT_TOKENS),
            answer=made(names.REQUEST_GENERATION_TOKENS),
        )

    def submitted(self, request: Submit) -> None:
        """Observe a request that goes to the engine."""
        self._open[request.request] = _OpenRequest(request.arrived)

    def happened(self, event: Event) -> None:
        """Observe an event of a request."""
        match event:
            case Tokens(request=request, ids=ids):
                self._came(self._open[request], len(ids), time.monotonic())
            case Finished():
                self._finished(event, self._open.pop(event.request))

    def _came(self, request: _OpenRequest, count: int, now: float) -> None:
        if request.last is None:
            self.first_token.observe(now - request.arrived)
        else:
            each = (now - request.last) / count
            for _ in range(count):
                self.between.observe(each)
        request.last = now

    def _finished(self, finished: Finished, request: _OpenRequest) -> None:
        if request.last is not None:
            self.queued.observe(finished.timing.queued_seconds)
        if finished.finish in (Finish.STOP, Finish.LENGTH):
            self.whole.observe(time.monotonic() - request.arrived)
            self.prompt.observe(finished.usage.prompt_tokens)
            self.answer.observe(finished.usage.completion_tokens)
