"""Reading `/metrics`: what a worker shows, and what is refused."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from outrider.contract import metrics as names
from outrider.contract.counters import Counters
from outrider.contract.settings import Role
from outrider.contract.state import State
from outrider.operator.control.exposition import ExpositionError, parse
from outrider.operator.control.samples import CounterSample, DraftSample, TargetSample
from outrider.worker.server.metrics.collector import of_state

L = 'model_name="m",engine="0",role="target"'
GOOD = f"""
# HELP outrider_gain_plain_seconds_total Seconds.
# TYPE outrider_gain_plain_seconds_total counter
outrider_gain_plain_seconds_total{{{L}}} 12.5
outrider_gain_spent_seconds_total{{{L}}} 10
outrider_verify_passes_total{{{L}}} 100
outrider_spec_decode_num_drafts_total{{{L}}} 90
outrider_verified_tokens_total{{{L}}} 150
outrider_spec_decode_num_first_guesses_total{{{L}}} 88
outrider_spec_decode_num_first_hits_total{{{L}}} 66
outrider_num_requests_waiting{{{L}}} 3
outrider_num_requests_running{{{L}}} 8
outrider_kv_cache_usage_perc{{{L}}} 0.25
outrider_drafting_state{{{L},state="on"}} 1
outrider_drafting_state{{{L},state="off"}} 0
outrider_draft_link_state{{{L},draft="d0:1",state="up"}} 1
outrider_draft_link_state{{{L},draft="d0:1",state="refused"}} 0
outrider_draft_link_state{{{L},draft="d1:1",state="up"}} 0
outrider_draft_link_state{{{L},draft="d1:1",state="refused"}} 1
outrider_draft_wait_gain_realised_tokens{{{L}}} -4
python_gc_objects_collected_total 7
"""


def test_series_that_are_not_read_may_hold_anything() -> None:
    others = 'outrider_e2e_bucket{le="1"} many\npython_info what\n# HELP no "grammar\n'
    assert parse(GOOD + others, "t0", 5.0) == parse(GOOD, "t0", 5.0)


def test_what_local_sources_bring_is_read_where_a_worker_tells_it() -> None:
    told = GOOD + (
        f"outrider_gain_local_plain_seconds_total{{{L}}} 4\n"
        f"outrider_gain_local_spent_seconds_total{{{L}}} 1\n"
    )
    newer, older = parse(told, "t0", 5.0), parse(GOOD, "t0", 5.0)
    assert isinstance(newer, TargetSample)
    assert isinstance(older, TargetSample)
    assert (newer.counters.local_plain_seconds, newer.counters.local_spent_seconds) == (4, 1)
    assert (older.counters.local_plain_seconds, older.counters.local_spent_seconds) == (0, 0)


def test_a_target_shows_all_that_the_loop_needs() -> None:
    assert parse(GOOD, "t0", 5.0) == TargetSample(
        uid="t0",
        at=5.0,
        counters=CounterSample(
            plain_seconds=12.5,
            spent_seconds=10,
            passes=100,
            drafted_passes=90,
            tokens=150,
            first_guesses=88,
            first_hits=66,
        ),
        waiting=3,
        running=8,
        kv_usage=0.25,
        drafting="on",
        links_up=1,
        links=2,
    )


@pytest.mark.parametrize("role", list(Role))
def test_what_a_worker_exposes_can_be_read(role: Role) -> None:
    counters = Counters(kv_slots=64, kv_slots_used=16)
    state = State(
        role=role, model="m", counters=counters, running=3, waiting=2, drafting="disabled"
    )
    registry = CollectorRegistry()
    registry.register(of_state(names.of_role(role), lambda: state))
    sample = parse(generate_latest(registry).decode(), "pod", 1.0)
    assert (sample.role, sample.kv_usage) == (role, 0.25)
    if isinstance(sample, DraftSample):
        assert sample.sessions == 3
    else:
        assert (sample.running, sample.waiting, sample.drafting) == (3, 2, "disabled")


def without(metric: names.Metric) -> Callable[[str], str]:
    return lambda text: "\n".join(line for line in text.splitlines() if metric.name not in line)


def instead(old: str, new: str) -> Callable[[str], str]:
    assert old in GOOD
    return lambda text: text.replace(old, new)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (instead("} 12.5", "} NaN"), "outrider_gain_plain_seconds_total: nan is not allowed"),
        (instead("} 12.5", "} +Inf"), "outrider_gain_plain_seconds_total: inf is not allowed"),
        (instead("} 100", "} -1"), "outrider_verify_passes_total: -1.0 is not allowed"),
        (instead("} 0.25", "} 25"), "outrider_kv_cache_usage_perc: 25.0 is not allowed"),
        (lambda text: text + text, "outrider_gain_plain_seconds_total: the series .* twice"),
        (without(names.GAIN_SPENT_SECONDS), "outrider_gain_spent_seconds_total: 0 series"),
        (without(names.NUM_REQUESTS_WAITING), "outrider_num_requests_waiting: 0 series"),
        (without(names.DRAFTING_STATE), r"outrider_drafting_state: the states \[\]"),
        (instead('state="off"} 0', 'state="off"} 1'), "outrider_drafting_state: the states"),
        (instead('state="on"', 'state="asleep"'), "outrider_drafting_state: .*asleep"),
        (
            lambda text: text + 'outrider_num_requests_waiting{role="target"} 3\n',
            "outrider_num_requests_waiting: 2 series",
        ),
        (
            lambda text: text + 'outrider_draft_sessions{role="draft"} 3\n',
            "label role must be target or draft",
        ),
        (instead('role="target"', 'role="router"'), "label role must be target or draft"),
        (lambda text: "", "label role must be target or draft"),
        (lambda text: "<html>502 Bad Gateway</html>", "no Prometheus exposition"),
        (instead("} 12.5", "} twelve"), "no Prometheus exposition"),
    ],
)
def test_what_cannot_be_trusted_is_refused_by_name(
    broken: Callable[[str], str], message: str
) -> None:
    with pytest.raises(ExpositionError, match=message):
        parse(broken(GOOD), "t0", 0.0)


@given(st.text(alphabet=st.sampled_from('outrider_{}="\\,# \n1-NaNTYPE'), max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(ExpositionError):
        parse(text, "t0", 0.0)


@given(st.integers(0, len(GOOD)), st.integers(0, 40), st.text(max_size=5))
def test_a_damaged_exposition_is_read_or_refused(at: int, length: int, text: str) -> None:
    with contextlib.suppress(ExpositionError):
        sample = parse(GOOD[:at] + text + GOOD[at + length :], "t0", 0.0)
        assert 0 <= sample.kv_usage <= 1
