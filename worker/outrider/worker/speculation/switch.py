"""Switch of drafting, on or off by gain: slow, with hysteresis, dwell, probes and checks.

Leaves limits of drafts to `target/sessions`, and the clock to the caller. Gain is plain-equivalent
seconds of the committed tokens divided by the seconds spent. The caller looks up the seconds of
plain decoding in step costs; their scale is measured here, whenever the target decodes plainly: a
machine is rarely as it was when its step costs were measured.
"""

import enum
import math
from dataclasses import dataclass


class Drafting(enum.Enum):
    """State of the switch."""

    ON = "on"
    OFF = "off"
    PROBE = "probe"
    """On for a moment, to measure its gain."""
    CHECK = "check"
    """Off for a moment, to measure plain decoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """Thresholds and times of the switch."""

    off_below: float = 1.05
    """Gain below which drafting goes off; a draft that gains less is not worth its hardware."""
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
    check_seconds: float = 0.2
    """Busy seconds of one check."""
    check_every_seconds: float = 10.0
    """Busy seconds of drafting between two checks; doubles while drafting pays."""
    check_at_most_every_seconds: float = 160.0
    """Longest time between checks."""


class Switch:
    """Turns drafting off where it does not pay, and on again once a probe shows that it does.

    The cost of exploring is bounded: a probe takes `probe_seconds` of every `probe_every_seconds`,
    and ever less while probes fail; a check is shorter still. Drafting is never turned off without
    one.
    """

    def __init__(
        self, now: float, settings: SwitchSettings | None = None, scale: float = 1.0
    ) -> None:
        self._settings = settings or SwitchSettings()
        self._probe_every = self._settings.probe_every_seconds
        self._check_every = self._settings.check_every_seconds
        self._since = now
        self._busy = 0.0
        self._unchecked = 0.0
        self._drafted = Ratio(self._settings.window_seconds)
        self._undrafted = Ratio(self._settings.window_seconds)
        self.scale = scale
        """Seconds that plain decoding was seen to take, over those of the step costs."""
        self.state = Drafting.ON

    @property
    def drafting(self) -> bool:
        """True if drafts should grow."""
        return self.state in (Drafting.ON, Drafting.PROBE)

    @property
    def gain(self) -> float:
        """Measured gain of drafting since it was last turned on; 1 if nothing was measured."""
        return self.scale / self._drafted.value if self._drafted.value else 1.0

    def saw_plain(self, plain_seconds: float, spent_seconds: float) -> None:
        """Learn from a step without any draft: its seconds by the step costs, and measured."""
        self._undrafted.add(plain_seconds, spent_seconds)
        if self._undrafted.spent >= self._settings.check_seconds / 2:  # it fades meanwhile
            self.scale = self._undrafted.value

    def observe(self, now: float, plain_seconds: float, spent_seconds: float) -> Drafting:
        """Learn from a step that ended at `now`; return the state that follows.

        `plain_seconds`: of plain decoding for the same tokens, by the step costs.
        """
        self._busy += spent_seconds
        if self.drafting:
            self._drafted.add(plain_seconds, spent_seconds)
            self._unchecked += spent_seconds
        else:
            self.saw_plain(plain_seconds, spent_seconds)
        self._decide(now)
        return self.state

    def _decide(self, now: float) -> None:
        settings = self._settings
        stayed = now - self._since
        if self.state is Drafting.ON:
            seen = min(stayed, self._busy) >= settings.dwell_seconds
            if seen and (self.gain < settings.off_below or self._unchecked >= self._check_every):
                self._undrafted = Ratio(settings.window_seconds)
                self._enter(Drafting.CHECK, now)
        elif self.state is Drafting.CHECK:
            if self._busy >= settings.check_seconds:
                self._checked(now)
        elif self.state is Drafting.OFF:
            if stayed >= self._probe_every:
                self._drafted = Ratio(settings.window_seconds)
                self._enter(Drafting.PROBE, now)
        elif self._busy >= settings.probe_seconds:
            if self.gain > settings.on_above:
                self._enter(Drafting.ON, now)
            else:
                longest = settings.probe_at_most_every_seconds
                self._probe_every = min(2 * self._probe_every, longest)
                self._enter(Drafting.OFF, now)

    def _checked(self, now: float) -> None:
        """Decide after a check, by a gain that is up to date."""
        settings = self._settings
        self._unchecked = 0.0
        if self.gain < settings.off_below:
            self._probe_every = settings.probe_every_seconds
            self._check_every = settings.check_every_seconds
            self._enter(Drafting.OFF, now)
        else:
            longest = settings.check_at_most_every_seconds
            self._check_every = min(2 * self._check_every, longest)
            self._enter(Drafting.ON, now)

    def _enter(self, state: Drafting, now: float) -> None:
        self.state = state
        self._since = now
        self._busy = 0.0


class Ratio:
    """Seconds spent over plain seconds, remembered for about `window` seconds of steps."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._plain = 0.0
        self.spent = 0.0

    @property
    def value(self) -> float:
        """0 if nothing was added."""
        return self.spent / self._plain if self._plain else 0.0

    def add(self, plain_seconds: float, spent_seconds: float) -> None:
        """Add one step."""
        fade = math.exp(-spent_seconds / self._window)
        self._plain = self._plain * fade + plain_seconds
        self.spent = self.spent * fade + spent_seconds
