"""Number of draft replicas, and when it may change.

Off: drafting must be off at every target that answers in time, then sessions leave, then drafts are
given back. On: drafts come first. Never while replicas are pending or a rollout goes on. Leaves
the phases of drafting to `phases`.
"""

import dataclasses
import math
from dataclasses import dataclass

from outrider.operator.control.memory import LoopMemory, Phase
from outrider.operator.control.phases import PassState
from outrider.operator.control.reasons import Hold, LoopReason
from outrider.operator.control.settings import ScalingRule, ShrinkPolicy, SpeculationMode

DRAIN_SECONDS = 30.0
"""Longest wait for sessions to leave drafts that no target uses any more."""
ACKNOWLEDGE_SECONDS = 120.0
"""Longest wait for targets that do not say that they have stopped drafting: losing its draft costs
a target no token."""
PENDING_SECONDS = 600.0
"""Time after which pending drafts are given back all the same: they may never fit."""
TOLERANCE = 0.1
"""Share by which sessions may miss the replicas' capacity (as HPA and Kthena have it)."""


@dataclass(frozen=True, slots=True)
class ScalingResult:
    """Outcome of scaling in one pass."""

    memory: LoopMemory
    hold: Hold | None = None
    because: str = ""
    """Why the number changed, for people."""


def replicas(draft: ScalingRule, memory: LoopMemory, targets: int) -> int | None:
    """Return the replicas that are wanted now for so many targets; None: the loop does not own the
    number."""
    if not draft.managed or memory.grown is None:
        return None
    return draft.min_replicas if memory.shrunk or not targets else _bounded(draft, memory.grown)


def adopt(state: PassState) -> LoopMemory:
    """Take over the present number, the first time and after another owner had it."""
    draft, memory, desired = state.settings.draft, state.memory, state.inputs.drafts_desired
    if not draft.managed or state.inputs.contested:
        return dataclasses.replace(memory, grown=None, shrunk=False, fewer_since=None)
    if memory.grown is not None:
        return memory
    grown = _bounded(draft, desired or draft.least_on)
    shrunk = desired is not None and desired <= draft.min_replicas < grown
    return dataclasses.replace(memory, grown=grown, shrunk=shrunk)


def scale(state: PassState) -> ScalingResult:
    """Return the replicas after one pass; `state.memory` is the one after the phase's step."""
    memory, inputs = state.memory, state.inputs
    if not state.settings.draft.managed:
        return ScalingResult(memory)
    if inputs.contested:
        return ScalingResult(memory, Hold.REPLICAS_CONTESTED)
    if state.settings.mode is SpeculationMode.ADAPTIVE and state.blind:
        return ScalingResult(memory)
    return _give_back(state) if memory.phase is Phase.OFF else _keep_up(state)


def _give_back(state: PassState) -> ScalingResult:
    """Give drafts back while drafting is off."""
    draft, memory, inputs = state.settings.draft, state.memory, state.inputs
    if draft.shrink is ShrinkPolicy.NEVER or memory.shrunk:
        return ScalingResult(memory)
    off = state.now - memory.switched_at
    settled = memory.acknowledged_at
    followed = settled is not None and inputs.is_followed_by_all(memory.version)
    if memory.speculate or (not followed and off < ACKNOWLEDGE_SECONDS):
        return ScalingResult(memory, Hold.DRAINING)
    idle = memory.cause is LoopReason.IDLE or memory.unused_since is not None
    unused = 0 if idle or memory.for_probe else draft.after_seconds
    if off < unused:
        return ScalingResult(memory)
    since = memory.switched_at if settled is None else settled
    if inputs.sessions != 0 and state.now - since < DRAIN_SECONDS:
        return ScalingResult(memory, Hold.DRAINING)
    hold = _hold(state, late=off - unused >= PENDING_SECONDS)
    if hold is not None:
        return ScalingResult(memory, hold)
    because = f"drafting off for {off:.0f} s, {memory.because}"
    return ScalingResult(dataclasses.replace(memory, shrunk=True), None, because)


def _keep_up(state: PassState) -> ScalingResult:
    """Keep drafts while drafting is on, or is to come back."""
    draft, memory = state.settings.draft, state.memory
    hold = _hold(state, late=False)
    if memory.shrunk:
        back = dataclasses.replace(memory, shrunk=False)
        return (
            ScalingResult(memory, hold)
            if hold
            else ScalingResult(back, None, "drafting is to come back")
        )
    proportional = (
        draft.shrink is ShrinkPolicy.PROPORTIONAL
        and state.settings.mode is SpeculationMode.ADAPTIVE
    )
    settled = memory.phase is Phase.ON and memory.acknowledged_at is not None
    if not proportional or not settled:  # before, sessions have not come back yet
        return ScalingResult(memory)
    return _follow_sessions(state, hold)


def _follow_sessions(state: PassState, hold: Hold | None) -> ScalingResult:
    """Grow at once; shrink once fewer replicas would have sufficed for `after_seconds`."""
    draft, memory, grown = state.settings.draft, state.memory, state.memory.grown or 1
    wanted = _wanted(state, grown)
    if wanted == grown or hold is not None:
        calm = dataclasses.replace(memory, fewer_since=None) if wanted >= grown else memory
        return ScalingResult(calm, hold if wanted != grown else None)
    since = state.now if memory.fewer_since is None else memory.fewer_since
    if wanted < grown and state.now - since < draft.after_seconds:
        return ScalingResult(dataclasses.replace(memory, fewer_since=since))
    because = f"{_demand(state)} sessions wanted, {draft.sessions_per_replica} a draft"
    return ScalingResult(dataclasses.replace(memory, grown=wanted, fewer_since=None), None, because)


def _wanted(state: PassState, grown: int) -> int:
    needed = _demand(state) / state.settings.draft.sessions_per_replica
    if abs(needed / grown - 1) <= TOLERANCE:
        return grown
    return _bounded(state.settings.draft, math.ceil(needed))


def _demand(state: PassState) -> int:
    """Return the sessions that targets would open; full drafts hold fewer."""
    window = state.inputs.window
    running = round(window.running) if window is not None else 0
    return max(running, state.inputs.sessions or 0)


def _hold(state: PassState, late: bool) -> Hold | None:
    if state.inputs.rolling_out:
        return Hold.ROLLOUT_IN_PROGRESS
    return Hold.REPLICAS_PENDING if state.inputs.pending and not late else None


def _bounded(draft: ScalingRule, number: int) -> int:
    return min(max(number, draft.least_on), draft.max_replicas)
