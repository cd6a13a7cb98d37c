"""Switch of drafting, on or off by gain: slow, with hysteresis, dwell, probes and checks.

Leaves limits of drafts to `target/sessions`, and the clock to the caller. Gain is plain-equivalent
seconds of the committed tokens divided by the seconds spent. The caller looks up the seconds of
plain decoding in step costs; their scale is measured here, whenever the target decodes plainly: a
machine is rarely as it was when its step costs were measured. What drafting may lose against plain
decoding is bounded by `guard`; what a return costs comes from `switch_costs`.
"""

import enum
import math
from dataclasses import dataclass, field

from outrider.worker.speculation.guard import Balance, LossGuard

DWELL_STEP = 0.5
"""Weight of the latest stay in the predicted one."""
FELL_SHARE = 0.75
"""Of the sequences that ran as drafting went off, those with which it is tried again soon. At a
half, drafting stayed off for 5 to 8 s in which it gained 9 to 60 %, as bursts ended (simulated by
bench.nightjar: at 16 requests a second the 32B pair wrote 1.147 of plain decoding's tokens, and
writes 1.194)."""
MOVED = 1.8
"""Factor by which the number of sequences changes before the scale of plain decoding is measured
anew: passes of 16 sequences are not off from their step costs as those of one are. On a node with
one thread, drafting that ran in next to no pass seemed to gain 31 % for over a minute after 16
requests had followed one."""
DWELL_FADE = 0.2
"""Share of the way back to the prior, with each probe that fails."""


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
    """Gain below which drafting goes off; a draft that gains less is not worth its hardware. 0:
    it stays on, and no check is made."""
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
    probe_fallen_seconds: float = 2.0
    """Time off before a probe where fewer sequences run than then."""
    probe_at_most_every_seconds: float = 240.0
    """Longest time between probes."""
    check_seconds: float = 0.2
    """Busy seconds of one check."""
    check_every_seconds: float = 10.0
    """Busy seconds of drafting between two checks; doubles while drafting pays."""
    check_at_most_every_seconds: float = 160.0
    """Longest time between checks."""
    guard_share: float = 0.03
    """Of the time spent, what drafting may lose against plain decoding."""
    guard_seconds: float = 2.0
    """What it may lose beyond that, once."""
    dwell_prior_seconds: float = 60.0
    """Time for which drafting that comes back is first thought to stay."""
    load_seconds: float = 1.0
    """Memory of the number of sequences."""


@dataclass(slots=True)
class Dwell:
    """Predicted time for which drafting stays on once it has come back: a mean of past ones."""

    prior: float
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self.seconds = self.prior

    def saw(self, seconds: float) -> None:
        """Weigh in how long drafting stayed."""
        self.seconds += DWELL_STEP * (seconds - self.seconds)

    def fade(self) -> None:
        """Move back towards the prior: what stayed briefly once need not do so for ever."""
        self.seconds += DWELL_FADE * (self.prior - self.seconds)


@dataclass(slots=True)
class SequenceLoad:
    """Mean number of sequences in a step, of about the last second."""

    memory_seconds: float
    sequences: float = 0.0
    when_off: float = 0.0
    """As drafting went off, or as the last probe failed."""

    def add(self, sequences: int, spent: float) -> None:
        """Weigh in one step."""
        fade = math.exp(-spent / self.memory_seconds) if self.sequences else 0.0
        self.sequences = fade * self.sequences + (1 - fade) * sequences

    @property
    def fell(self) -> bool:
        """True if there is much less of it: what was measured then says little of now."""
        return self.sequences <= FELL_SHARE * self.when_off

    def moved_from(self, sequences: float) -> bool:
        """True if there is so much more or less of it than so many sequences."""
        return not sequences / MOVED < self.sequences < sequences * MOVED


class Switch:
    """Turns drafting off where it does not pay, and on again once a probe shows that it does.

    A probe takes `probe_seconds` of every `probe_every_seconds`, and ever less while probes fail; a
    check is shorter still, and comes soon where the number of sequences has nearly doubled or
    halved. Drafting is never turned off without one. It is tried again only where coming back would
    bring more, for as long as it is predicted to stay, than the return costs; soon, though, where
    the number of sequences has fallen by a quarter. All that drafting loses against plain decoding,
    and all that checks lose against drafting, is paid from the `guard`: a probe or check that it
    cannot afford waits, and drafting that has used it up is checked, or ends.
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
        self.guard = LossGuard(self._settings.guard_share, self._settings.guard_seconds)
        self.return_seconds = 0.0
        """What it costs to take up drafting again now: the drafts' catching up."""
        self._balance = Balance()
        """Of drafting, since it was last turned on."""
        self._on_since = now
        self._dwell = Dwell(self._settings.dwell_prior_seconds)
        self._load = SequenceLoad(self._settings.load_seconds)
        """Of steps without drafts;"""
        self._drafted_load = SequenceLoad(self._settings.load_seconds)
        """of those with them;"""
        self._checked_load: float | None = None
        """that of the last check; before any, of the first step."""
        self._probe_loss = 0.0
        """Share of a probe's time that the last one lost."""

    @property
    def drafting(self) -> bool:
        """True if drafts should grow."""
        return self.state in (Drafting.ON, Drafting.PROBE)

    @property
    def gain(self) -> float:
        """Measured gain of drafting since it was last turned on; 1 if nothing was measured."""
        return self.scale / self._drafted.value if self._drafted.value else 1.0

    @property
    def known_gain(self) -> float | None:
        """The gain once drafting was measured for `dwell_seconds`; before, None."""
        return self.gain if self._balance.spent >= self._settings.dwell_seconds else None

    def succeed(self, before: "Switch") -> None:
        """Take the place of a switch: keep its scale and guard, which pays what drafting lost.

        Drafting that has used up the guard begins with a rest: else each new switch could lose
        again what the guard allows once.
        """
        if before._settings.off_below > 0:  # else drafting is not the switch's to end
            before.guard.lose(before._balance.loss(before.scale))
        self.scale, self.guard = before.scale, before.guard
        if self._settings.off_below > 0 and self.guard.spare <= 0:
            self.state = Drafting.OFF

    def saw_plain(self, plain_seconds: float, spent_seconds: float) -> None:
        """Learn from a step without any draft: its seconds by the step costs, and measured."""
        self._undrafted.add(plain_seconds, spent_seconds)
        if self._undrafted.spent >= self._settings.check_seconds / 2:  # it fades meanwhile
            self.scale = self._undrafted.value

    def observe(
        self, now: float, plain_seconds: float, spent_seconds: float, sequences: int = 1
    ) -> Drafting:
        """Learn from a step of so many sequences that ended at `now`; return the state that
        follows.

        `plain_seconds`: of plain decoding for the same tokens, by the step costs.
        """
        self._busy += spent_seconds
        self.guard.unearned += spent_seconds
        if self.drafting:
            self._drafted.add(plain_seconds, spent_seconds)
            self._balance.plain += plain_seconds
            self._balance.spent += spent_seconds
            self._unchecked += spent_seconds
            self._drafted_load.add(sequences, spent_seconds)
            if self._checked_load is None:
                self._checked_load = float(sequences)
        else:
            self.saw_plain(plain_seconds, spent_seconds)
            self._load.add(sequences, spent_seconds)
        self._decide(now)
        return self.state

    @property
    def _loses(self) -> bool:
        """True if drafting has lost all that the guard allows."""
        loss = self._balance.loss(self.scale)
        return loss > 0.0 and loss > self.guard.spare

    def _decide(self, now: float) -> None:
        settings = self._settings
        if self.state is Drafting.ON:
            if self._should_check(now):
                self._undrafted = Ratio(settings.window_seconds)
                self._load = SequenceLoad(settings.load_seconds)  # of before drafting came back
                self._enter(Drafting.CHECK, now)
        elif self.state is Drafting.CHECK:
            if self._busy >= settings.check_seconds:
                self._checked(now)
        elif self.state is Drafting.OFF:
            if self._should_probe(now):
                self._drafted = Ratio(settings.window_seconds)
                self._balance = Balance()
                self._enter(Drafting.PROBE, now)
        elif self._busy >= settings.probe_seconds or self._loses:
            self._probed(now)

    def _should_check(self, now: float) -> bool:
        settings = self._settings
        if settings.off_below <= 0:
            return False  # drafting would stay on whatever a check says
        if self._loses:
            return True
        if min(now - self._since, self._busy) < settings.dwell_seconds:
            return False
        if self.gain < settings.off_below:
            return True
        moved = self._drafted_load.moved_from(self._checked_load or 0.0)
        due = moved or self._unchecked >= self._check_every
        return due and self.guard.affords(self._check_loss)

    @property
    def _check_loss(self) -> float:
        """Seconds that a check loses while drafting pays."""
        return self._settings.check_seconds * max(0.0, 1.0 - 1.0 / max(self.gain, 1.0))

    def _should_probe(self, now: float) -> bool:
        """True if a probe is due, is affordable, and could bring more than the return costs."""
        settings, stayed = self._settings, now - self._since
        due = self._probe_every
        if self._load.fell:
            due = min(due, settings.probe_fallen_seconds)
        loss = self._probe_loss * settings.probe_seconds
        if stayed < due or not self.guard.affords(loss + self.return_seconds):
            return False
        brings = (settings.on_above - 1.0) * self._dwell.seconds
        overdue = stayed >= settings.probe_at_most_every_seconds
        return overdue or brings >= loss + self.return_seconds

    def _probed(self, now: float) -> None:
        """Decide after a probe; one that has used up the guard has failed."""
        settings = self._settings
        if self._busy >= settings.probe_seconds and self.gain > settings.on_above:
            self._on_since, self._checked_load = now, self._drafted_load.sequences
            self._enter(Drafting.ON, now)
            return
        lost = self._balance.loss(self.scale)
        self._probe_loss = max(0.0, lost / self._busy)
        self._dwell.fade()
        self._probe_every = min(2 * self._probe_every, settings.probe_at_most_every_seconds)
        self._go_off(lost, now)

    def _checked(self, now: float) -> None:
        """Decide after a check, by a gain that is up to date."""
        settings = self._settings
        self._unchecked, self._checked_load = 0.0, self._load.sequences
        lost = self._balance.loss(self.scale)
        if self.gain < settings.off_below:
            self._dwell.saw(now - self._on_since)
            self._probe_every = settings.probe_every_seconds
            self._check_every = settings.check_every_seconds
            self._probe_loss = max(0.0, 1.0 - self.gain)
            self._go_off(lost, now)
            return
        if lost > 0.0 and lost > self.guard.spare:  # it pays now: what is lost is lost
            self.guard.lose(lost)
            self._balance = Balance()
        else:
            self.guard.lose(self._check_loss)
        longest = settings.check_at_most_every_seconds
        self._check_every = min(2 * self._check_every, longest)
        self._enter(Drafting.ON, now)

    def _go_off(self, lost: float, now: float) -> None:
        self.guard.lose(lost)
        self._balance = Balance()
        self._load.when_off = self._load.sequences
        self._enter(Drafting.OFF, now)

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
