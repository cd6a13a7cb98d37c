"""Phases of drafting, from on to off and back: one step a pass.

```
              down_windows bad windows                    a probe is due, or
          ┌───────────────────────────────► Off ────────────────────────────┐
          │                                  ▲ ▲   queue and KV were quiet  │
          │                  the probe loses │ │   for up_windows           ▼
         On ◄──────────────────────── Probing  └─── pressure again ─── Waking
          ▲   up_windows good windows    ▲                              │  │
          │                              └────── linked, a probe ───────┘  │
          └────────────────────────────────────── linked, no probe ────────┘
```

On and Probing speculate, Off and Waking do not. Two such changes are at least the cool-down apart.
Leaves scaling drafts to `scaling`, versions to `policy`. Nightjar (arXiv 2512.22420) switches for
each step and charges a cost; the slow switch here, above it, has dwell time and probes.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from outrider.operator.control.inputs import ControlInputs
from outrider.operator.control.memory import MAX_FAILED_PROBES, Memory, Phase
from outrider.operator.control.reasons import Reason
from outrider.operator.control.settings import ControlSettings, Mode
from outrider.operator.control.verdict import Gain, Verdict, judge

LINK_SECONDS = 120.0
"""Time for waking drafts to link; after it the linked ones suffice, and none counts as lost."""
PRESSURE = (Reason.HIGH_QUEUE, Reason.HIGH_KV_USAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassState:
    """Input of one step: settings, memory and inputs of a pass."""

    settings: ControlSettings
    memory: Memory
    inputs: ControlInputs
    now: float

    @property
    def blind(self) -> bool:
        """True if the targets' load is not known."""
        window = self.inputs.window
        return window is None or self.now - window.ended > self.settings.stale_after_seconds

    @property
    def verdict(self) -> Verdict | None:
        """Verdict on the window, if it counts: it began under the present policy and is new."""
        window, settled = self.inputs.window, self.memory.acknowledged_at
        if window is None or settled is None:
            return None
        if window.began < max(settled, self.memory.counted_until):
            return None
        return judge(self.settings, window)

    @property
    def cooled(self) -> bool:
        """True if the cool-down is over."""
        return self.now - self.memory.switched_at >= self.settings.control.cooldown_seconds

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

    def counted(self, **changes: Any) -> Memory:
        """Return the memory with changes that follow from the window, which then counts as used."""
        changed = dataclasses.replace(self.memory, **changes)
        if changed == self.memory or self.inputs.window is None:
            return self.memory
        return dataclasses.replace(changed, counted_until=self.inputs.window.ended)

    def enter(self, phase: Phase, **changes: Any) -> Memory:
        """Return the memory at the start of another phase."""
        start: dict[str, Any] = {"phase": phase, "entered_at": self.now}
        start |= {"bad": 0, "good": 0, "fewer_since": None}
        if self.inputs.window is not None and self.verdict is not None:
            start["counted_until"] = self.inputs.window.ended
        return dataclasses.replace(self.memory, **start | changes)


def follow_mode(state: PassState) -> Memory:
    """Return the memory with the phase that the mode asks for, whatever is measured."""
    memory, mode = state.memory, state.settings.mode
    disabled = memory.phase is Phase.OFF and memory.cause is Reason.DISABLED_BY_USER
    if mode is Mode.DISABLED and not disabled:
        return _off(state, Reason.DISABLED_BY_USER, "by the service")
    if mode is Mode.STATIC and (memory.phase is not Phase.ON or memory.ceiling is not None):
        return state.enter(Phase.ON, ceiling=None, failed_probes=0)
    if mode is Mode.ADAPTIVE and disabled:
        return state.enter(Phase.WAKING, for_probe=False)
    return memory


def step(state: PassState) -> Memory:
    """Return the memory after one pass of an adaptive service whose load is known."""
    return STEPS[state.memory.phase](state)


def _on(state: PassState) -> Memory:
    verdict, memory = state.verdict, state.memory
    if verdict is None:
        return memory
    if verdict.bad is None:
        return state.counted(bad=0, ceiling=_raised(state) if verdict.good else memory.ceiling)
    bad = min(memory.bad + 1, state.settings.control.down_windows)
    if bad == state.settings.control.down_windows and state.cooled:
        return _off(state, verdict.bad, verdict.numbers)
    return state.counted(bad=bad, ceiling=max(1, memory.max_rows // 2))


def _probing(state: PassState) -> Memory:
    """Continue a probe that does not lose until its ceiling is the full one.

    A low ceiling may gain too little where the full one would gain enough. A probe that fails
    keeps the cause of before: the queue that it caused is no reason to come back once it is gone.
    """
    verdict, memory = state.verdict, state.memory
    if verdict is None or verdict.gain is Gain.UNKNOWN:
        return memory
    if verdict.gain is Gain.HIGH:
        good = memory.good + 1
        if good >= state.settings.control.up_windows:
            return state.enter(Phase.ON, failed_probes=0, ceiling=_raised(state))
        return state.counted(good=good, ceiling=_raised(state))
    open_end = verdict.gain is not Gain.LOSING and verdict.pressure is None
    if open_end and memory.ceiling is not None:
        return state.counted(good=0, ceiling=_raised(state))
    if not state.cooled:
        return memory
    failed = min(memory.failed_probes + 1, MAX_FAILED_PROBES)
    shown = f"a probe showed {verdict.gain_words}"
    return _off(state, memory.cause, shown, failed_probes=failed)


def _waking(state: PassState) -> Memory:
    verdict, memory = state.verdict, state.memory
    if verdict is not None and not memory.for_probe:
        pressed = memory.bad + 1 if verdict.pressure else 0
        if verdict.pressure and pressed >= state.settings.control.down_windows:
            return _off(state, verdict.pressure, verdict.numbers)
        memory = state.counted(bad=pressed)
    if memory.bad or not (state.linked and state.cooled):
        return memory
    return state.enter(Phase.PROBING if memory.for_probe else Phase.ON)


def _from_off(state: PassState) -> Memory:
    verdict, memory = state.verdict, state.memory
    if verdict is None:
        return memory
    rhythm = state.settings.control
    if memory.cause in PRESSURE:
        good = min(memory.good + 1, rhythm.up_windows) if verdict.quiet else 0
        if good == rhythm.up_windows:
            return state.enter(Phase.WAKING, for_probe=False)
        memory = state.counted(good=good)
    due = rhythm.probe_interval_seconds * 2**memory.failed_probes
    if state.stayed >= due and verdict.enough:
        return state.enter(Phase.WAKING, for_probe=True)
    return memory


STEPS = {
    Phase.ON: _on,
    Phase.PROBING: _probing,
    Phase.WAKING: _waking,
    Phase.OFF: _from_off,
}


def _off(state: PassState, cause: Reason, because: str, **changes: Any) -> Memory:
    return state.enter(Phase.OFF, cause=cause, because=because, ceiling=1, **changes)


def _raised(state: PassState) -> int | None:
    """Return twice the ceiling; None once that is the settings' own."""
    ceiling = state.memory.ceiling
    doubled = 2 * (state.settings.max_rows if ceiling is None else ceiling)
    return None if doubled >= state.settings.max_rows else doubled
