"""Memory, processor time and counters of a running operator, second by second, on a thread.

Leaves what they mean to `operator`.
"""

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.kube.operator_process import NO_ANSWER, OperatorProcess

EVERY_SECONDS = 1.0
SECONDS = "outrider_operator_reconcile_duration_seconds"
QUEUE = "outrider_operator_queue_duration_seconds"
REQUESTS = "outrider_operator_api_requests_total"
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    second: float
    """Since the operator was started."""
    rss_mib: float
    cpu_seconds: float
    passes: float
    requests: float
    """To the API server, watches and kopf's lists left out."""
    by_verb: Mapping[str, float]
    within: Mapping[float, float]
    """Passes that took no longer than so many seconds."""
    queued: Mapping[float, float]
    """Wakes that had their pass after no more than so many seconds."""


@dataclass(frozen=True, slots=True)
class Period:
    """Between two samples."""

    seconds: float
    cpu_share: float
    """Of one processor."""
    passes_per_minute: float
    requests_per_minute: float
    requests_by_verb: Mapping[str, float]
    pass_p50_seconds: float | None
    """Upper edge of the bucket that it falls into; None without any pass, or beyond all edges."""
    pass_p99_seconds: float | None
    queue_p99_seconds: float | None
    """From a wake to its pass, in the same way."""
    rss_mib: float
    """Largest."""


@dataclass(slots=True)
class Samples:
    """All of one run."""

    operator: OperatorProcess
    began: float = field(default_factory=time.monotonic)
    every: list[Sample] = field(default_factory=list)

    @contextlib.contextmanager
    def taken(self) -> "Iterator[Samples]":
        """Take one each second until the end of the block."""
        ended = threading.Event()
        thread = threading.Thread(target=self._take, args=(ended,), name="samples")
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def now(self) -> Sample:
        """The operator as it is; raises what `urllib.request` does."""
        values = dict(_values(self.operator.get("/metrics")))
        requests = {key[1]: value for key, value in values.items() if key[0] == REQUESTS}
        rss, cpu = _process(self.operator.pid)
        return Sample(
            second=time.monotonic() - self.began,
            rss_mib=rss,
            cpu_seconds=cpu,
            passes=values.get((f"{SECONDS}_count", ""), 0.0),
            requests=sum(requests.values()),
            by_verb=requests,
            within=_edges(values, SECONDS),
            queued=_edges(values, QUEUE),
        )

    def period(self, begin: Sample, end: Sample) -> Period:
        """Return what happened between two samples."""
        minutes = (end.second - begin.second) / 60
        passes, queued = _more(begin.within, end.within), _more(begin.queued, end.queued)
        verbs = {v: end.by_verb[v] - begin.by_verb.get(v, 0.0) for v in end.by_verb}
        during = [s.rss_mib for s in self.every if begin.second <= s.second <= end.second]
        return Period(
            seconds=60 * minutes,
            cpu_share=(end.cpu_seconds - begin.cpu_seconds) / (60 * minutes),
            passes_per_minute=(end.passes - begin.passes) / minutes,
            requests_per_minute=(end.requests - begin.requests) / minutes,
            requests_by_verb=verbs,
            pass_p50_seconds=_finite(quantile(passes, 0.5)),
            pass_p99_seconds=_finite(quantile(passes, 0.99)),
            queue_p99_seconds=_finite(quantile(queued, 0.99)),
            rss_mib=max([end.rss_mib, *during]),
        )

    def _take(self, ended: threading.Event) -> None:
        while not ended.wait(EVERY_SECONDS):
            with contextlib.suppress(*NO_ANSWER):
                self.every.append(self.now())


def quantile(within: Mapping[float, float], share: float) -> float | None:
    """The smallest edge below which `share` of all lie; None where there are none."""
    total = within.get(math.inf, 0.0)
    if not total:
        return None
    return min(edge for edge, count in within.items() if count >= share * total)


def _edges(values: Mapping[tuple[str, str], float], histogram: str) -> dict[float, float]:
    """Count below each edge of a histogram."""
    return {float(k[1]): value for k, value in values.items() if k[0] == f"{histogram}_bucket"}


def _more(begin: Mapping[float, float], end: Mapping[float, float]) -> dict[float, float]:
    return {edge: end[edge] - begin.get(edge, 0.0) for edge in end}


def _finite(value: float | None) -> float | None:
    """JSON knows no infinity."""
    return None if value == math.inf else value


def _values(text: str) -> Iterator[tuple[tuple[str, str], float]]:
    """Value of each series that counts, by its name and its verb or edge."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, sample.labels.get("verb") or sample.labels.get("le") or ""
            found[key] = found.get(key, 0.0) + sample.value
    yield from found.items()


def _process(pid: int) -> tuple[float, float]:
    """Resident MiB, and seconds of processor time so far."""
    rss = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return rss, (int(fields[11]) + int(fields[12])) / TICK
