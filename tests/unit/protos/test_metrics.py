"""Names of metrics follow Prometheus' rules, and what follows from counters is right."""

import dataclasses
import re

from hypothesis import given
from hypothesis import strategies as st

from outrider.contract import metrics
from outrider.contract.counters import Counters, accepted_by_depth
from outrider.contract.metrics import MetricKind
from outrider.protos.v1.internal import control_pb2


def test_names_are_unique() -> None:
    assert len({metric.name for metric in metrics.ALL}) == len(metrics.ALL)


def test_names_follow_the_rules() -> None:
    for metric in metrics.ALL:
        name = metric.name
        assert re.fullmatch(r"outrider_[a-z0-9]+(_[a-z0-9]+)*", name)
        assert name.endswith("_total") == (metric.kind is MetricKind.COUNTER), name
        assert not name.endswith(("_count", "_sum", "_bucket", "_created"))
        assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM), name
        assert list(metric.buckets) == sorted(set(metric.buckets)), name
        assert not {"request", "request_id", *metrics.COMMON} & set(metric.labels), name


def test_counters_are_those_of_the_message() -> None:
    message = control_pb2.Counters.DESCRIPTOR
    assert {f.name for f in dataclasses.fields(Counters)} == {f.name for f in message.fields}


def test_a_metric_of_a_counter_names_one() -> None:
    names = {f.name for f in dataclasses.fields(Counters)}
    shown = {metric.counter for metric in metrics.ALL if metric.counter}
    assert shown
    assert shown <= names


@given(st.lists(st.integers(0, 9), max_size=40))
def test_a_pass_that_accepts_n_rows_has_one_at_each_depth_to_n(accepted: list[int]) -> None:
    by_accepted = [accepted.count(n) for n in range(10)]
    wanted = tuple(sum(a >= depth for a in accepted) for depth in range(1, 10))
    assert accepted_by_depth(by_accepted) == wanted
    assert sum(wanted) == sum(accepted)


def test_nothing_was_accepted_where_nothing_was_counted() -> None:
    assert accepted_by_depth(()) == ()
