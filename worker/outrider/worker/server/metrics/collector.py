"""Counters and gauges of a worker, read from its state at each scrape; nothing is kept twice.

Leaves what has to be seen when it happens to `latencies`, `refusals` and `answers`, and names to
`outrider.contract.metrics`.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from outrider.contract import metrics as names
from outrider.contract.metrics import Metric, MetricKind
from outrider.contract.settings import Role
from outrider.protos.v1 import control_pb2 as pb

Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float]]
"""Values of one metric by its own labels."""


class StateCollector(Collector):
    """Metrics that are a field of the worker's state, or follow from it."""

    def __init__(self, role: Role, state: Callable[[], pb.State]) -> None:
        self._role = role
        self._state = state

    def describe(self) -> Iterable[Family]:
        """Nothing: a registry need not scrape to know that names are unique."""
        return ()

    def collect(self) -> Iterator[Family]:
        """All of them, as they are now."""
        state = self._state()
        common = (state.model, names.ENGINE, state.role)
        sources = SHARED | (TARGET if self._role is Role.TARGET else DRAFT)
        for metric, values in sources.items():
            yield family(metric, common, values(state))


def family(metric: Metric, common: Labels, values: Values) -> Family:
    """One metric as the library shows it; its own labels follow the common ones."""
    labels = (*names.COMMON, *metric.labels)
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    made = kind(metric.name, metric.help, labels=labels)
    for own, value in values:
        made.add_metric((*common, *own), value)
    return made


def one(value: Callable[[pb.State], float]) -> Callable[[pb.State], Values]:
    """A metric without labels of its own."""
    return lambda state: [((), value(state))]


def counter(name: str) -> Callable[[pb.State], Values]:
    """One of the state's counters."""
    return one(lambda state: getattr(state.counters, name))


def _build(state: pb.State) -> Values:
    return [((version("outrider"), state.revision, state.dtype), 1)]


def _usage(state: pb.State) -> float:
    slots = state.counters.kv_slots
    return state.counters.kv_slots_used / slots if slots else 0.0


def _successes(state: pb.State) -> Values:
    done = state.counters
    stopped = done.requests_finished - done.requests_at_length - done.requests_failed
    return [(("stop",), stopped), (("length",), done.requests_at_length)]


def _failures(state: pb.State) -> Values:
    done = state.counters
    yield ("cancelled",), done.requests_cancelled - done.requests_expired
    yield ("expired",), done.requests_expired
    yield ("error",), done.requests_failed


def _accepted(state: pb.State) -> Values:
    deepest = state.policy.depth
    by_depth = names.accepted_by_depth(state.counters.passes_by_accepted)
    for position, count in enumerate(by_depth):
        if position < deepest or count:
            yield (str(position),), count


def _drafting(state: pb.State) -> Values:
    return [((name,), name == state.drafting) for name in names.DRAFTING_STATES]


def _links(state: pb.State) -> Values:
    for link in state.links:
        now = pb.LinkState.Name(link.state).removeprefix("LINK_STATE_").lower()
        for name in names.LINK_STATES:
            yield (link.address, name), name == now


SHARED: dict[Metric, Callable[[pb.State], Values]] = {
    names.BUILD_INFO: _build,
    names.READY: one(lambda state: state.ready),
    names.PREFIX_CACHE_QUERIES: counter("prompt_tokens"),
    names.PREFIX_CACHE_HITS: counter("cached_prompt_tokens"),
    names.KV_CACHE_USAGE: one(_usage),
    names.KV_CACHE_SLOTS: counter("kv_slots"),
    names.KV_CACHE_USED_SLOTS: counter("kv_slots_used"),
}
TARGET: dict[Metric, Callable[[pb.State], Values]] = {
    names.NUM_REQUESTS_WAITING: one(lambda state: state.waiting),
    names.NUM_REQUESTS_RUNNING: one(lambda state: state.running),
    names.REQUEST_SUCCESS: _successes,
    names.REQUEST_FAILURES: _failures,
    names.NUM_PREEMPTIONS: counter("preemptions"),
    names.PROMPT_TOKENS: counter("prompt_tokens"),
    names.GENERATION_TOKENS: counter("generation_tokens"),
    names.NUM_DRAFTS: counter("drafted_passes"),
    names.NUM_DRAFT_TOKENS: counter("draft_rows"),
    names.NUM_ACCEPTED_TOKENS: counter("accepted_rows"),
    names.NUM_ACCEPTED_TOKENS_PER_POS: _accepted,
    names.NUM_FIRST_GUESSES: counter("first_guesses"),
    names.NUM_FIRST_HITS: counter("first_hits"),
    names.VERIFY_PASSES: counter("passes"),
    names.VERIFIED_TOKENS: counter("tokens"),
    names.STEPS: counter("steps"),
    names.STEP_ROWS: counter("step_rows"),
    names.LAST_ROWS: one(lambda state: state.last_rows),
    names.SPECULATION_TOKENS: one(lambda state: state.last_node_rows),
    names.GAIN_PLAIN_SECONDS: counter("plain_seconds"),
    names.GAIN_SPENT_SECONDS: counter("spent_seconds"),
    names.DRAFT_WAIT_SECONDS: counter("draft_wait_seconds"),
    names.WAIT_GAIN_PREDICTED: counter("wait_gain_predicted"),
    names.WAIT_GAIN_REALISED: counter("wait_gain_realised"),
    names.GROWTH_DROPPED: lambda state: [(("stale",), state.counters.growth_dropped)],
    names.DRAFTING_SECONDS: counter("drafting_seconds"),
    names.DRAFTING_STATE: _drafting,
    names.LINK_STATE: _links,
}
DRAFT: dict[Metric, Callable[[pb.State], Values]] = {
    names.DRAFT_SESSIONS: one(lambda state: state.running),
    names.DRAFT_SESSIONS_CLOSED: counter("requests_finished"),
    names.DRAFT_PASSES: counter("passes"),
    names.DRAFT_ROWS: counter("draft_rows"),
    names.DRAFT_TOKENS: counter("tokens"),
}
