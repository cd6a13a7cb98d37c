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
from outrider.contract.counters import CHOICES, Counters
from outrider.contract.metrics import Metric, MetricKind
from outrider.contract.sources import SOURCES
from outrider.contract.state import (
    DraftMemoryState,
    Memory,
    StageGroup,
    StageState,
    StageView,
    State,
)
from outrider.contract.version import version

Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float]]
"""Values of one metric by its own labels."""


class Families(Collector):
    """Metrics that a function yields at each scrape."""

    def __init__(self, families: Callable[[], Iterator[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        """Return all of them, as they are now."""
        return self._families()


def of_state(metrics: Iterable[Metric], state: Callable[[], State]) -> Families:
    """Return those of `metrics` that are a field of a worker's state, or follow from it."""
    readers = {m: counter(m.counter) if m.counter else COMPUTED.get(m) for m in metrics}

    def families() -> Iterator[Family]:
        now = state()
        common = (now.model, names.ENGINE, now.role)
        for metric, values in readers.items():
            if values is not None:
                yield family(metric, common, values(now))
            elif read := HISTOGRAMS.get(metric):
                yield histogram(metric, common, *read(now.counters))

    return Families(families)


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


def one(value: Callable[[State], float]) -> Callable[[State], Values]:
    """Return the reader of a metric without labels of its own."""
    return lambda state: [((), value(state))]


def counter(name: str) -> Callable[[State], Values]:
    """Return the reader of one of the state's counters."""
    return one(lambda state: getattr(state.counters, name))


def of_stage(value: Callable[[StageState], float]) -> Callable[[State], Values]:
    """Return the reader of a stage's metric, whose label is the stage's number."""
    return lambda state: [((str(s.index),), value(s))] if (s := state.stage) else []


def of_group(value: Callable[[StageGroup], float]) -> Callable[[State], Values]:
    """Return the reader of a metric of a pipelined target's stages as one."""
    return lambda state: [((), value(group))] if (group := state.stages) else []


def of_stages(value: Callable[[StageView], float]) -> Callable[[State], Values]:
    """Return the reader of a metric of a pipelined target's stages, by their numbers."""
    return lambda state: [
        ((str(stage.index),), value(stage)) for stage in (state.stages.each if state.stages else ())
    ]


def _usage(state: State) -> float:
    slots = state.counters.kv_slots
    return state.counters.kv_slots_used / slots if slots else 0.0


def _successes(state: State) -> Values:
    done = state.counters
    stopped = done.requests_finished - done.requests_at_length - done.requests_failed
    return [(("stop",), stopped), (("length",), done.requests_at_length)]


def _failures(state: State) -> Values:
    done = state.counters
    yield ("cancelled",), done.requests_cancelled - done.requests_expired
    yield ("expired",), done.requests_expired
    yield ("error",), done.requests_failed


def _accepted(state: State) -> Values:
    for position, count in enumerate(state.counters.accepted_by_depth):
        if position < state.policy.depth or count:
            yield (str(position),), count


def _drafting(state: State) -> Values:
    return [((name,), name == state.drafting) for name in names.DRAFTING_STATES]


def of_memory(value: Callable[[Memory], float]) -> Callable[[State], Values]:
    """Return the reader of a metric of memory that a target and its draft share."""
    return lambda state: [((), value(m))] if (m := state.memory) else []


def _draft_memory(state: State) -> Values:
    if (memory := state.memory) is None:
        return []
    return [((at.value,), at == memory.draft) for at in DraftMemoryState]


def _memory_bytes(state: State) -> Values:
    if (memory := state.memory) is None:
        return []
    in_use = memory.target_kv_bytes, memory.draft_kv_bytes, memory.draft_weight_bytes
    return [((use,), size) for use, size in zip(names.MEMORY_USES, in_use, strict=True)]


def _planner_steps(state: State) -> Values:
    counts = state.counters.planner_steps or (0,) * len(CHOICES)
    return [((choice.value,), count) for choice, count in zip(CHOICES, counts, strict=True)]


def _row_fates(state: State) -> Values:
    if (group := state.stages) is None:
        return []
    return [((fate,), getattr(group, f"{fate}_rows")) for fate in names.ROW_FATES]


def _by_source(state: State, counts: tuple[int, ...]) -> Values:
    """One value a source, where it is in use or was."""
    for kind, count in zip(SOURCES, counts, strict=False):
        if kind in state.policy.sources or count:
            yield (kind.value,), count


def _links(state: State) -> Values:
    for link in state.links:
        for name in names.LINK_STATES:
            yield (link.address, name), name == link.state.value


def _transports(state: State) -> Values:
    for link in state.links:
        for name in names.LINK_TRANSPORTS:
            yield (link.address, name), name == link.transport


COMPUTED: dict[Metric, Callable[[State], Values]] = {
    names.BUILD_INFO: lambda state: [((version(), state.revision, state.dtype), 1)],
    names.READY: one(lambda state: state.ready),
    names.KV_CACHE_USAGE: one(_usage),
    names.NUM_REQUESTS_WAITING: one(lambda state: state.waiting),
    names.NUM_REQUESTS_RUNNING: one(lambda state: state.running),
    names.REQUEST_SUCCESS: _successes,
    names.REQUEST_FAILURES: _failures,
    names.NUM_ACCEPTED_TOKENS_PER_POS: _accepted,
    names.LAST_ROWS: one(lambda state: state.last_rows),
    names.SPECULATION_TOKENS: one(lambda state: state.last_node_rows),
    names.GROWTH_DROPPED: lambda state: [(("stale",), state.counters.growth_dropped)],
    names.DRAFTING_STATE: _drafting,
    names.PLANNER_STEPS: _planner_steps,
    names.NUM_SOURCE_TOKENS: lambda state: _by_source(state, state.counters.source_rows),
    names.NUM_SOURCE_ACCEPTED_TOKENS: lambda state: _by_source(
        state, state.counters.source_accepted
    ),
    names.DRAFT_LAG: one(lambda state: state.draft_lag),
    names.DRAFT_MEMORY_STATE: _draft_memory,
    names.MEMORY_BYTES: _memory_bytes,
    names.KV_EXPANSIONS: of_memory(lambda memory: memory.expansions),
    names.KV_CONTRACTIONS: of_memory(lambda memory: memory.contractions),
    names.KV_MOVED_BLOCKS: of_memory(lambda memory: memory.moved_blocks),
    names.LINK_STATE: _links,
    names.LINK_TRANSPORT: _transports,
    names.PIPELINE_UP: of_group(lambda group: group.up),
    names.PIPELINE_LOSSES: of_group(lambda group: group.losses),
    names.PIPELINE_SEGMENTS_IN_FLIGHT: of_group(lambda group: group.segments_in_flight),
    names.PIPELINE_ROWS_IN_FLIGHT: of_group(lambda group: group.rows_in_flight),
    names.PIPELINE_SEGMENTS: of_group(lambda group: group.segments),
    names.PIPELINE_SEGMENT_SECONDS: of_group(lambda group: group.segment_seconds),
    names.PIPELINE_ROWS: _row_fates,
    names.PIPELINE_STAGE_SEGMENTS: of_stages(lambda stage: stage.segments),
    names.PIPELINE_STAGE_ROWS: of_stages(lambda stage: stage.rows),
    names.PIPELINE_STAGE_BUSY_SECONDS: of_stages(lambda stage: stage.busy_seconds),
    names.PIPELINE_STAGE_QUEUE_SECONDS: of_stages(lambda stage: stage.queue_seconds),
    names.PIPELINE_STAGE_ROW_SECONDS: of_stages(lambda stage: stage.row_seconds),
    names.PIPELINE_STAGE_LINK_SECONDS: of_stages(lambda stage: stage.link_seconds),
    names.DRAFT_SESSIONS: one(lambda state: state.running),
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
