"""A worker's state as a sample of the control loop, in a cluster and under `outrider run`."""

import math

from outrider.contract.metrics import DRAFTING_STATES
from outrider.contract.settings import Role
from outrider.contract.state import LinkState, State
from outrider.operator.control.samples import (
    COUNTERS,
    CounterSample,
    DraftSample,
    Sample,
    TargetSample,
)


def is_plausible(state: State) -> bool:
    """True if every number that a sample has is finite and not negative, KV not overfull, and a
    target's state of drafting a known one."""
    counters = state.counters
    numbers = (*(getattr(counters, name) for name in COUNTERS), state.waiting, state.running)
    whole = 0 <= counters.kv_slots_used <= counters.kv_slots
    known = state.role is Role.DRAFT or state.drafting in DRAFTING_STATES
    return known and whole and math.isfinite(sum(numbers)) and min(numbers) >= 0


def sample(state: State, uid: str, at: float) -> Sample:
    """Return the sample of a worker's state at the time `at`."""
    counters = state.counters
    usage = counters.kv_slots_used / counters.kv_slots if counters.kv_slots else 0.0
    if state.role is Role.DRAFT:
        return DraftSample(uid=uid, at=at, sessions=state.running, kv_usage=usage)
    return TargetSample(
        uid=uid,
        at=at,
        counters=CounterSample(**{name: float(getattr(counters, name)) for name in COUNTERS}),
        waiting=state.waiting,
        running=state.running,
        kv_usage=usage,
        links_up=sum(link.state is LinkState.UP for link in state.links),
        links=len(state.links),
    )
