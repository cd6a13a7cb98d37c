"""When a draft's memory is lent to its target's KV, and when it comes back."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.counters import DraftMemoryState
from outrider.worker.speculation.draft_memory import (
    OFFLOAD,
    RELOAD,
    DraftMemory,
    MemorySettings,
    MemoryView,
)
from tests.unit.worker.speculation import memory_traces
from tests.unit.worker.speculation.memory_traces import (
    MIGRATION,
    OSCILLATION,
    SPIKE,
    Engine,
    Trace,
    arrivals,
)

OWN, LENT = 100, 20
SETTINGS = MemorySettings()
SHORT = MemoryView(free=5, kv_waited_for=False, drafting=False, gain=1.0)
AMPLE = MemoryView(free=OWN + LENT, kv_waited_for=False, drafting=False, gain=1.0)
WAITED_FOR = SHORT._replace(free=50, kv_waited_for=True)


def on_host() -> DraftMemory:
    """Memory that is lent."""
    memory = DraftMemory(OWN, LENT)
    memory.begin(OFFLOAD)
    memory.end()
    return memory


@pytest.mark.parametrize("view", [SHORT, WAITED_FOR])
def test_memory_is_lent_after_three_short_steps_in_a_row(view: MemoryView) -> None:
    memory = DraftMemory(OWN, LENT)
    seen = [memory.wanted(one, 0.0) for one in (view, view, AMPLE, view, view, view)]
    assert seen == [None] * 5 + [OFFLOAD]


def test_what_is_seen_again_without_a_step_counts_once() -> None:
    memory = DraftMemory(OWN, LENT)
    again = SHORT._replace(stepped=False)
    views = (SHORT, again, again, SHORT, again, SHORT)
    assert [memory.wanted(one, 0.0) for one in views] == [None] * 5 + [OFFLOAD]


@pytest.mark.parametrize(("gain", "move"), [(1.19, OFFLOAD), (1.21, None), (None, None)])
def test_drafting_that_gains_more_than_its_memory_is_worth_keeps_it(
    gain: float | None, move: DraftMemoryState | None
) -> None:
    memory = DraftMemory(OWN, LENT)
    view = SHORT._replace(drafting=True, gain=gain)
    assert [memory.wanted(view, 0.0) for _ in range(3)][-1] is move


def test_memory_comes_back_after_a_calm_that_nothing_broke() -> None:
    memory = on_host()
    assert memory.wanted(AMPLE, 0.0) is None
    assert memory.wanted(AMPLE, 9.9) is None
    assert memory.wanted(AMPLE._replace(free=40), 9.95) is None, "20 and 20 must be free"
    assert memory.wanted(AMPLE, 10.0) is None
    assert memory.calm_at(10.0) == 20.0
    assert memory.wanted(AMPLE, 20.0) is RELOAD


def test_a_target_that_cannot_give_back_is_asked_after_another_calm() -> None:
    memory = on_host()
    memory.wanted(AMPLE, 0.0)
    assert memory.wanted(AMPLE, 10.0) is RELOAD
    memory.put_off()
    assert memory.wanted(AMPLE, 10.1) is None
    assert memory.wanted(AMPLE, 20.1) is RELOAD


def test_no_state_ends_by_an_order() -> None:
    memory = DraftMemory(OWN, LENT)
    memory.begin(OFFLOAD)
    assert memory.state is DraftMemoryState.OFFLOADING
    assert [memory.wanted(view, 100.0) for view in (SHORT, AMPLE) * 5] == [None] * 10
    memory.end()
    assert memory.state is DraftMemoryState.ON_HOST
    memory.begin(RELOAD)
    assert memory.away
    memory.end()
    assert not memory.away


def test_a_copy_that_fails_leaves_all_as_it_was_for_a_while() -> None:
    memory = DraftMemory(OWN, LENT)
    memory.begin(OFFLOAD)
    memory.fail(0.0)
    assert memory.state is DraftMemoryState.ON_DEVICE
    assert [memory.wanted(SHORT, 59.0) for _ in range(5)] == [None] * 5
    assert memory.wanted(SHORT, 60.0) is OFFLOAD


def test_moves_out_of_order_are_refused() -> None:
    memory = DraftMemory(OWN, LENT)
    with pytest.raises(ValueError, match="reloading cannot follow on_device"):
        memory.begin(RELOAD)
    with pytest.raises(ValueError, match="no copy ends while the draft's memory is on_device"):
        memory.end()
    memory.begin(OFFLOAD)
    with pytest.raises(ValueError, match="offloading cannot follow offloading"):
        memory.begin(OFFLOAD)


EVENTS = st.one_of(
    st.sampled_from(["end", "fail", "put_off"]),
    st.builds(
        MemoryView,
        free=st.integers(0, OWN + LENT),
        kv_waited_for=st.booleans(),
        drafting=st.booleans(),
        gain=st.none() | st.floats(0.5, 2.0),
    ),
)


@given(st.lists(st.tuples(st.floats(0.0, 30.0), EVENTS), max_size=200))
def test_whatever_happens_states_follow_each_other_and_moves_are_rare(
    events: list[tuple[float, "str | MemoryView"]],
) -> None:
    memory, now = DraftMemory(OWN, LENT), 0.0
    order = list(DraftMemoryState)
    reloads, since = 0, 0.0
    for seconds, event in events:
        now += seconds
        before = memory.state
        if isinstance(event, MemoryView):
            move = memory.wanted(event, now)
            assert memory.state is before, "what is wanted changes nothing"
            if move is not None:
                memory.begin(move)
                assert move is order[(order.index(before) + 1) % 4]
            if move is RELOAD:
                assert now - since >= SETTINGS.calm_seconds
                reloads, since = reloads + 1, now
        elif event == "put_off":
            memory.put_off()
        elif memory.moving:
            if event == "end":
                memory.end()
            else:
                memory.fail(now)
            step = 1 if event == "end" else -1
            assert memory.state is order[(order.index(before) + step) % 4]
        assert memory.moving == (memory.state in (OFFLOAD, RELOAD))
    assert reloads <= now / SETTINGS.calm_seconds


@pytest.mark.parametrize("trace", [SPIKE, OSCILLATION, MIGRATION], ids=["spike", "osc", "migr"])
@pytest.mark.parametrize("seed", range(3))
def test_each_stress_trace_makes_kv_grow_once_and_shrink_once(trace: Trace, seed: int) -> None:
    """All of its requests are served within one time of pressure, as the paper saw it."""
    engine = Engine(SETTINGS, seed)
    engine.run(arrivals(trace, seed))
    assert (engine.expansions, engine.contractions) == (1, 1)
    assert engine.memory.state is DraftMemoryState.ON_DEVICE
    assert engine.drafted_away == 0
    assert engine.most_used > 0.9 * memory_traces.OWN


def test_two_spikes_with_calm_between_warrant_two() -> None:
    engine = Engine(SETTINGS)
    for _ in range(2):
        engine.run(arrivals(SPIKE, 0, engine.now))
    assert (engine.expansions, engine.contractions) == (2, 2)


def test_a_load_that_fits_moves_nothing() -> None:
    engine = Engine(SETTINGS)
    engine.run(arrivals(((2, 60),), 0))
    assert (engine.expansions, engine.contractions) == (0, 0)


def test_without_persistence_and_calm_the_same_traces_move_memory_more_often() -> None:
    """What hysteresis is there for: the test above could not fail otherwise."""
    hasty = MemorySettings(short_share=0.3, short_steps=1, spare_share=0.0, calm_seconds=0.0)
    moves = []
    for trace in (SPIKE, OSCILLATION, MIGRATION):
        engine = Engine(hasty)
        engine.run(arrivals(trace, 0))
        moves.append(engine.expansions)
    assert max(moves) > 2


def test_times_of_a_trace_are_those_of_its_phases() -> None:
    times: deque[float] = arrivals(((10.0, 1000), (100.0, 1000)), 0)
    assert len(times) == 2000
    assert times[999] == pytest.approx(100, rel=0.15)
    assert times[1999] - times[999] == pytest.approx(10, rel=0.15)
