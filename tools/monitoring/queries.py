"""PromQL over the metrics of workers and of the operator, as text.

Counters are summed before they are divided: a mean of ratios is not the ratio. Leaves which
questions are asked to `rules` and `dashboards`.
"""

from dataclasses import dataclass

from outrider.contract import metrics
from outrider.contract.metrics import Metric, MetricKind

SERVICE = ("namespace", "service", "model_name")
"""Labels that name a service: the operator's PodMonitors give the first two."""
TARGET = 'role="target"'
"""Leaves drafts out, where both have a metric."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series are looked at, over how long, and what is told apart."""

    by: tuple[str, ...] = SERVICE
    window: str = "5m"
    where: tuple[str, ...] = ()
    """Label matchers of all series: `service=~"$service"`."""

    def series(self, metric: Metric | str, *matchers: str, suffix: str = "") -> str:
        """Return a selector; the operator's metrics are named by text."""
        name = metric if isinstance(metric, str) else metric.name
        chosen = ",".join((*self.where, *matchers))
        return f"{name}{suffix}{{{chosen}}}" if chosen else f"{name}{suffix}"

    def over(self, how: str, metric: Metric | str, *matchers: str, by: tuple[str, ...] = ()) -> str:
        """Return a gauge, aggregated: `how` is sum, max, min."""
        return self._aggregated(how, self.series(metric, *matchers), by)

    def rate(self, metric: Metric | str, *matchers: str, by: tuple[str, ...] = ()) -> str:
        """Return what a counter grows by in a second, summed; `by`: told apart, too."""
        return self._aggregated("sum", f"rate({self.series(metric, *matchers)}[{self.window}])", by)

    def growth(self, metric: Metric | str, *matchers: str) -> str:
        """Return what a counter has grown by, summed."""
        return self._aggregated(
            "sum", f"increase({self.series(metric, *matchers)}[{self.window}])", ()
        )

    def quantile(self, share: float, metric: Metric | str, *matchers: str) -> str:
        """Return the value of a histogram below which this share lies."""
        if isinstance(metric, Metric):
            assert metric.kind is MetricKind.HISTOGRAM, metric.name
        grown = f"rate({self.series(metric, *matchers, suffix='_bucket')}[{self.window}])"
        return f"histogram_quantile({share}, {self._aggregated('sum', grown, ('le',))})"

    def _aggregated(self, how: str, expression: str, by: tuple[str, ...]) -> str:
        labels = (*self.by, *by)
        return (
            f"{how} by ({', '.join(labels)}) ({expression})" if labels else f"{how}({expression})"
        )


def ended(scope: Scope) -> str:
    """Requests that ended in a second, whole or not."""
    return f"({scope.rate(metrics.REQUEST_SUCCESS)} + {scope.rate(metrics.REQUEST_FAILURES)})"


def failed_share(scope: Scope, reason: str) -> str:
    """Share of ended requests that were not answered, for one reason."""
    failed = scope.rate(metrics.REQUEST_FAILURES, f'reason="{reason}"')
    return f"{failed} / {ended(scope)}"


def gain(scope: Scope) -> str:
    """How many times as fast as plain decoding tokens came."""
    plain, spent = (
        scope.rate(metric) for metric in (metrics.GAIN_PLAIN_SECONDS, metrics.GAIN_SPENT_SECONDS)
    )
    return f"{plain} / {spent}"


def accepted_share(scope: Scope) -> str:
    """Share of node rows that were right."""
    return f"{scope.rate(metrics.NUM_ACCEPTED_TOKENS)} / {scope.rate(metrics.NUM_DRAFT_TOKENS)}"


def tokens_per_pass(scope: Scope) -> str:
    """Tokens that a verify pass commits."""
    return f"{scope.rate(metrics.VERIFIED_TOKENS)} / {scope.rate(metrics.VERIFY_PASSES)}"


def share_of_passes(scope: Scope, metric: Metric) -> str:
    """Share of verify passes that a counter counts."""
    return f"{scope.rate(metric)} / {scope.rate(metrics.VERIFY_PASSES)}"


def prefix_hits(scope: Scope) -> str:
    """Share of the tokens of prompts whose KV was there."""
    hits, asked = (
        scope.rate(metric, TARGET)
        for metric in (metrics.PREFIX_CACHE_HITS, metrics.PREFIX_CACHE_QUERIES)
    )
    return f"{hits} / {asked}"


def rows_per_pass(scope: Scope) -> str:
    """Rows of a pass of the engine, over all its sequences."""
    return f"{scope.rate(metrics.STEP_ROWS)} / {scope.rate(metrics.STEPS)}"


def waiting_share(scope: Scope) -> str:
    """Share of the targets' time that waits for growth."""
    targets = scope.over("count", metrics.READY, TARGET)
    return f"{scope.rate(metrics.DRAFT_WAIT_SECONDS)} / {targets}"
