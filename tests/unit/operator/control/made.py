"""Samples, windows and sights for tests, with everything in order unless said otherwise."""

import dataclasses
from typing import Any

from outrider.operator.control.evidence import GainWindow
from outrider.operator.control.inputs import ControlInputs, Decision
from outrider.operator.control.memory import LoopMemory, Phase
from outrider.operator.control.policy import decide
from outrider.operator.control.samples import CounterSample, DraftSample, TargetSample, Window
from outrider.operator.control.settings import (
    WINDOWS,
    ControlSettings,
    ScalingRule,
    SpeculationMode,
)

START = 1_000_000.0
SETTINGS = ControlSettings()


def target(uid: str = "t0", at: float = 0.0, **values: Any) -> TargetSample:
    names = {field.name for field in dataclasses.fields(CounterSample)}
    counted = CounterSample(**{name: values.pop(name) for name in names & values.keys()})
    calm = {"waiting": 0, "running": 1, "kv_usage": 0.1}
    return TargetSample(
        uid=uid, at=at, counters=counted, **{**calm, "links_up": 1, "links": 1, **values}
    )


def draft(uid: str = "d0", at: float = 0.0, sessions: int = 0) -> DraftSample:
    return DraftSample(uid=uid, at=at, sessions=sessions, kv_usage=0.0)


def window(
    began: float,
    ended: float,
    *,
    gain: float = 130,
    passes: float = 1000,
    running: float = 4,
    quiet_since: float | None = None,
    silent: int = 0,
) -> Window:
    """`gain` in percent."""
    counters = CounterSample(plain_seconds=gain / 10, spent_seconds=10, passes=passes)
    return Window(
        began=began,
        ended=ended,
        targets=1,
        counters=counters,
        quiet_since=quiet_since,
        silent=silent,
        waiting=0,
        running=running,
        kv_usage=0.1,
    )


def memory(phase: Phase = Phase.ON, **values: Any) -> LoopMemory:
    """One that has been in its phase for long, with 2 drafts."""
    times = ("entered_at", "switched_at", "acknowledged_at", "counted_until")
    rest = dict.fromkeys(times, START)
    on = phase in (Phase.ON, Phase.PROBING)
    pushed = {"version": 7, "speculate": on, "max_rows": 16, "grown": 2}
    return LoopMemory(phase=phase, **{**rest, **pushed, **values})


def lowered(**values: Any) -> LoopMemory:
    """One whose ceiling of rows was lowered long ago."""
    return memory(**{"lowered_at": START, "max_rows": 4, **values})


def inputs(**values: Any) -> ControlInputs:
    """Two drafts, linked and empty, of a service whose targets follow the policy."""
    drafts = {"drafts_desired": 2, "drafts_actual": 2, "drafts_ready": 2}
    links = {"links_up": 2, "links_expected": 2, "sessions": 0, "acknowledged": 1 << 40}
    return ControlInputs(**{"window": None, **drafts, **links, **values})


def settings(**values: Any) -> ControlSettings:
    """Return settings; keys of the scaling rule's own fields go to it."""
    own = {f.name for f in dataclasses.fields(ScalingRule)} & values.keys()
    scaling = ScalingRule(**{key: values.pop(key) for key in own})
    return ControlSettings(draft=scaling, **values)


DISABLED = settings(mode=SpeculationMode.DISABLED)
STATIC = settings(mode=SpeculationMode.STATIC)


class Service:
    """A service that does at once what is decided, one window a pass."""

    def __init__(
        self, start: LoopMemory, control: ControlSettings = SETTINGS, **sight: Any
    ) -> None:
        self.memory, self.settings, self.sight = start, control, sight
        self.now = START + 1000.0
        self.drafts: int | None = 2
        self.gains: tuple[GainWindow, ...] = ()
        self.used = True
        self.decided: list[Decision] = []

    def passes(self, count: int = 1, **load: Any) -> Decision:
        """Run passes with a window of the same kind each; `load` as `window` takes it."""
        for _ in range(count):
            self.now += self.settings.interval_seconds
            whole = window(self.now - self.settings.interval_seconds, self.now, **load)
            if (percent := whole.gain_percent) is not None and whole.counters.passes:
                measured = GainWindow(whole.began, whole.ended, percent / 100, 10.0, self.used)
                self.gains = (*self.gains, measured)[-WINDOWS:]
            number = {"drafts_desired": self.drafts, "drafts_actual": self.drafts or 0}
            links = {"drafts_ready": self.drafts or 0, "links_up": self.drafts or 0}
            expected = {"links_expected": self.drafts or 0, "acknowledged": self.memory.version}
            sight = inputs(
                **{
                    "window": whole,
                    "gains": self.gains,
                    **number,
                    **links,
                    **expected,
                    **self.sight,
                }
            )
            decision = decide(self.settings, self.memory, sight, self.now)
            self.memory, self.drafts = decision.memory, decision.draft_replicas
            self.decided.append(decision)
        return self.decided[-1]
