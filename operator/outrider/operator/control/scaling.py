"""How many draft replicas there should be, and when that may change.

Off: drafting must be off at every target, then drafts are empty, then they are given back. On:
drafts come first. Never while replicas are pending or a roll-out goes on. Leaves the phases of
drafting to `phases`.
"""

import dataclasses
import math
from dataclasses import dataclass

from outrider.operator.control.memory import Memory, Phase
from outrider.operator.control.phases import Pass
from outrider.operator.control.reasons import Hold
from outrider.operator.control.settings import Mode, ScalingRule, Shrink

DRAIN_SECONDS = 30.0
"""Longest wait for sessions to leave drafts that no target uses any more."""
PENDING_SECONDS = 600.0
"""Drafts that are pending for so long are given back all the same: perhaps they never fit."""
TOLERANCE = 0.1
"""Share by which sessions may miss the replicas' capacity (as HPA and Kthena have it)."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """What came of one pass."""

    memory: Memory
    hold: Hold | None = None
    because: str = ""
    """Why the number changed, for people."""


def replicas(draft: ScalingRule, memory: Memory) -> int | None:
    """Replicas that are wanted now; None: not the loop's to say."""
    if not draft.managed or memory.grown is None:
        return None
    return draft.min_replicas if memory.shrunk else _bounded(draft, memory.grown)


def adopt(given: Pass) -> Memory:
    """Takes over the number as it is found, the first time and after somebody else had it."""
    draft, memory, desired = given.settings.draft, given.memory, given.seen.drafts_desired
    if not draft.managed or given.seen.contested:
        return dataclasses.replace(memory, grown=None, shrunk=False, fewer_since=None)
    if memory.grown is not None:
        return memory
    grown = _bounded(draft, desired or draft.least_on)
    shrunk = desired is not None and desired <= draft.min_replicas < grown
    return dataclasses.replace(memory, grown=grown, shrunk=shrunk)


def scale(given: Pass) -> Scaled:
    """The replicas after one pass; `given.memory` is that of after the phase's step."""
    memory, seen = given.memory, given.seen
    if not given.settings.draft.managed:
        return Scaled(memory)
    if seen.contested:
        return Scaled(memory, Hold.REPLICAS_CONTESTED)
    if given.settings.mode is Mode.ADAPTIVE and given.blind:
        return Scaled(memory)
    return _give_back(given) if memory.phase is Phase.OFF else _keep_up(given)


def _give_back(given: Pass) -> Scaled:
    """While drafting is off."""
    draft, memory, seen = given.settings.draft, given.memory, given.seen
    if draft.shrink is Shrink.NEVER or memory.shrunk:
        return Scaled(memory)
    settled = memory.acknowledged_at
    if memory.speculate or settled is None or seen.acknowledged < memory.version:
        return Scaled(memory, Hold.DRAINING)
    off = given.now - memory.switched_at
    if off < draft.after_seconds:
        return Scaled(memory)
    if seen.sessions != 0 and given.now - settled < DRAIN_SECONDS:
        return Scaled(memory, Hold.DRAINING)
    hold = _hold(given, late=off - draft.after_seconds >= PENDING_SECONDS)
    if hold is not None:
        return Scaled(memory, hold)
    because = f"drafting off for {off:.0f} s, {memory.because}"
    return Scaled(dataclasses.replace(memory, shrunk=True), None, because)


def _keep_up(given: Pass) -> Scaled:
    """While drafting is on, or is to come back."""
    draft, memory = given.settings.draft, given.memory
    hold = _hold(given, late=False)
    if memory.shrunk:
        back = dataclasses.replace(memory, shrunk=False)
        return Scaled(memory, hold) if hold else Scaled(back, None, "drafting is to come back")
    proportional = draft.shrink is Shrink.PROPORTIONAL and given.settings.mode is Mode.ADAPTIVE
    settled = memory.phase is Phase.ON and memory.acknowledged_at is not None
    if not proportional or not settled:  # before, sessions have not come back yet
        return Scaled(memory)
    return _follow_sessions(given, hold)


def _follow_sessions(given: Pass, hold: Hold | None) -> Scaled:
    """Grows at once, shrinks when fewer replicas would have done for a while."""
    draft, memory, grown = given.settings.draft, given.memory, given.memory.grown or 1
    wanted = _wanted(given, grown)
    if wanted == grown or hold is not None:
        calm = dataclasses.replace(memory, fewer_since=None) if wanted >= grown else memory
        return Scaled(calm, hold if wanted != grown else None)
    since = given.now if memory.fewer_since is None else memory.fewer_since
    if wanted < grown and given.now - since < draft.after_seconds:
        return Scaled(dataclasses.replace(memory, fewer_since=since))
    because = f"{_demand(given)} sessions wanted, {draft.sessions_per_replica} a draft"
    return Scaled(dataclasses.replace(memory, grown=wanted, fewer_since=None), None, because)


def _wanted(given: Pass, grown: int) -> int:
    needed = _demand(given) / given.settings.draft.sessions_per_replica
    if abs(needed / grown - 1) <= TOLERANCE:
        return grown
    return _bounded(given.settings.draft, math.ceil(needed))


def _demand(given: Pass) -> int:
    """Sessions that targets would open: full drafts hold fewer than that."""
    window = given.seen.window
    running = round(window.running) if window is not None else 0
    return max(running, given.seen.sessions or 0)


def _hold(given: Pass, late: bool) -> Hold | None:
    if given.seen.rolling_out:
        return Hold.ROLLOUT_IN_PROGRESS
    return Hold.REPLICAS_PENDING if given.seen.pending and not late else None


def _bounded(draft: ScalingRule, number: int) -> int:
    return min(max(number, draft.least_on), draft.max_replicas)
