"""Phases of drafting, from on to off and back: one step a pass.

```
        two bad windows, or no work                 a probe is due, or there is work again,
          ┌───────────────────────────────► Off ─── or queue and KV were quiet ─┐
          │                                  ▲ ▲                                │
          │                  the probe fails │ │                                ▼
         On ◄──────────────────────── Probing  └─ pressure, or no work ─── Waking
          ▲   four good windows          ▲                                 │  │
          │                              └────── linked, a probe ──────────┘  │
          └────────────────────────────────────── linked, no probe ───────────┘
```

On and Probing speculate, Off and Waking do not. Two such changes are at least the cool-down apart.
Leaves the ceiling of rows to `ceiling`, when to probe to `probes`, scaling drafts to `scaling`,
versions to `policy`. Nightjar (arXiv 2512.22420) switches for each step and charges a cost; the
slow switch here, above it, has dwell time and probes.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from outrider.operator.control import ceiling, probes
from outrider.operator.control.break_even import BreakEven, break_even
from outrider.operator.control.inputs import ControlInputs
from outrider.operator.control.memory import LoopMemory, Phase
from outrider.operator.control.reasons import LoopReason
from outrider.operator.control.settings import (
    DOWN_WINDOWS,
    UP_WINDOWS,
    ControlSettings,
    SpeculationMode,
)
from outrider.operator.control.verdict import Gain, Verdict, judge

LINK_SECONDS = 120.0
"""Time for waking drafts to link; after it the linked ones suffice, and none counts as lost."""
NOTED_SECONDS = 60.0
"""Time without work that is worth a write of the memory: bursts in between cost none."""
MAX_SHORT_STAYS = 3
"""Returns for short work that each double the work that it takes for the next: with the defaults it
then takes 8 minutes, so that bursts do not hold drafts that start too late for them."""
PRESSURE = (LoopReason.HIGH_QUEUE, LoopReason.HIGH_KV_USAGE)


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
    def verdict(self) -> Verdict | None:
        """Verdict on the window, if it counts: it began under the present policy and is new."""
        window, settled = self.inputs.window, self.memory.acknowledged_at
        if window is None or settled is None:
            return None
        if window.began < max(settled, self.memory.counted_until):
            return None
        return judge(self.settings, window, self.pays)

    @property
    def pays(self) -> BreakEven:
        """Thresholds of gain for the drafts that there are while drafting is on."""
        return break_even(self.settings, self.memory.grown or 0, self.inputs.targets)

    @property
    def idle(self) -> bool:
        """True if no target has had work for so long that drafts are given back."""
        draft, since = self.settings.draft, self.memory.idle_since
        if since is None or not draft.returnable or not draft.idle_seconds:
            return False
        window = self.inputs.window
        every = window is not None and not window.silent
        return every and self.now - since >= draft.idle_seconds

    @property
    def load(self) -> int:
        """Class of the load, for the records of probes."""
        window = self.inputs.window
        return 0 if window is None else probes.load_class(window.running_per_target)

    @property
    def cooled(self) -> bool:
        """True if the cool-down is over."""
        return self.now - self.memory.switched_at >= self.settings.cooldown_seconds

    @property
    def stayed(self) -> float:
        """Seconds in the phase."""
        return self.now - self.memory.entered_at

    @property
    def on_seconds(self) -> float:
        """Seconds since drafting went on, while it is on."""
        return self.now - self.memory.switched_at

    @property
    def linked(self) -> bool:
        """True if drafts can be used: all, or after `LINK_SECONDS` at least some."""
        inputs = self.inputs
        late = self.stayed >= LINK_SECONDS
        return self.settings.draft.colocated or inputs.linked or (late and inputs.links_up > 0)

    def counted(self, **changes: Any) -> LoopMemory:
        """Return the memory with changes that follow from the window, which then counts as used."""
        changed = dataclasses.replace(self.memory, **changes)
        if changed == self.memory or self.inputs.window is None:
            return self.memory
        return dataclasses.replace(changed, counted_until=self.inputs.window.ended)

    def enter(self, phase: Phase, **changes: Any) -> LoopMemory:
        """Return the memory at the start of another phase."""
        start: dict[str, Any] = {"phase": phase, "entered_at": self.now}
        start |= {"bad": 0, "good": 0, "fewer_since": None}
        if phase is Phase.WAKING:
            start["starts_drafts"] = self.memory.shrunk
        if self.inputs.window is not None and self.verdict is not None:
            start["counted_until"] = self.inputs.window.ended
        return dataclasses.replace(self.memory, **start | changes)


def follow_mode(state: PassState) -> LoopMemory:
    """Return the memory with the phase that the mode asks for, whatever is measured."""
    memory, mode = state.memory, state.settings.mode
    disabled = memory.phase is Phase.OFF and memory.cause is LoopReason.DISABLED_BY_USER
    if mode is SpeculationMode.DISABLED:
        because = state.settings.disabled_because
        if disabled:
            return dataclasses.replace(memory, because=because)
        return _off(state, LoopReason.DISABLED_BY_USER, because)
    if mode is SpeculationMode.STATIC and (
        memory.phase is not Phase.ON or memory.ceiling is not None
    ):
        return state.enter(Phase.ON, ceiling=None, records=())
    if mode is SpeculationMode.ADAPTIVE and disabled:
        return state.enter(Phase.WAKING, for_probe=False)
    return memory


def step(state: PassState) -> LoopMemory:
    """Return the memory after one pass of an adaptive service whose load is known."""
    noted = dataclasses.replace(state, memory=_note_idle(state))
    return STEPS[noted.memory.phase](noted)


def _note_idle(state: PassState) -> LoopMemory:
    """Return the memory with the time since when there is no work."""
    memory, window = state.memory, state.inputs.window
    quiet = None if window is None else window.quiet_since
    if quiet is None:
        return dataclasses.replace(memory, idle_since=None)
    if memory.idle_since is None and state.now - quiet >= NOTED_SECONDS:
        return dataclasses.replace(memory, idle_since=quiet)
    return memory


def _on(state: PassState) -> LoopMemory:
    verdict, memory = state.verdict, state.memory
    if state.idle and state.cooled:
        return _idle(state)
    if verdict is None:
        return memory
    if verdict.bad is None:
        raised = ceiling.raised(state.settings, memory, state.now)
        return state.counted(bad=0, **(raised if verdict.gain is Gain.HIGH else {}))
    bad = min(memory.bad + 1, DOWN_WINDOWS)
    if bad == DOWN_WINDOWS and state.cooled:
        return _out(state, verdict)
    return state.counted(bad=bad, **ceiling.lowered(state.settings, memory, state.now))


def _out(state: PassState, verdict: Verdict) -> LoopMemory:
    """Turn drafting off after bad windows."""
    cause = verdict.bad or LoopReason.LOW_GAIN
    if cause is not LoopReason.LOW_GAIN:
        return _off(state, cause, verdict.numbers)
    lasted = state.on_seconds >= probes.lasting_seconds(state.settings)
    return _off(state, cause, verdict.numbers, records=_records(state, verdict, lasted))


def _probing(state: PassState) -> LoopMemory:
    """Continue a probe that does not lose until its ceiling is the full one.

    A low ceiling may gain too little where the full one would gain enough. A probe that fails
    keeps the cause of before: the queue that it caused is no reason to come back once it is gone.
    """
    verdict, memory = state.verdict, state.memory
    if state.cooled and _shows_nothing(state):
        return _failed(state, verdict)
    if verdict is None or verdict.gain is Gain.UNKNOWN:
        return memory
    higher = ceiling.explored(state.settings, memory, state.now)
    if verdict.gain is Gain.HIGH:
        good = memory.good + 1
        if good >= UP_WINDOWS:
            return state.enter(Phase.ON, **higher)
        return state.counted(good=good, bad=0, **higher)
    open_end = verdict.gain is not Gain.LOSING and verdict.pressure is None
    if open_end and higher:
        return state.counted(good=0, bad=0, **higher)
    if memory.good and not memory.lowered:
        return state.counted(good=0, bad=0, **ceiling.stepped_back(memory, state.now))
    bad = min(memory.bad + 1, DOWN_WINDOWS)
    if bad == DOWN_WINDOWS and state.cooled:
        return _failed(state, verdict)
    return state.counted(good=0, bad=bad)


def _shows_nothing(state: PassState) -> bool:
    """True if a probe has had too little work for as long as an idle service keeps its drafts."""
    verdict, seconds = state.verdict, state.settings.draft.idle_seconds
    unknown = verdict is None or verdict.gain is Gain.UNKNOWN
    return state.idle or (unknown and 0 < seconds <= state.stayed)


def _failed(state: PassState, verdict: Verdict | None) -> LoopMemory:
    """Turn drafting off after a probe."""
    shown = "no work" if verdict is None else verdict.gain_words
    records = _records(state, verdict, lasted=False)
    return _off(state, state.memory.cause, f"a probe showed {shown}", records=records)


def _records(state: PassState, verdict: Verdict | None, lasted: bool) -> probes.Records:
    """Return the records after drafting went off for its gain.

    They are those of the load under which it went off and of that under which a probe was due: a
    load that swings between the two would else be probed for ever.
    """
    records, percent = state.memory.records, None if verdict is None else verdict.percent
    for load in {state.load, state.load if state.memory.load is None else state.memory.load}:
        record = probes.failed_again(probes.record_of(records, load), percent, lasted)
        records = probes.with_record(records, load, record)
    return records


def _waking(state: PassState) -> LoopMemory:
    verdict, memory = state.verdict, state.memory
    if state.idle:
        return _idle(state)
    if verdict is not None and not memory.for_probe:
        pressed = memory.bad + 1 if verdict.pressure else 0
        if verdict.pressure and pressed >= DOWN_WINDOWS:
            return _off(state, verdict.pressure, verdict.numbers)
        memory = state.counted(bad=pressed)
    if memory.bad or not (state.linked and state.cooled):
        return memory
    known = {"start_seconds": state.stayed} if memory.starts_drafts else {}
    return state.enter(Phase.PROBING if memory.for_probe else Phase.ON, **known)


def _from_off(state: PassState) -> LoopMemory:
    verdict, memory = state.verdict, state.memory
    if verdict is None:
        return memory
    if memory.cause is LoopReason.IDLE:
        busy = state.inputs.window is not None and state.inputs.window.quiet_since is None
        good = memory.good + 1 if busy else memory.good
        if good >= UP_WINDOWS << min(memory.short_stays, MAX_SHORT_STAYS):
            return state.enter(Phase.WAKING, for_probe=False)
        return state.counted(good=good)
    if memory.cause in PRESSURE:
        good = min(memory.good + 1, UP_WINDOWS) if verdict.quiet else 0
        if good == UP_WINDOWS:
            return state.enter(Phase.WAKING, for_probe=False)
        memory = state.counted(good=good)
    if state.stayed >= _probe_wait(state) and verdict.enough:
        return state.enter(Phase.WAKING, for_probe=True, load=state.load)
    return memory


def _probe_wait(state: PassState) -> float:
    memory = state.memory
    start = memory.start_seconds
    start = probes.UNKNOWN_START_SECONDS if start is None else start
    record = probes.record_of(memory.records, state.load)
    return probes.wait_seconds(state.settings, state.pays, record, start if memory.shrunk else 0.0)


STEPS = {
    Phase.ON: _on,
    Phase.PROBING: _probing,
    Phase.WAKING: _waking,
    Phase.OFF: _from_off,
}


def _off(state: PassState, cause: LoopReason, because: str, **changes: Any) -> LoopMemory:
    start = {"ceiling": 1, "raised_at": None, "lowered_at": None, "lowered": 0}
    return state.enter(Phase.OFF, cause=cause, because=because, **start | changes)


def _idle(state: PassState) -> LoopMemory:
    """Turn drafting off for want of work; it comes back as it was, or to be probed if it was off
    for another reason."""
    memory, since = state.memory, state.memory.idle_since
    because = f"no work for {state.now - (state.now if since is None else since):.0f} s"
    if memory.phase is Phase.WAKING and memory.for_probe:
        records = _records(state, None, lasted=False)
        return _off(state, memory.cause, because, records=records)
    worked = state.on_seconds - state.settings.draft.idle_seconds
    short = memory.speculate and worked < probes.lasting_seconds(state.settings)
    changes = {"ceiling": memory.ceiling, "short_stays": memory.short_stays + 1 if short else 0}
    return _off(state, LoopReason.IDLE, because, **changes)
