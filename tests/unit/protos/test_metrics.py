"""Names of metrics follow Prometheus' rules, and what follows from counters is right."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract import metrics
from outrider.contract.metrics import Metric, MetricKind, accepted_by_depth


def test_names_are_unique() -> None:
    assert len({metric.name for metric in metrics.ALL}) == len(metrics.ALL) > 40


@pytest.mark.parametrize("metric", metrics.ALL, ids=lambda metric: metric.name)
def test_a_name_follows_the_rules(metric: Metric) -> None:
    assert re.fullmatch(r"outrider_[a-z0-9]+(_[a-z0-9]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert not metric.name.endswith(("_count", "_sum", "_bucket", "_created"))
    assert metric.help.endswith(".")
    assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert not {"request", "request_id", *metrics.COMMON} & set(metric.labels)


@given(st.lists(st.integers(0, 9), max_size=40))
def test_a_pass_that_accepts_n_rows_has_one_at_each_depth_to_n(accepted: list[int]) -> None:
    by_accepted = [accepted.count(n) for n in range(10)]
    wanted = tuple(sum(a >= depth for a in accepted) for depth in range(1, 10))
    assert accepted_by_depth(by_accepted) == wanted
    assert sum(wanted) == sum(accepted)


def test_nothing_was_accepted_where_nothing_was_counted() -> None:
    assert accepted_by_depth(()) == ()
