"""Counters and gauges of a worker, read from its state at each scrape; nothing is kept twice.

A metric that shows a counter names it in `outrider.contract.metrics`; this file computes the
others. Leaves histograms of requests to `latencies`, rejections and HTTP statuses to `exposition`.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from outrider.contract import metrics as names
from outrider.contract.counters import CHOICES, Counters, DraftMemoryState
from outrider.contract.metrics import Metric, MetricKind
from outrider.contract.sources import SOURCES
from outrider.contract.version import version
from outrider.worker.messages import (
    MemoryReport,
    SegmentTotals,
    StageGroupState,
    StageStatus,
    StageTotals,
)
from outrider.worker.server.control import WorkerState

Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float]]
"""Values of one metric by its own labels."""


class StateCollector(Collector):
    """Metrics that are a field of the worker's state, or follow from it."""

    def __init__(self, metrics: Iterable[Metric], state: Callable[[], WorkerState]) -> None:
        """Show those of `metrics` that the state has."""
        self._state = state
        sources = {metric: values_of(metric) for metric in metrics}
        self._sources = {metric: values for metric, values in sources.items() if values}
        self._histograms = {m: HISTOGRAMS[m] for m in sources if m in HISTOGRAMS}

    def describe(self) -> Iterable[Family]:
        """Return nothing: a registry need not scrape to know that names are unique."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield all of them, as they are now."""
        state = self._state()
        common = (state.model, names.ENGINE, state.role)
        for metric, values in self._sources.items():
            yield family(metric, common, values(state))
        for metric, read in self._histograms.items():
            yield histogram(metric, common, *read(state.counters))


def family(metric: Metric, common: Labels, values: Values) -> Family:
    """Return one metric as the library shows it; its own labels follow the common ones."""
    labels = (*names.COMMON, *metric.labels)
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    made = kind(metric.name, metric.help, labels=labels)
    for own, value in values:
        made.add_metric((*common, *own), value)
    return made


def histogram(metric: Metric, common: Labels, counts: Sequence[int], total: float) -> Family:
    """Return a histogram as the library shows it: `counts` by bucket, none where nothing was
    counted; `total` is the sum of values."""
    made = HistogramMetricFamily(metric.name, metric.help, labels=names.COMMON)
    bounds = list(map(floatToGoString, (*metric.buckets, math.inf)))
    sums = itertools.accumulate(counts or (0,) * len(bounds))
    made.add_metric(common, list(zip(bounds, sums, strict=True)), total)
    return made


def one(value: Callable[[WorkerState], float]) -> Callable[[WorkerState], Values]:
    """Return the reader of a metric without labels of its own."""
    return lambda state: [((), value(state))]


def counter(name: str) -> Callable[[WorkerState], Values]:
    """Return the reader of one of the state's counters."""
    return one(lambda state: getattr(state.counters, name))


def of_stage(value: Callable[[StageStatus], float]) -> Callable[[WorkerState], Values]:
    """Return the reader of a stage's metric, whose label is the stage's number."""
    return lambda state: [((str(s.index),), value(s))] if (s := state.stage) else []


def of_group(value: Callable[[StageGroupState], float]) -> Callable[[WorkerState], Values]:
    """Return the reader of a metric of a pipelined target's stages as one."""
    return lambda state: [((), value(group))] if (group := state.stages) else []


def of_segments(value: Callable[[SegmentTotals], float]) -> Callable[[WorkerState], Values]:
    """Return the reader of a metric of a pipelined target's segments."""
    return lambda state: [((), value(totals))] if (totals := state.report.segments) else []


def of_stages(value: Callable[[StageTotals], float]) -> Callable[[WorkerState], Values]:
    """Return the reader of a metric of a pipelined target's stages, by their numbers."""
    return lambda state: [((str(at),), value(one)) for at, one in enumerate(state.report.stages)]


def _build(state: WorkerState) -> Values:
    return [((version(), state.revision, state.dtype), 1)]


def _usage(state: WorkerState) -> float:
    slots = state.counters.kv_slots
    return state.counters.kv_slots_used / slots if slots else 0.0


def _successes(state: WorkerState) -> Values:
    done = state.counters
    stopped = done.requests_finished - done.requests_at_length - done.requests_failed
    return [(("stop",), stopped), (("length",), done.requests_at_length)]


def _failures(state: WorkerState) -> Values:
    done = state.counters
    yield ("cancelled",), done.requests_cancelled - done.requests_expired
    yield ("expired",), done.requests_expired
    yield ("error",), done.requests_failed


def _accepted(state: WorkerState) -> Values:
    for position, count in enumerate(state.counters.accepted_by_depth):
        if position < state.policy.depth or count:
            yield (str(position),), count


def _drafting(state: WorkerState) -> Values:
    return [((name,), name == state.report.drafting) for name in names.DRAFTING_STATES]


def of_memory(value: Callable[[MemoryReport], float]) -> Callable[[WorkerState], Values]:
    """Return the reader of a metric of memory that a target and its draft share."""
    return lambda state: [((), value(m))] if (m := state.report.memory) else []


def _draft_memory(state: WorkerState) -> Values:
    if (memory := state.report.memory) is None:
        return []
    return [((at.value,), at is memory.draft) for at in DraftMemoryState]


def _memory_bytes(state: WorkerState) -> Values:
    if (memory := state.report.memory) is None:
        return []
    in_use = memory.target_kv_bytes, memory.draft_kv_bytes, memory.draft_weight_bytes
    return [((use,), size) for use, size in zip(names.MEMORY_USES, in_use, strict=True)]


def _planner_steps(state: WorkerState) -> Values:
    counts = state.counters.planner_steps or (0,) * len(CHOICES)
    return [((choice.value,), count) for choice, count in zip(CHOICES, counts, strict=True)]


def _row_fates(state: WorkerState) -> Values:
    totals = state.report.segments
    if totals is None:
        return []
    return [((fate,), getattr(totals, f"{fate}_rows")) for fate in names.ROW_FATES]


def _by_source(state: WorkerState, counts: tuple[int, ...]) -> Values:
    """One value a source, where it is in use or was."""
    for kind, count in zip(SOURCES, counts, strict=False):
        if kind in state.policy.sources or count:
            yield (kind.value,), count


def _links(state: WorkerState) -> Values:
    for link in state.links:
        for name in names.LINK_STATES:
            yield (link.address, name), name == link.state.value


def _transports(state: WorkerState) -> Values:
    for link in state.links:
        for name in names.LINK_TRANSPORTS:
            yield (link.address, name), name == link.transport


COMPUTED: dict[Metric, Callable[[WorkerState], Values]] = {
    names.BUILD_INFO: _build,
    names.READY: one(lambda state: state.ready),
    names.KV_CACHE_USAGE: one(_usage),
    names.NUM_REQUESTS_WAITING: one(lambda state: state.report.waiting),
    names.NUM_REQUESTS_RUNNING: one(lambda state: state.report.running),
    names.REQUEST_SUCCESS: _successes,
    names.REQUEST_FAILURES: _failures,
    names.NUM_ACCEPTED_TOKENS_PER_POS: _accepted,
    names.LAST_ROWS: one(lambda state: state.report.last_rows),
    names.SPECULATION_TOKENS: one(lambda state: state.report.last_node_rows),
    names.GROWTH_DROPPED: lambda state: [(("stale",), state.counters.growth_dropped)],
    names.DRAFTING_STATE: _drafting,
    names.PLANNER_STEPS: _planner_steps,
    names.NUM_SOURCE_TOKENS: lambda state: _by_source(state, state.counters.source_rows),
    names.NUM_SOURCE_ACCEPTED_TOKENS: lambda state: _by_source(
        state, state.counters.source_accepted
    ),
    names.DRAFT_LAG: one(lambda state: state.report.draft_lag),
    names.DRAFT_MEMORY_STATE: _draft_memory,
    names.MEMORY_BYTES: _memory_bytes,
    names.KV_EXPANSIONS: of_memory(lambda memory: memory.expansions),
    names.KV_CONTRACTIONS: of_memory(lambda memory: memory.contractions),
    names.KV_MOVED_BLOCKS: of_memory(lambda memory: memory.moved_blocks),
    names.LINK_STATE: _links,
    names.LINK_TRANSPORT: _transports,
    names.PIPELINE_UP: of_group(lambda group: group.up),
    names.PIPELINE_LOSSES: of_group(lambda group: group.losses),
    names.PIPELINE_SEGMENTS_IN_FLIGHT: of_segments(lambda totals: totals.segments_in_flight),
    names.PIPELINE_ROWS_IN_FLIGHT: of_segments(lambda totals: totals.rows_in_flight),
    names.PIPELINE_SEGMENTS: of_segments(lambda totals: totals.segments),
    names.PIPELINE_SEGMENT_SECONDS: of_segments(lambda totals: totals.segment_seconds),
    names.PIPELINE_ROWS: _row_fates,
    names.PIPELINE_STAGE_SEGMENTS: of_stages(lambda stage: stage.segments),
    names.PIPELINE_STAGE_ROWS: of_stages(lambda stage: stage.rows),
    names.PIPELINE_STAGE_BUSY_SECONDS: of_stages(lambda stage: stage.busy_seconds),
    names.PIPELINE_STAGE_QUEUE_SECONDS: of_stages(lambda stage: stage.queue_seconds),
    names.PIPELINE_STAGE_ROW_SECONDS: of_stages(lambda stage: stage.row_seconds),
    names.PIPELINE_STAGE_LINK_SECONDS: of_stages(lambda stage: stage.link_seconds),
    names.DRAFT_SESSIONS: one(lambda state: state.report.running),
    names.STAGE_UP: of_stage(lambda stage: stage.in_group),
    names.STAGE_GROUPS: of_stage(lambda stage: stage.groups),
    names.STAGE_BUSY_SECONDS: of_stage(lambda stage: stage.busy_seconds),
    names.STAGE_SEGMENTS: of_stage(lambda stage: stage.segments),
    names.STAGE_ROWS: of_stage(lambda stage: stage.rows),
    names.STAGE_ROWS_WAITING: of_stage(lambda stage: stage.rows_waiting),
    names.STAGE_RECEIVED_BYTES: of_stage(lambda stage: stage.received_bytes),
    names.STAGE_SENT_BYTES: of_stage(lambda stage: stage.sent_bytes),
}
"""Metrics that are not one counter as it is."""
HISTOGRAMS: dict[Metric, Callable[[Counters], tuple[Sequence[int], float]]] = {
    names.GROWTH_LATENCY: lambda c: (c.growth_latencies, c.growth_latency_seconds),
}
"""Histograms that the engine keeps: values by bucket, and their sum."""


def values_of(metric: Metric) -> Callable[[WorkerState], Values] | None:
    """Return the reader of a metric's values; None: the state does not have them."""
    return counter(metric.counter) if metric.counter else COMPUTED.get(metric)
