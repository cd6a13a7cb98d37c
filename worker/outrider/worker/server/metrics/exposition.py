"""`/metrics` of a worker: one registry, as Prometheus or OpenMetrics text.

Leaves the HTTP server to `outrider.worker.api.http`.
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
from starlette.types import ASGIApp

from outrider.contract import metrics as names
from outrider.contract.metrics import Metric
from outrider.contract.settings import Role
from outrider.contract.state import State
from outrider.worker.api.http.middleware import StartMiddleware
from outrider.worker.server.metrics.collector import Families, family, of_state


@dataclass(slots=True)
class Exposition:
    """The metrics of one worker."""

    role: Role
    model: str
    metrics: tuple[Metric, ...] | None = None
    """Metrics that follow from the state; None: those of the role."""
    registry: CollectorRegistry = field(default_factory=lambda: CollectorRegistry(False))

    def __post_init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]

    @property
    def common(self) -> tuple[str, ...]:
        """Values of the labels that every metric has."""
        return (self.model, names.ENGINE, self.role)

    def show(self, state: Callable[[], State]) -> None:
        """Add the metrics that follow from the worker's state at each scrape."""
        shown = names.of_role(self.role) if self.metrics is None else self.metrics
        self.registry.register(of_state(shown, state))

    def count(self, metric: Metric, counts: "Counter[str]") -> None:
        """Add a counter with one label, whose values are in `counts`."""

        def families() -> Iterator[Family]:
            yield family(metric, self.common, [((value,), n) for value, n in counts.items()])

        self.registry.register(Families(families))

    def counting(self, app: ASGIApp) -> ASGIApp:
        """Return an application whose responses are counted by status."""
        statuses: Counter[str] = Counter()
        self.count(names.HTTP_REQUESTS, statuses)
        return StartMiddleware(app, lambda start: statuses.update((str(start["status"]),)))

    def route(self) -> Route:
        """Return the route `/metrics`, which answers in the text of the Accept header."""

        async def metrics(request: Request) -> Response:
            encode, kind = choose_encoder(request.headers.get("accept", ""))
            shown = WithVllmNames(self.registry) if self.role is Role.TARGET else self.registry
            return Response(encode(shown), media_type=None, headers={"Content-Type": kind})

        return Route("/metrics", metrics)


class WithVllmNames(Collector):
    """A target's metrics, and those that vLLM has too by its names, with its labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        """Return all of them, as they are now."""
        known = {metric.name.removesuffix("_total"): own for metric, own in names.VLLM.items()}
        for found in self._registry.collect():
            yield found
            for name in known.get(found.name, ()):
                yield _renamed(found, name.removesuffix("_total"))


def _renamed(found: Family, name: str) -> Family:
    """Return a metric by another name, without the label that vLLM has not."""
    made = Family(name, found.documentation, found.type)
    for sample in found.samples:
        labels = {key: value for key, value in sample.labels.items() if key != "role"}
        suffix = sample.name.removeprefix(found.name)
        made.samples.append(sample._replace(name=name + suffix, labels=labels))
    return made
