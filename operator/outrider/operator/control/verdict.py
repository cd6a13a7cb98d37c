"""Verdict on one window: gain of drafting, and pressure on the targets.

Pure arithmetic on thresholds; `phases` counts the windows that it takes to act.

Gain is judged with its standard error: it is low only if it is surely so, and high only if it is
surely so. Pressure counts only where drafting may cause it: a draft of its own uses none of the
targets' KV but for a few node rows, and while it gains it shortens the queue (control-loop.md).
"""

import enum
from dataclasses import dataclass

from outrider.operator.control.break_even import BreakEven
from outrider.operator.control.reasons import LoopReason
from outrider.operator.control.samples import (
    CounterSample,
    Window,
    gain_deviation,
    gain_percent,
)
from outrider.operator.control.settings import (
    HIGH_KV_PERCENT,
    HIGH_QUEUE,
    LOW_KV_PERCENT,
    LOW_QUEUE,
    MIN_PASSES,
    ControlSettings,
)

SURE = 1.0
"""Standard errors by which a gain has to be on one side: two windows in a row, by which drafting
goes off, are then wrong once in 40 times."""


class Gain(enum.Enum):
    """Classes of gain, by the thresholds."""

    UNKNOWN = enum.auto()
    """Too few passes to say."""
    LOSING = enum.auto()
    """Plain decoding is faster, or targets turned drafting off by themselves."""
    LOW = enum.auto()
    """Under what keeps drafting on."""
    FAIR = enum.auto()
    """Enough to keep it on, or not surely less."""
    HIGH = enum.auto()
    """Enough to bring it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on one window."""

    gain: Gain
    percent: float | None
    """The gain that was judged; None: not known."""
    pressure: LoopReason | None
    """HIGH_QUEUE or HIGH_KV_USAGE, where drafting may cause it; None: neither."""
    quiet: bool
    """True if queue and KV are low enough for drafting to come back."""
    enough: bool
    """True if enough passes ran for a probe to be worth it."""
    gain_words: str
    """The gain, or why there is none, for messages."""
    numbers: str
    """Numbers that make the window bad, for messages."""

    @property
    def bad(self) -> LoopReason | None:
        """Why drafting should go off; None: it need not."""
        if self.pressure is not None and self.gain is not Gain.HIGH:
            return self.pressure
        return LoopReason.LOW_GAIN if self.gain in (Gain.LOSING, Gain.LOW) else None


def judge(settings: ControlSettings, window: Window, pays: BreakEven) -> Verdict:
    """Return the verdict on one window."""
    counters = _judged(settings, window)
    gain, pressure = _gain(settings, window, pays), _pressure(settings, window)
    words = _gain_in_words(window, counters, gain)
    under = f", {pays.off_below} % pays" if gain in (Gain.LOW, Gain.LOSING) and pays.share else ""
    return Verdict(
        gain=gain,
        percent=None if gain is Gain.UNKNOWN or window.declined else gain_percent(counters),
        pressure=pressure,
        quiet=window.waiting_per_target < LOW_QUEUE and 100 * window.kv_usage < LOW_KV_PERCENT,
        enough=window.counters.passes >= MIN_PASSES,
        gain_words=words,
        numbers=_pressure_in_words(window, pressure) or words + under,
    )


def _judged(settings: ControlSettings, window: Window) -> CounterSample:
    """Return the counters whose gain is judged.

    Drafts that can be given back have to pay for themselves over all targets. Those that stay cost
    nothing more, and a target whose own switch is off has decided for itself: only the others are
    judged, and its plain passes do not count against them.
    """
    return window.counters if settings.draft.returnable else window.drafting


def _gain(settings: ControlSettings, window: Window, pays: BreakEven) -> Gain:
    counters = _judged(settings, window)
    if window.declined and window.counters.passes >= MIN_PASSES:
        return Gain.LOSING
    percent = gain_percent(counters)
    if percent is None or counters.drafted_passes < MIN_PASSES:
        return Gain.UNKNOWN
    error = SURE * gain_deviation(counters)
    if percent + error < pays.off_below:
        return Gain.LOSING if percent + error < 100 else Gain.LOW
    return Gain.HIGH if percent - error >= pays.on_above else Gain.FAIR


def _pressure(settings: ControlSettings, window: Window) -> LoopReason | None:
    if not settings.draft.colocated:
        return None
    if 100 * window.kv_usage > HIGH_KV_PERCENT:
        return LoopReason.HIGH_KV_USAGE
    return LoopReason.HIGH_QUEUE if window.waiting_per_target > HIGH_QUEUE else None


def _pressure_in_words(window: Window, pressure: LoopReason | None) -> str:
    if pressure is LoopReason.HIGH_KV_USAGE:
        return f"KV {100 * window.kv_usage:.0f} % full"
    waiting = f"{window.waiting_per_target:.1f} requests waiting a target"
    return waiting if pressure is LoopReason.HIGH_QUEUE else ""


def _gain_in_words(window: Window, counters: CounterSample, gain: Gain) -> str:
    if window.declined and gain is Gain.LOSING:
        return "targets turned drafting off by themselves"
    percent = gain_percent(counters)
    if gain is Gain.UNKNOWN or percent is None:
        return f"gain unknown after {counters.drafted_passes:.0f} drafted passes"
    error = gain_deviation(counters)
    return f"gain {percent:.0f} %" + (f" ± {error:.0f}" if error >= 0.5 else "")
