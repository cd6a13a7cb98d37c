"""Invariants of the control loop under any load, delay, restart, lost draft or missing metrics."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from outrider.operator.control.evidence import GainWindow
from outrider.operator.control.inputs import ControlInputs, Decision
from outrider.operator.control.memory import LoopMemory, PolicyInForce, loads, new_memory
from outrider.operator.control.phases import LINK_SECONDS
from outrider.operator.control.policy import decide
from outrider.operator.control.reasons import LoopReason
from outrider.operator.control.samples import CounterSample, Window
from outrider.operator.control.scaling import (
    ACKNOWLEDGE_SECONDS,
    DRAIN_SECONDS,
    PENDING_SECONDS,
)
from outrider.operator.control.settings import ControlSettings, ScalingRule, ShrinkPolicy
from tests.unit.operator.control.made import START

EPOCH = START


@dataclass(frozen=True)
class Moment:
    """Events between two passes, and the inputs that show them."""

    seconds: float
    gain: float
    works: bool
    running: int
    quiet: float
    """Seconds without work."""
    silent: int
    blind: bool
    acknowledges: bool
    """Whether targets take the policy by now."""
    drafts_arrive: bool
    """Whether draft pods reach the number asked for."""
    links: float
    """Share of links that are up."""
    sessions: int | None
    rolling_out: bool


@dataclass(frozen=True)
class Pass:
    """One pass, with what went in and what came out."""

    now: float
    before: LoopMemory
    asked: int | None
    """Replicas before the pass."""
    inputs: ControlInputs
    out: Decision


OFTEN = st.sampled_from([True, True, True, False])
SELDOM = st.sampled_from([False, False, False, False, True])
MOMENTS = st.builds(
    Moment,
    seconds=st.sampled_from([1.0, 15.0, 15.0, 15.0, 15.0, 45.0, 400.0]),
    gain=st.sampled_from([60.0, 96.0, 101.0, 104.0, 110.0, 120.0, 150.0]),
    works=OFTEN,
    running=st.integers(0, 40),
    quiet=st.sampled_from([0.0, 0.0, 0.0, 60.0, 300.0]),
    silent=st.sampled_from([0, 0, 1]),
    blind=SELDOM,
    acknowledges=OFTEN,
    drafts_arrive=OFTEN,
    links=st.sampled_from([1.0, 1.0, 1.0, 0.5, 0.0]),
    sessions=st.sampled_from([0, 0, 0, 5, None]),
    rolling_out=SELDOM,
)
RUNS = st.lists(
    st.tuples(MOMENTS, st.sampled_from([1, 1, 2, 5, 9])).map(lambda pair: [pair[0]] * pair[1]),
    min_size=1,
    max_size=30,
).map(lambda runs: list(itertools.chain.from_iterable(runs)))
SETTINGS = st.builds(
    ControlSettings,
    interval_seconds=st.sampled_from([1, 15, 75]),
    probe_interval_seconds=st.sampled_from([15, 300]),
    draft=st.builds(
        ScalingRule,
        min_replicas=st.integers(0, 2),
        max_replicas=st.integers(2, 4),
        shrink=st.sampled_from(ShrinkPolicy),
        after_seconds=st.sampled_from([0, 30, 120]),
        idle_seconds=st.sampled_from([0, 100, 900]),
    ),
)
PRESENT = st.none() | st.builds(
    PolicyInForce,
    version=st.integers(1, 99),
    speculate=st.booleans(),
    max_rows=st.sampled_from([1, 4, 16]),
)
RELAXED = settings(max_examples=20, deadline=None)


def whole(moment: Moment, now: float) -> Window | None:
    passes = 1000.0 if moment.works else 10.0
    counters = CounterSample(plain_seconds=moment.gain / 10, spent_seconds=10, passes=passes)
    return (
        None
        if moment.blind
        else Window(
            began=now - moment.seconds,
            ended=now,
            targets=1,
            counters=counters,
            quiet_since=now - moment.quiet if moment.quiet else None,
            silent=moment.silent,
            waiting=0,
            running=moment.running,
            kv_usage=0.1,
        )
    )


def lived(
    control: ControlSettings,
    in_force: PolicyInForce | None,
    moments: list[Moment],
    between: Callable[[LoopMemory], LoopMemory] = lambda memory: memory,
) -> list[Pass]:
    """All passes of one life; `between` is what happens to the memory from pass to pass."""
    memory, now = new_memory(control, EPOCH, in_force), EPOCH
    asked, actual, version = 2 if in_force else None, 2 if in_force else 0, memory.version
    lived: list[Pass] = []
    gains: tuple[GainWindow, ...] = ()
    for moment in moments:
        now += moment.seconds
        if moment.works and not moment.blind:
            gains = (*gains, GainWindow(now - moment.seconds, now, moment.gain / 100, 10.0))[-8:]
        actual = (asked or 0) if moment.drafts_arrive else actual
        version = memory.version if moment.acknowledges else version
        inputs = ControlInputs(
            window=whole(moment, now),
            gains=gains,
            drafts_desired=asked,
            drafts_actual=actual,
            drafts_ready=actual,
            links_up=int(moment.links * 2 * actual),
            links_expected=2 * actual,
            sessions=moment.sessions,
            acknowledged=version,
            rolling_out=moment.rolling_out,
        )
        out = decide(control, memory, inputs, now)
        lived.append(Pass(now, memory, asked, inputs, out))
        memory, asked = between(out.memory), out.draft_replicas
    return lived


@RELAXED
@given(SETTINGS, PRESENT, RUNS)
def test_the_version_rises_exactly_with_what_targets_are_told(
    control: ControlSettings, in_force: PolicyInForce | None, moments: list[Moment]
) -> None:
    for one in lived(control, in_force, moments):
        before, after = one.before, one.out.memory
        told = (before.speculate, before.max_rows) != (after.speculate, after.max_rows)
        assert after.version == before.version + told
        assert 1 <= after.max_rows <= control.max_rows


@RELAXED
@given(SETTINGS, PRESENT, RUNS)
def test_drafting_is_never_turned_on_before_drafts_are_linked(
    control: ControlSettings, in_force: PolicyInForce | None, moments: list[Moment]
) -> None:
    for one in lived(control, in_force, moments):
        if one.out.speculate and not one.before.speculate:
            event("on")
            waited = one.now - one.before.entered_at
            arrived = one.inputs.drafts_ready == one.asked
            linked = arrived and 0 < one.inputs.links_up == one.inputs.links_expected
            assert linked or (waited >= LINK_SECONDS and one.inputs.links_up > 0)


@RELAXED
@given(SETTINGS, PRESENT, RUNS)
def test_drafts_are_never_given_back_while_a_target_may_use_them(
    control: ControlSettings, in_force: PolicyInForce | None, moments: list[Moment]
) -> None:
    for one in lived(control, in_force, moments):
        if one.asked is None or (one.out.draft_replicas or 0) >= one.asked:
            continue
        if one.before.speculate and control.draft.shrink is ShrinkPolicy.PROPORTIONAL:
            event("fewer while on")
            demand = max(
                one.inputs.window.running if one.inputs.window else 0, one.inputs.sessions or 0
            )
            enough = min(-(-demand // control.draft.sessions_per_replica), one.asked)
            assert (one.out.draft_replicas or 0) >= max(1, enough)
            continue
        event("given back")
        assert not one.before.speculate
        assert not one.out.speculate
        off = one.now - one.before.switched_at
        followed = one.inputs.acknowledged == one.before.version == one.out.memory.version
        assert followed or off >= ACKNOWLEDGE_SECONDS
        settled = one.before.acknowledged_at or (one.now if followed else one.before.switched_at)
        assert one.inputs.sessions == 0 or one.now - settled >= DRAIN_SECONDS
        waits = one.out.memory.cause is not LoopReason.IDLE and not one.out.memory.for_probe
        assert off >= control.draft.after_seconds or not waits


@RELAXED
@given(SETTINGS, PRESENT, RUNS)
def test_replicas_stay_within_their_limits_and_wait_for_the_last_number(
    control: ControlSettings, in_force: PolicyInForce | None, moments: list[Moment]
) -> None:
    for one in lived(control, in_force, moments):
        number = one.out.draft_replicas
        assert number is not None
        assert control.draft.min_replicas <= number <= control.draft.max_replicas
        if one.before.grown is None or number == one.asked:
            continue
        assert not one.inputs.rolling_out
        needless = one.out.memory.cause is LoopReason.IDLE or one.out.memory.for_probe
        unused = 0 if needless else control.draft.after_seconds
        late = one.now - one.before.switched_at - unused >= PENDING_SECONDS
        assert not one.inputs.pending or (late and not one.out.speculate)


@RELAXED
@given(SETTINGS, PRESENT, RUNS)
def test_two_switches_are_never_closer_than_the_cool_down(
    control: ControlSettings, in_force: PolicyInForce | None, moments: list[Moment]
) -> None:
    passes = lived(control, in_force, moments)
    switches = [one.now for one in passes if one.out.speculate != one.before.speculate]
    gaps = [later - earlier for earlier, later in itertools.pairwise(switches)]
    assert all(gap >= control.judged_seconds for gap in gaps)
    if len(switches) > 2:
        event("three switches or more")


@RELAXED
@given(SETTINGS, PRESENT, RUNS)
def test_drafting_goes_off_for_want_of_work_only_where_every_target_says_so_for_long(
    control: ControlSettings, in_force: PolicyInForce | None, moments: list[Moment]
) -> None:
    for one in lived(control, in_force, moments):
        if one.out.memory.cause is LoopReason.IDLE is not one.before.cause:
            event("idle")
            window = one.inputs.window
            assert window is not None
            assert window.quiet_since is not None
            assert not window.silent
            since = one.before.idle_since or window.quiet_since
            assert one.now - since >= control.draft.idle_seconds > 0
            assert control.draft.shrink is not ShrinkPolicy.NEVER


@RELAXED
@given(SETTINGS, PRESENT, RUNS)
def test_blindness_changes_nothing(
    control: ControlSettings, in_force: PolicyInForce | None, moments: list[Moment]
) -> None:
    for one in lived(control, in_force, moments):
        if one.inputs.window is None and one.before.grown is not None:
            assert one.out.draft_replicas == one.asked
            noted = {"acknowledged_at": one.out.memory.acknowledged_at}
            assert one.out.memory == replace(one.before, **noted)


@RELAXED
@given(SETTINGS, PRESENT, RUNS)
def test_a_restart_after_any_pass_decides_the_same(
    control: ControlSettings, in_force: PolicyInForce | None, moments: list[Moment]
) -> None:
    stored = lived(control, in_force, moments, lambda memory: loads(memory.dumps()))
    assert stored == lived(control, in_force, moments)


@RELAXED
@given(SETTINGS, PRESENT, RUNS)
def test_a_pass_again_with_nothing_new_comes_to_rest(
    control: ControlSettings, in_force: PolicyInForce | None, moments: list[Moment]
) -> None:
    last = lived(control, in_force, moments)[-1]
    memory = last.out.memory
    inputs = replace(last.inputs, drafts_desired=last.out.draft_replicas)
    for _ in range(4):
        memory = decide(control, memory, inputs, last.now).memory
    assert decide(control, memory, inputs, last.now).memory == memory
    assert memory.version <= last.out.memory.version + 1


@RELAXED
@given(SETTINGS, PRESENT, RUNS)
def test_nobody_elses_replicas_are_touched(
    control: ControlSettings, in_force: PolicyInForce | None, moments: list[Moment]
) -> None:
    memory = new_memory(control, EPOCH, in_force)
    for one in lived(control, in_force, moments):
        out = decide(control, memory, replace(one.inputs, contested=True), one.now)
        assert out.draft_replicas is None
        memory = out.memory
