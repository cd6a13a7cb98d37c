"""Verdict on one window: gain of drafting, and pressure on the targets.

Pure arithmetic on thresholds; `phases` counts the windows that it takes to act.

Gain comes first (control-loop.md). A queue or full KV turns drafting off where gain is low or not
clearly high; where drafting clearly pays it shortens the queue, and without it targets could stay
overloaded for ever.
"""

import enum
from dataclasses import dataclass

from outrider.operator.control.reasons import Reason
from outrider.operator.control.samples import Window
from outrider.operator.control.settings import ControlSettings


class Gain(enum.Enum):
    """Classes of gain, by the thresholds of the settings."""

    UNKNOWN = enum.auto()
    """Too few passes to say."""
    LOSING = enum.auto()
    """Plain decoding is faster, or targets turned drafting off by themselves."""
    LOW = enum.auto()
    """Under what keeps drafting on."""
    FAIR = enum.auto()
    """Enough to keep it on."""
    HIGH = enum.auto()
    """Enough to bring it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on one window."""

    gain: Gain
    pressure: Reason | None
    """HIGH_QUEUE or HIGH_KV_USAGE; None: neither."""
    quiet: bool
    """True if queue and KV are low enough for drafting to come back."""
    enough: bool
    """True if enough passes ran for a probe to be worth it."""
    gain_words: str
    """The gain, or why there is none, for messages."""
    numbers: str
    """Numbers that make the window bad, for messages."""

    @property
    def bad(self) -> Reason | None:
        """Why drafting should go off; None: it need not."""
        if self.pressure is not None and self.gain is not Gain.HIGH:
            return self.pressure
        return Reason.LOW_GAIN if self.gain in (Gain.LOSING, Gain.LOW) else None

    @property
    def good(self) -> bool:
        """True if drafting paid."""
        return self.bad is None and self.gain is not Gain.UNKNOWN


def judge(settings: ControlSettings, window: Window) -> Verdict:
    """Return the verdict on one window."""
    gain, pressure = _gain(settings, window), _pressure(settings, window)
    words = _gain_in_words(window, gain)
    enable, usage = settings.enable, 100 * window.kv_usage
    return Verdict(
        gain=gain,
        pressure=pressure,
        quiet=window.waiting_per_target < enable.queue_below
        and usage < enable.kv_usage_below_percent,
        enough=window.counters.passes >= settings.control.min_passes,
        gain_words=words,
        numbers=_pressure_in_words(window, pressure) or words,
    )


def _gain(settings: ControlSettings, window: Window) -> Gain:
    percent, least = window.gain_percent, settings.control.min_passes
    if window.declined and window.counters.passes >= least:
        return Gain.LOSING
    if percent is None or window.counters.drafted_passes < least:
        return Gain.UNKNOWN
    if percent < settings.disable.gain_below_percent:
        return Gain.LOSING if percent < 100 else Gain.LOW
    return Gain.HIGH if percent >= settings.enable.gain_above_percent else Gain.FAIR


def _pressure(settings: ControlSettings, window: Window) -> Reason | None:
    if 100 * window.kv_usage > settings.disable.kv_usage_above_percent:
        return Reason.HIGH_KV_USAGE
    return Reason.HIGH_QUEUE if window.waiting_per_target > settings.disable.queue_above else None


def _pressure_in_words(window: Window, pressure: Reason | None) -> str:
    if pressure is Reason.HIGH_KV_USAGE:
        return f"KV {100 * window.kv_usage:.0f} % full"
    waiting = f"{window.waiting_per_target:.1f} requests waiting a target"
    return waiting if pressure is Reason.HIGH_QUEUE else ""


def _gain_in_words(window: Window, gain: Gain) -> str:
    if window.declined and gain is Gain.LOSING:
        return "targets turned drafting off by themselves"
    if gain is Gain.UNKNOWN or window.gain_percent is None:
        return f"gain unknown after {window.counters.drafted_passes:.0f} drafted passes"
    return f"gain {window.gain_percent:.0f} %"
