"""The way of drafting from on to off and back: one step a pass.

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

On and Probing speculate, Off and Waking do not. No two changes of that are closer than the
cool-down. Scaling drafts is `scaling`'s, versions are `policy`'s. Nightjar (arXiv 2512.22420)
switches for each step and charges a cost; here the slow switch above it has dwell and probes.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from outrider.operator.control.inputs import Seen
from outrider.operator.control.memory import MAX_FAILED_PROBES, Memory, Phase
from outrider.operator.control.reasons import Reason
from outrider.operator.control.settings import ControlSettings, Mode
from outrider.operator.control.verdict import Gain, Verdict, judge

LINK_SECONDS = 120.0
"""How long waking drafts may take to link: then those that are linked do, and none is a loss."""
PRESSURE = (Reason.HIGH_QUEUE, Reason.HIGH_KV_USAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass has to go by."""

    settings: ControlSettings
    memory: Memory
    seen: Seen
    now: float

    @property
    def blind(self) -> bool:
        """Whether nothing is known of the targets' load."""
        window = self.seen.window
        return window is None or self.now - window.ended > self.settings.stale_after_seconds

    @property
    def verdict(self) -> Verdict | None:
        """On the window, if it counts: it is of the present setting and was not counted before."""
        window, settled = self.seen.window, self.memory.acknowledged_at
        if window is None or settled is None:
            return None
        if window.began < max(settled, self.memory.counted_until):
            return None
        return judge(self.settings, window)

    @property
    def cooled(self) -> bool:
        """Whether drafting may be switched again."""
        return self.now - self.memory.switched_at >= self.settings.control.cooldown_seconds

    @property
    def stayed(self) -> float:
        """Seconds in the phase."""
        return self.now - self.memory.entered_at

    @property
    def linked(self) -> bool:
        """Whether drafts can be used: all, or after a while at least some."""
        seen = self.seen
        late = self.stayed >= LINK_SECONDS
        return self.settings.draft.colocated or seen.linked or (late and seen.links_up > 0)

    def counted(self, **changes: Any) -> Memory:
        """The memory with changes that follow from the window, which thereby has counted."""
        changed = dataclasses.replace(self.memory, **changes)
        if changed == self.memory or self.seen.window is None:
            return self.memory
        return dataclasses.replace(changed, counted_until=self.seen.window.ended)

    def enter(self, phase: Phase, **changes: Any) -> Memory:
        """The memory at the start of another phase."""
        start: dict[str, Any] = {"phase": phase, "entered_at": self.now}
        start |= {"bad": 0, "good": 0, "fewer_since": None}
        if self.seen.window is not None and self.verdict is not None:
            start["counted_until"] = self.seen.window.ended
        return dataclasses.replace(self.memory, **start | changes)


def follow_mode(given: Pass) -> Memory:
    """The phase that the mode asks for, whatever is measured."""
    memory, mode = given.memory, given.settings.mode
    disabled = memory.phase is Phase.OFF and memory.cause is Reason.DISABLED_BY_USER
    if mode is Mode.DISABLED and not disabled:
        return _off(given, Reason.DISABLED_BY_USER, "by the service")
    if mode is Mode.STATIC and (memory.phase is not Phase.ON or memory.ceiling is not None):
        return given.enter(Phase.ON, ceiling=None, failed_probes=0)
    if mode is Mode.ADAPTIVE and disabled:
        return given.enter(Phase.WAKING, for_probe=False)
    return memory


def step(given: Pass) -> Memory:
    """The memory after one pass of an adaptive service whose load is known."""
    return STEPS[given.memory.phase](given)


def _on(given: Pass) -> Memory:
    verdict, memory = given.verdict, given.memory
    if verdict is None:
        return memory
    if verdict.bad is None:
        return given.counted(bad=0, ceiling=_raised(given) if verdict.good else memory.ceiling)
    bad = min(memory.bad + 1, given.settings.control.down_windows)
    if bad == given.settings.control.down_windows and given.cooled:
        return _off(given, verdict.bad, verdict.numbers)
    return given.counted(bad=bad, ceiling=max(1, memory.max_rows // 2))


def _probing(given: Pass) -> Memory:
    """A probe that does not lose goes on until its ceiling is the full one.

    A low ceiling may gain too little where the full one would gain enough. A probe that fails
    leaves the cause as it was: the queue that it made is no reason to come back once it is gone.
    """
    verdict, memory = given.verdict, given.memory
    if verdict is None or verdict.gain is Gain.UNKNOWN:
        return memory
    if verdict.gain is Gain.HIGH:
        good = memory.good + 1
        if good >= given.settings.control.up_windows:
            return given.enter(Phase.ON, failed_probes=0, ceiling=_raised(given))
        return given.counted(good=good, ceiling=_raised(given))
    open_end = verdict.gain is not Gain.LOSING and verdict.pressure is None
    if open_end and memory.ceiling is not None:
        return given.counted(good=0, ceiling=_raised(given))
    if not given.cooled:
        return memory
    failed = min(memory.failed_probes + 1, MAX_FAILED_PROBES)
    shown = f"a probe showed {verdict.gain_words}"
    return _off(given, memory.cause, shown, failed_probes=failed)


def _waking(given: Pass) -> Memory:
    verdict, memory = given.verdict, given.memory
    if verdict is not None and not memory.for_probe:
        pressed = memory.bad + 1 if verdict.pressure else 0
        if verdict.pressure and pressed >= given.settings.control.down_windows:
            return _off(given, verdict.pressure, verdict.numbers)
        memory = given.counted(bad=pressed)
    if memory.bad or not (given.linked and given.cooled):
        return memory
    return given.enter(Phase.PROBING if memory.for_probe else Phase.ON)


def _from_off(given: Pass) -> Memory:
    verdict, memory = given.verdict, given.memory
    if verdict is None:
        return memory
    rhythm = given.settings.control
    if memory.cause in PRESSURE:
        good = min(memory.good + 1, rhythm.up_windows) if verdict.quiet else 0
        if good == rhythm.up_windows:
            return given.enter(Phase.WAKING, for_probe=False)
        memory = given.counted(good=good)
    due = rhythm.probe_interval_seconds * 2**memory.failed_probes
    if given.stayed >= due and verdict.enough:
        return given.enter(Phase.WAKING, for_probe=True)
    return memory


STEPS = {
    Phase.ON: _on,
    Phase.PROBING: _probing,
    Phase.WAKING: _waking,
    Phase.OFF: _from_off,
}


def _off(given: Pass, cause: Reason, because: str, **changes: Any) -> Memory:
    return given.enter(Phase.OFF, cause=cause, because=because, ceiling=1, **changes)


def _raised(given: Pass) -> int | None:
    """Twice the ceiling; None once that is the settings' own."""
    ceiling = given.memory.ceiling
    doubled = 2 * (given.settings.max_rows if ceiling is None else ceiling)
    return None if doubled >= given.settings.max_rows else doubled
