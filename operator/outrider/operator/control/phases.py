"""Phases of drafting, from on to off and back: one step a pass.

```
       it does not pay, or no work      a probe is due, or there is work again
         ┌─────────────────────► Off ─────────────┐
         │                       ▲ ▲              ▼
         │       the probe fails │ └─ no work ─ Waking
         │                       │               │ │
         On ◄──────────────── Probing ◄──────────┘ │  linked, a probe
         ▲    the probe pays                       │
         └─────────────────────────────────────────┘  linked, no probe
```

On and Probing speculate, Off and Waking do not. Drafting goes off where that gives hardware back,
and nowhere else: whether a draft that is there is worth its rows is for the targets to say, whose
own switches decide within seconds. Before it goes off, fewer rows are tried. Leaves the test of
gain to `evidence`, when to probe to `probes`, scaling drafts to `scaling`, versions to `policy`.
Nightjar (arXiv 2512.22420) switches for each step and charges a cost; the slow switch here, above
it, has a test and priced probes.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from outrider.operator.control import probes
from outrider.operator.control.break_even import BreakEven, break_even
from outrider.operator.control.evidence import Evidence, GainWindow
from outrider.operator.control.inputs import ControlInputs
from outrider.operator.control.memory import LoopMemory, Phase
from outrider.operator.control.reasons import LoopReason
from outrider.operator.control.settings import (
    MIN_PASSES,
    WINDOWS,
    ControlSettings,
    SpeculationMode,
)

LINK_SECONDS = 120.0
"""Time for waking drafts to link; after it the linked ones suffice, and none counts as lost."""
LOWERED = 4
"""Factor by which the ceiling of rows is lowered before drafting goes off, and raised again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassState:
    """Input of one step: settings, memory and inputs of a pass."""

    settings: ControlSettings
    memory: LoopMemory
    inputs: ControlInputs
    now: float

    @property
    def blind(self) -> bool:
        """True if the targets' load is not known."""
        window = self.inputs.window
        return window is None or self.now - window.ended > self.settings.stale_after_seconds

    @property
    def fresh(self) -> list[GainWindow]:
        """Windows that have come since evidence was judged last; empty: too few have.

        A window counts once, and only if it began after the last switch was acknowledged.
        """
        settled = self.memory.acknowledged_at
        if settled is None:
            return []
        since = max(settled, self.memory.counted_until)
        fresh = [one for one in self.inputs.gains if one.began >= since]
        return fresh if len(fresh) >= WINDOWS else []

    @property
    def evidence(self) -> Evidence | None:
        """Evidence with the fresh windows; None: there are none."""
        fresh = self.fresh
        return self.memory.evidence.add(fresh) if fresh else None

    @property
    def unused_since(self) -> float | None:
        """Since when no target has used drafts, by the fresh windows too; None: one has."""
        if any(one.used for one in self.fresh):
            return None
        since = self.memory.unused_since
        return self.fresh[0].began if since is None else since

    @property
    def ceiling(self) -> int:
        """Ceiling of node rows of one sequence in one pass."""
        own, memory = self.settings.max_rows, self.memory
        whole = memory.lowered_at is None or memory.phase is Phase.PROBING
        return own if whole else max(1, own // LOWERED)

    @property
    def returns(self) -> bool:
        """True if drafting that is off gives hardware back."""
        return self.settings.draft.returns(self.memory.grown or 0)

    @property
    def pays(self) -> BreakEven:
        """Thresholds of gain for the drafts that there are while drafting is on."""
        return break_even(self.settings, self.memory.grown or 0, self.inputs.targets)

    @property
    def idle(self) -> bool:
        """True if no target has had work for so long that drafts are given back."""
        return self.is_long(self.memory.idle_since)

    def is_long(self, since: float | None) -> bool:
        """True if all targets have done without drafts for so long that they are given back."""
        idle_seconds, window = self.settings.draft.idle_seconds, self.inputs.window
        if since is None or not self.returns or not idle_seconds:
            return False
        every = window is not None and not window.silent
        return every and self.now - since >= idle_seconds

    @property
    def load(self) -> float:
        """Requests that run at a target."""
        window = self.inputs.window
        return 0.0 if window is None else window.running_per_target

    @property
    def cooled(self) -> bool:
        """True if the last switch is long enough ago for another one."""
        return self.now - self.memory.switched_at >= self.settings.judged_seconds

    @property
    def stayed(self) -> float:
        """Seconds in the phase."""
        return self.now - self.memory.entered_at

    @property
    def linked(self) -> bool:
        """True if drafts can be used: all, or after `LINK_SECONDS` at least some."""
        inputs = self.inputs
        late = self.stayed >= LINK_SECONDS
        return self.settings.draft.colocated or inputs.linked or (late and inputs.links_up > 0)

    def counted(self, **changes: Any) -> LoopMemory:
        """Return the memory with changes that follow from windows, which then count as used."""
        window = self.inputs.window
        until = self.now if window is None else window.ended
        return dataclasses.replace(self.memory, counted_until=until, **changes)

    def enter(self, phase: Phase, **changes: Any) -> LoopMemory:
        """Return the memory at the start of another phase."""
        start: dict[str, Any] = {"phase": phase, "entered_at": self.now, "fewer_since": None}
        start |= {"evidence": Evidence(), "busy": 0, "probe_due": False}
        start |= {"lowered_at": None, "unused_since": None}
        if phase is Phase.WAKING:
            start["starts_drafts"] = self.memory.shrunk
        return dataclasses.replace(self.memory, **start | changes)


NEVER_DRAFTS = (LoopReason.NO_DRAFT, LoopReason.DISABLED_BY_USER)
"""Causes that keep drafting off whatever is measured."""


def why_never(settings: ControlSettings) -> LoopReason | None:
    """Return why the service never drafts; None: it drafts where that pays."""
    if settings.draftless:
        return LoopReason.NO_DRAFT
    disabled = settings.mode is SpeculationMode.DISABLED
    return LoopReason.DISABLED_BY_USER if disabled else None


def follow_mode(state: PassState) -> LoopMemory:
    """Return the memory with the phase that the mode asks for, whatever is measured."""
    memory, mode = state.memory, state.settings.mode
    disabled = memory.phase is Phase.OFF and memory.cause in NEVER_DRAFTS
    if (cause := why_never(state.settings)) is not None:
        because = state.settings.draftless or "speculation.mode is Disabled"
        if disabled:
            return dataclasses.replace(memory, cause=cause, because=because)
        return _off(state, cause, because)
    whole = memory.phase is Phase.ON and memory.lowered_at is None
    if mode is SpeculationMode.STATIC and not whole:
        return state.enter(Phase.ON, failed=0, least_load=None)
    if mode is SpeculationMode.ADAPTIVE and disabled:
        return state.enter(Phase.WAKING, for_probe=False)
    return memory


def forget(state: PassState) -> LoopMemory:
    """Return the memory without what was learned of other models, pods or limits."""
    memory, subject = state.memory, state.inputs.subject
    if subject == memory.subject:
        return memory
    if not memory.subject:
        return dataclasses.replace(memory, subject=subject)
    return dataclasses.replace(
        memory,
        subject=subject,
        evidence=Evidence(),
        lowered_at=None,
        failed=0,
        least_load=None,
        start_seconds=None,
        counted_until=state.now,
        probe_due=memory.phase is Phase.OFF and memory.cause is LoopReason.LOW_GAIN,
    )


def step(state: PassState) -> LoopMemory:
    """Return the memory after one pass of an adaptive service whose load is known."""
    noted = dataclasses.replace(state, memory=_note_idle(state))
    return STEPS[noted.memory.phase](noted)


def _note_idle(state: PassState) -> LoopMemory:
    """Return the memory with the time since when there is no work; bursts in between are not worth
    a write of it."""
    memory, window = state.memory, state.inputs.window
    quiet = None if window is None else window.quiet_since
    if quiet is None:
        return dataclasses.replace(memory, idle_since=None)
    if memory.idle_since is None and state.now - quiet >= state.settings.judged_seconds:
        return dataclasses.replace(memory, idle_since=quiet)
    return memory


def _on(state: PassState) -> LoopMemory:
    memory, evidence = state.memory, state.evidence
    if not state.returns:
        return dataclasses.replace(memory, lowered_at=None)
    if state.idle and state.cooled:
        return _idle(state)
    if evidence is None or not state.cooled:
        return memory
    lowered, unused = memory.lowered_at, state.unused_since
    if unused is not None and state.is_long(unused):
        because = f"no target has used drafts for {state.now - unused:.0f} s"
        return _not_worth_it(state, because, unused_since=unused)
    if evidence.is_surely_under(state.pays.off_below):
        if lowered is None and state.settings.max_rows > 1:
            return state.counted(lowered_at=state.now, evidence=Evidence(), unused_since=unused)
        pays = f", {state.pays.off_below} % pays" if state.pays.share else ""
        return _not_worth_it(state, evidence.words + pays)
    stood = lowered is not None and state.now - lowered >= _wait(state, memory.failed)
    if stood and evidence.is_surely_over(state.pays.on_above):
        return state.enter(Phase.PROBING, lowered_at=lowered, evidence=evidence)
    return state.counted(evidence=evidence, unused_since=unused)


def _probing(state: PassState) -> LoopMemory:
    memory, patience = state.memory, state.settings.draft.idle_seconds
    shown = Evidence().add(state.fresh)
    if shown.is_surely_over(state.pays.on_above):
        learned = {"evidence": state.evidence, "failed": 0, "least_load": None, "for_probe": False}
        return dataclasses.replace(state, memory=state.counted()).enter(Phase.ON, **learned)
    judged = state.fresh or state.idle or 0 < patience <= state.stayed
    if not state.cooled or not judged:
        return memory
    if memory.lowered_at is not None:
        back = {"lowered_at": state.now, "evidence": memory.evidence, "failed": memory.failed + 1}
        return state.enter(Phase.ON, **back)
    return _failed(state, f"a probe showed {shown.words if state.fresh else 'no work'}")


def _waking(state: PassState) -> LoopMemory:
    memory = state.memory
    if state.idle:
        return _failed(state, _no_work(state)) if memory.for_probe else _idle(state)
    if not (state.linked and state.cooled):
        return memory
    known = {"start_seconds": state.stayed} if memory.starts_drafts else {}
    return state.enter(Phase.PROBING if memory.for_probe else Phase.ON, **known)


def _from_off(state: PassState) -> LoopMemory:
    memory, window = state.memory, state.inputs.window
    if not state.returns:
        return state.enter(Phase.WAKING, for_probe=False)
    if window is None or window.began < max(memory.entered_at, memory.counted_until):
        return memory
    works = window.counters.passes >= MIN_PASSES
    if memory.cause is LoopReason.IDLE:
        busy = memory.busy + (window.quiet_since is None)
        rests = memory.failed > 0 and state.stayed < _wait(state, memory.failed)
        if busy >= WINDOWS and not rests:
            return state.enter(Phase.WAKING, for_probe=False)
        return state.counted(busy=busy) if memory.busy < busy <= WINDOWS else memory
    if works and not state.inputs.rolling_out and (memory.probe_due or _is_due(state)):
        least = state.load if memory.least_load is None else min(memory.least_load, state.load)
        return state.enter(Phase.WAKING, for_probe=True, least_load=least)
    return memory


def _is_due(state: PassState) -> bool:
    """True if a probe is worth its price. What failed says little of less than half of the load;
    the memory has the load of each probe, so that such probes do not follow each other for ever."""
    least = state.memory.least_load
    lighter = least is not None and state.load < least / 2
    return state.cooled if lighter else state.stayed >= _wait(state, state.memory.failed)


def _wait(state: PassState, failed: int) -> float:
    starts = (state.memory.start_seconds or 0.0) if state.memory.shrunk else 0.0
    return probes.wait_seconds(state.settings, failed, starts)


STEPS = {
    Phase.ON: _on,
    Phase.PROBING: _probing,
    Phase.WAKING: _waking,
    Phase.OFF: _from_off,
}


def _off(state: PassState, cause: LoopReason, because: str, **changes: Any) -> LoopMemory:
    return state.enter(Phase.OFF, cause=cause, because=because, **changes)


def _failed(state: PassState, because: str) -> LoopMemory:
    """Turn drafting off after a probe; the memory has the load with which it began."""
    return _off(state, LoopReason.LOW_GAIN, because, failed=state.memory.failed + 1)


def _not_worth_it(state: PassState, because: str, **changes: Any) -> LoopMemory:
    return _off(state, LoopReason.LOW_GAIN, because, least_load=state.load, failed=0, **changes)


def _idle(state: PassState) -> LoopMemory:
    """Turn drafting off for want of work."""
    memory, on = state.memory, state.now - state.memory.switched_at
    short = memory.speculate and on < 2 * state.settings.draft.idle_seconds
    failed = memory.failed + 1 if short else 0
    return _off(state, LoopReason.IDLE, _no_work(state), failed=failed)


def _no_work(state: PassState) -> str:
    since = state.memory.idle_since
    return f"no work for {state.now - (state.now if since is None else since):.0f} s"
