"""Switch of drafting: on where it gains at the present load, by what the gain account knows.

Each load has two kinds of steps, with drafts and without. The switch runs the kind that the account
says is better, and now and then the other for a moment, where what is known of it is old and the
load's budget covers what that may lose. Leaves limits of drafts to `target/sessions`, and the clock
to the caller.

    ON → CHECK     drafting seems to lose, or plain decoding was measured long ago
    ON → OFF       it loses, and plain decoding was measured just now; or the load is another, at
                   which it should lose
    CHECK → ON, OFF  by the gain, after `CHECK_SECONDS` and `CHECK_STEPS` of plain decoding
    OFF → ON       it is known to gain at this load
    OFF → PROBE    nothing fresh is known, and it should gain by what was measured long ago or by
                   step costs, or the budget can pay for a probe
    PROBE → ON, OFF  by the gain, after `PROBE_SECONDS` of drafting; OFF sooner where it loses
"""

import enum
from dataclasses import dataclass

from outrider.worker.speculation.gain import TOLD_SECONDS, Arm, GainAccount, Load

PROBE_SECONDS, CHECK_SECONDS = 1.0, 0.2
"""Seconds of drafting, and of plain decoding, that are measured before they tell anything."""
CHECK_STEPS = 5
"""Steps of plain decoding that tell something: one alone may have been disturbed. The step before
them ends what drafts had begun, and tells nothing."""
DWELL_SECONDS = 4.0
"""Seconds of drafting after which what it gains ends it; before, only what it loses does."""
SIGMAS = 2.0
"""Standard errors by which a gain has to be too small before drafting ends for it."""


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
    """Thresholds of the switch."""

    off_below: float = 1.05
    """Gain below which drafting goes off; a draft that gains less is not worth its hardware. 0:
    it stays on, and no check is made."""
    on_above: float = 1.15
    """Gain above which it comes back."""


class Switch:
    """Turns drafting off where it does not pay, and on again where it does.

    Where the load changes, what is known of the new one decides at once: measured or, if nothing
    was, as predicted from step costs. Drafting is not turned off for what was measured without a
    fresh measure of plain decoding.
    """

    def __init__(
        self, account: GainAccount, now: float, settings: SwitchSettings | None = None
    ) -> None:
        self._account = account
        self._settings = settings or SwitchSettings()
        self._since = now
        self._busy = 0.0
        """Seconds of steps in the present state."""
        self._steps = 0
        """Steps in the present state."""
        self.return_seconds = 0.0
        """What it costs to take up drafting again now: the drafts' catching up."""
        self.missed_seconds = 0.0
        """Of that, what is for tokens of answers: prompts cost as much without a rest."""
        self._price = 0.0
        """What the return to a probe was to cost."""
        ends = self._settings.off_below > 0 and account.present.budget.rests
        self.state = Drafting.OFF if ends else Drafting.ON

    @property
    def drafting(self) -> bool:
        """True if drafts should grow."""
        return self.state in (Drafting.ON, Drafting.PROBE)

    @property
    def known_gain(self) -> float | None:
        """Gain of drafting at the present load once it was measured; before, None."""
        load = self._account.present
        return load.gain if load.drafted.spent >= PROBE_SECONDS else None

    def enter(self, sequences: int, now: float) -> None:
        """Follow the number of sequences of the step that is planned."""
        if not self._account.enter(sequences) or self._settings.off_below <= 0:
            return
        load = self._account.present
        if load.is_new and self._is_too_little(load, now):
            load.budget.add(0.0, -load.budget.advance)  # nothing may be lost before it is earned
        if self.state is Drafting.ON and self._is_too_little(load, now):
            self._go(Drafting.OFF, now)
        elif self.state in (Drafting.OFF, Drafting.PROBE):
            self._go(Drafting.OFF, now)
            self._come_back(load, now)

    def observe(self, plain: float, spent: float, now: float, level: bool = True) -> Drafting:
        """Learn from a step that ended at `now`; return the state that follows.

        `plain`: seconds of plain decoding for the same tokens, by the step costs; `level`: false
        while drafts catch up, which a probe is not to measure.
        """
        load = self._account.present
        self._steps += 1
        if self.state is Drafting.CHECK and self._steps == 1:
            return self.state
        load.add(self.drafting, plain, spent, now)
        if level:
            self._busy += spent
        elif self.state is Drafting.PROBE:
            load.drafted = Arm()
        if self._settings.off_below > 0:
            self._decide(load, now)
        return self.state

    def _decide(self, load: Load, now: float) -> None:
        match self.state:
            case Drafting.ON:
                self._stay(load, now)
            case Drafting.OFF:
                self._come_back(load, now)
            case Drafting.PROBE:
                if load.loses or self._busy >= PROBE_SECONDS:
                    pays = not load.loses and load.gain > self._settings.on_above
                    load.budget.add(0.0, -self._price * (not pays))
                    self._go(Drafting.ON if pays else Drafting.OFF, now)
            case Drafting.CHECK:
                if self._busy >= CHECK_SECONDS and self._steps > CHECK_STEPS:
                    load.budget.add(0.0, -self._check_loss(load, self._busy))
                    loses = load.loses and load.gain < self._settings.off_below
                    ends = loses or self._is_too_little(load, now)
                    load.settle()  # what it has lost is lost, also where it gains now
                    self._go(Drafting.OFF if ends else Drafting.ON, now)

    def _stay(self, load: Load, now: float) -> None:
        """End drafting that does not pay; measure plain decoding where that is long ago."""
        ends = load.loses or self._is_too_little(load, now)
        if ends and now - load.plain.at < DWELL_SECONDS:
            self._go(Drafting.OFF, now)
        elif ends or self._should_check(load, now):
            load.plain = Arm()
            self._go(Drafting.CHECK, now)

    def _should_check(self, load: Load, now: float) -> bool:
        """True if plain decoding was measured long ago, and a check can be paid."""
        due = self._busy >= DWELL_SECONDS and not load.plain.is_fresh(now)
        return due and load.budget.affords(self._check_loss(load, CHECK_SECONDS))

    def _come_back(self, load: Load, now: float) -> None:
        """Turn drafting on where what it gains, as known or expected, has paid for the return; for
        a moment where nothing fresh is known, then too or once that can be paid."""
        gain = load.gain
        if load.budget.rests:
            return
        known = load.drafted.spent >= TOLD_SECONDS and load.drafted.is_fresh(now)
        forgone = (gain - 1.0) * (now - self._since)
        if gain > self._settings.on_above and forgone >= self.missed_seconds:
            self._go(Drafting.ON if known else Drafting.PROBE, now)
        elif not known:
            price = PROBE_SECONDS * max(0.0, 1.0 - gain) + self.return_seconds
            if load.budget.affords(price):
                self._go(Drafting.PROBE, now)

    def _is_too_little(self, load: Load, now: float) -> bool:
        """True if drafting gains less than it has to."""
        if load.drafted.spent == 0.0:
            return load.predicted < self._settings.off_below
        known = load.drafted.spent >= DWELL_SECONDS and load.drafted.is_fresh(now)
        most = load.gain + SIGMAS * load.scale * load.drafted.error
        return known and most < self._settings.off_below

    @staticmethod
    def _check_loss(load: Load, seconds: float) -> float:
        """Seconds that a check of so many loses while drafting pays."""
        return seconds * max(0.0, 1.0 - 1.0 / max(load.gain, 1.0))

    def _go(self, state: Drafting, now: float) -> None:
        load = self._account.present
        if state is Drafting.OFF:
            load.settle()
        elif state is Drafting.PROBE:
            load.drafted, self._price = Arm(), self.return_seconds
        self.state, self._since, self._busy, self._steps = state, now, 0.0, 0
