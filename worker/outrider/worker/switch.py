"""Whether drafting is on at all: a slow decision by gain, with hysteresis, dwell and probes.

Leaves telling the draft to the scheduler, and the clock to the caller. PROTOCOL.md §3: gain is
plain-equivalent seconds of the committed tokens divided by the seconds spent.
"""

import enum
import math
from dataclasses import dataclass


class Drafting(enum.Enum):
    """What the switch wants."""

    ON = "on"
    OFF = "off"
    PROBE = "probe"
    """On for a moment, to see whether it would pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """When the switch moves."""

    off_below: float = 1.05
    """Gain under which drafting goes off; a draft that gains less is not worth its hardware."""
    on_above: float = 1.15
    """Gain that a probe must show for drafting to come back."""
    window_seconds: float = 4.0
    """Memory of the measured gain."""
    dwell_seconds: float = 5.0
    """Shortest stay on before the first decision, and after coming back."""
    probe_seconds: float = 1.0
    """Busy seconds of one probe."""
    probe_every_seconds: float = 15.0
    """Time off before the first probe; doubles with each probe that fails."""
    probe_at_most_every_seconds: float = 240.0
    """Longest time between probes."""


class Switch:
    """Turns drafting off where it does not pay, and on again once a probe shows that it does.

    What exploring costs is bounded: a probe takes `probe_seconds` of every `probe_every_seconds`,
    and ever less while probes fail.
    """

    def __init__(self, now: float, settings: SwitchSettings | None = None) -> None:
        self._settings = settings or SwitchSettings()
        self._interval = self._settings.probe_every_seconds
        self._since = now
        self._plain = self._spent = self._busy = 0.0
        self.state = Drafting.ON
        """What the switch wants now."""

    @property
    def drafting(self) -> bool:
        """Whether drafts should grow."""
        return self.state is not Drafting.OFF

    @property
    def gain(self) -> float:
        """Measured gain since the last change, 1 where nothing was measured."""
        return self._plain / self._spent if self._spent else 1.0

    def observe(self, now: float, plain_seconds: float, spent_seconds: float) -> Drafting:
        """Takes account of a step that ended at `now` and returns what the switch wants."""
        fade = math.exp(-spent_seconds / self._settings.window_seconds)
        self._plain = self._plain * fade + plain_seconds
        self._spent = self._spent * fade + spent_seconds
        self._busy += spent_seconds
        self._decide(now)
        return self.state

    def _decide(self, now: float) -> None:
        settings = self._settings
        stayed = now - self._since
        if self.state is Drafting.ON:
            seen = min(stayed, self._busy) >= settings.dwell_seconds
            if seen and self.gain < settings.off_below:
                self._interval = settings.probe_every_seconds
                self._enter(Drafting.OFF, now)
        elif self.state is Drafting.OFF:
            if stayed >= self._interval:
                self._enter(Drafting.PROBE, now)
        elif self._busy >= settings.probe_seconds:
            if self.gain > settings.on_above:
                self._enter(Drafting.ON, now)
            else:
                longest = settings.probe_at_most_every_seconds
                self._interval = min(2 * self._interval, longest)
                self._enter(Drafting.OFF, now)

    def _enter(self, state: Drafting, now: float) -> None:
        self.state = state
        self._since = now
        self._plain = self._spent = self._busy = 0.0
