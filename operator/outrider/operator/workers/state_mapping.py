"""Mapping between the control loop and workers: a state to a sample, a decision to a policy.

For callers that ask the worker's `Control` service instead of reading `/metrics`; the values are
the same.
"""

import dataclasses

from outrider.client.state import State
from outrider.contract.settings import PolicySettings, Role
from outrider.operator.control.inputs import Decision
from outrider.operator.control.samples import (
    COUNTERS,
    CounterSample,
    DraftSample,
    Sample,
    TargetSample,
)


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
        drafting=state.drafting,
        links_up=sum(link.state == "up" for link in state.links),
        links=len(state.links),
    )


def policy(
    described: PolicySettings, decision: Decision, drafts: tuple[str, ...]
) -> PolicySettings:
    """Return the policy to push: the service's, with the decision and the drafts' addresses.

    The decision is on drafting: sources that need no draft go on without it.
    """
    local = () if decision.speculate else described.local_sources
    return dataclasses.replace(
        described,
        version=decision.memory.version,
        speculate=decision.speculate or bool(local),
        max_rows=decision.max_rows,
        drafts=tuple(dict.fromkeys(drafts)),
        sources=local or described.sources,
    )


def understood(wanted: PolicySettings, state: State | None) -> PolicySettings:
    """Return a policy as the worker of a state understands it.

    One that knows no sources would draft by a policy that has no drafts among them.
    """
    if state is None or state.policy.sources or wanted.drafts_allowed:
        return wanted
    return dataclasses.replace(wanted, speculate=False)
