"""What `/metrics` shows: one registry of a worker, as Prometheus or OpenMetrics text.

Leaves the HTTP server to `outrider.worker.http`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from outrider.contract import metrics as names
from outrider.contract.metrics import Metric
from outrider.contract.settings import Role
from outrider.protos.v1 import control_pb2 as pb
from outrider.worker.engine.handle import EngineHandle
from outrider.worker.server.metrics.collector import StateCollector, family
from outrider.worker.server.metrics.latencies import Latencies


@dataclass(slots=True)
class Exposition:
    """The metrics of one worker."""

    role: Role
    model: str
    state: Callable[[], pb.State]
    registry: CollectorRegistry = field(default_factory=lambda: CollectorRegistry(False))

    def __post_init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry.register(StateCollector(self.role, self.state))

    @property
    def common(self) -> tuple[str, ...]:
        """Values of the labels that every metric has."""
        return (self.model, names.ENGINE, self.role)

    def watch(self, engine: EngineHandle) -> None:
        """Makes histograms of what happens to the requests of a target's engine."""
        latencies = Latencies.start(self.registry, self.common)
        engine.on_submit, engine.on_event = latencies.submitted, latencies.happened

    def count(self, metric: Metric, counts: "Counter[str]") -> None:
        """Shows a counter with one label, whose values are kept in `counts`."""
        self.registry.register(_Counts(metric, self.common, counts))

    def route(self) -> Route:
        """`/metrics`, in the text that the Accept header asks for."""

        async def metrics(request: Request) -> Response:
            encode, kind = choose_encoder(request.headers.get("accept", ""))
            return Response(encode(self.registry), media_type=None, headers={"Content-Type": kind})

        return Route("/metrics", metrics)


class _Counts(Collector):
    def __init__(self, metric: Metric, common: tuple[str, ...], counts: "Counter[str]") -> None:
        self._metric, self._common, self._counts = metric, common, counts

    def describe(self) -> list[Family]:
        """Nothing, as `StateCollector` does."""
        return []

    def collect(self) -> Iterator[Family]:
        """The counts as they are now."""
        yield family(
            self._metric, self._common, [((value,), n) for value, n in self._counts.items()]
        )
