"""Names of metrics follow Prometheus' rules, and what follows from counters is right."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract import metrics
from outrider.contract.counters import Counters, accepted_by_depth
from outrider.contract.metrics import Metric, MetricKind
from outrider.protos.v1 import control_pb2


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


def test_counters_are_those_of_the_message() -> None:
    message = control_pb2.Counters.DESCRIPTOR
    assert {f.name for f in dataclasses.fields(Counters)} == {f.name for f in message.fields}


def test_a_metric_of_a_counter_names_one() -> None:
    names = {f.name for f in dataclasses.fields(Counters)}
    shown = {metric.counter for metric in metrics.ALL if metric.counter}
    assert shown <= names
    assert len(shown) > 20


@given(st.lists(st.integers(0, 9), max_size=40))
def test_a_pass_that_accepts_n_rows_has_one_at_each_depth_to_n(accepted: list[int]) -> None:
    by_accepted = [accepted.count(n) for n in range(10)]
    wanted = tuple(sum(a >= depth for a in accepted) for depth in range(1, 10))
    assert accepted_by_depth(by_accepted) == wanted
    assert sum(wanted) == sum(accepted)


def test_nothing_was_accepted_where_nothing_was_counted() -> None:
    assert accepted_by_depth(()) == ()
