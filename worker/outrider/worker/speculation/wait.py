"""Wait policy: when a target waits for growth before a step, by what growth has been worth so far.

Pure: time comes in as numbers. Values are in tokens: what a step's node rows are expected to bring,
less their cost at the long-run rate (docs/decisions/0006). A root is *supplied* if
it began with rows: growth brings less there than where there is nothing to run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.speculation.acceptance import Table

GROWTHS = 16
"""Growths since a commit that have a value of their own."""
MEMORY = 0.95
"""Weight of the past in running means of values, once there is one."""
TIME_MEMORY = 0.8
"""Weight of the past in running means of times."""
PRIOR_VALUE = 1.0
"""Tokens that a fresh tree is first thought to be worth once it has grown for long."""
PRIOR_SUPPLIED = 0.6
"""What growth is first thought to add where the root began with rows."""
PRIOR_RATE = 0.3
"""Share of the limit still missing that one more growth is first thought to bring."""
PRIOR_WEIGHT = 3.0
"""Observations that the prior is worth."""
CARRY_OVER = 0.7
"""Share of what is learnt at one number of growths that moves the next ones, not seen yet."""
SAMPLES = 32
"""First growths that are all valued as they come;"""
SAMPLE_EVERY = 8
"""later ones of every so many roots: it costs the host 6 us each (Zen 5)."""
MAX_LOSS = 3.0
"""Tokens that waits may lose, all in all, before there are none for a while."""
FIRST_ROOTS = 128
"""What waits may lose grows by `MAX_LOSS` over so many roots at first,"""
MAX_ROOTS = 4096
"""and over ever more, up to so many: all roots together lose no more than their logarithm."""
TRIAL_SHARE = 0.01
"""Tokens that each root without any growth adds to what waits against expectation may lose. First
growths that seem to lose 0.05 tokens each are so tried after every 20 roots, ones that seem to lose
1 after 400: a machine that was slow for a second must not end waits for minutes."""
TRIAL_ROOTS = 4
"""Roots in a row at which first growth is then waited for: a serial draft that did not run for some
roots takes longer for the first of them, because it has to catch up."""
MAX_TIME_FACTOR, MAX_TIME_MORE = 2.0, 0.0005
"""One time counts as at most so many times the mean, and so many seconds: a stall says little of
the next growth."""
FURTHER_EVERY = 16
"""With a serial draft one root of so many is waited at for one growth more than expectation says:
what a second growth brings is seen only then. Where it is not worth it, a pass of the draft in 16
of the target's is lost, under 1 % of the time for the demo's pair."""
TRUSTED = 1.5
"""Factor by which times may differ from step costs: those of passes that had prompts beside them do
by more, and would let no wait happen that corrects them."""
INHERITED = 8.0
"""Observations at another batch size that a new one begins with."""
MAX_OVERTIME = 4.0
"""A wait is given up after this many times the expected time."""
MAX_SECONDS = 0.1


@dataclass(slots=True)
class Wait:
    """One wait, from its begin to its end."""

    since: float
    until: float
    value: float
    """Of the step when the wait began, in tokens."""
    latest: float
    """Of the step when `should_wait` last saw it, in tokens."""
    rate: float
    """λ, in tokens per second."""
    predicted: float
    """Gain, in tokens."""
    supplied: bool = False
    """True if all its roots began with rows."""
    upto: int = 0
    """Growths of the root that it is for."""
    growths: int = 0
    """Growths so far."""


class WantedGrowths(NamedTuple):
    """Growths that the next roots are waited for, if nothing is learnt meanwhile."""

    fresh: int
    """At roots without rows."""
    supplied: int
    """At roots that begin with rows."""
    roots: int
    """Roots before one is waited for against expectation."""


@dataclass(slots=True)
class Curve:
    """Mean value of a step by growths since the commit."""

    value: Table
    """[GROWTHS + 1] in tokens."""
    seen: Table
    """[GROWTHS + 1] observations."""

    @classmethod
    def prior(cls, limit: float) -> "Curve":
        """Make the curve that is assumed before anything was seen; it rises towards `limit`."""
        missing = np.power(1 - PRIOR_RATE, np.arange(GROWTHS + 1, dtype=np.float64))
        return cls(limit - limit * missing, np.zeros(GROWTHS + 1))


@dataclass(slots=True)
class WaitPolicy:
    """Wait policy of one batch size: learns what growth brings; the loss by waits is bounded.

    Times, and the values of first growths, are learnt from all growth, waited for or not. Only
    where none comes unless it is waited for (a serial draft) are waits tried against expectation.
    """

    latency: float = 0.002
    """From a commit to the first growth that knows it, in seconds."""
    period: float = 0.001
    """Between two growths, in seconds."""
    growth_seconds: float = 0.0
    """Seconds of a growth by the draft's step costs; 0: not known."""
    timed: bool = False
    """True once a latency was seen."""
    seconds: float = 0.0
    """Spent waiting."""
    predicted_gain: float = 0.0
    """Tokens that waits were thought to bring, less their cost."""
    realised_gain: float = 0.0
    """Tokens that they brought, less their cost."""
    fresh: Curve = field(default_factory=lambda: Curve.prior(PRIOR_VALUE))
    """Of roots without rows to begin with;"""
    supplied: Curve = field(default_factory=lambda: Curve.prior(PRIOR_SUPPLIED))
    """of those that had some."""
    max_loss: float = MAX_LOSS
    trial_share: float = TRIAL_SHARE
    trials: int = 0
    """Next roots whose first growth is waited for whatever is expected."""
    spare: float = MAX_LOSS
    """Tokens that waits may still lose; at most `max_loss`, and none while it is not positive."""
    looks_further: bool = False
    """True where growth comes only while it is waited for: some waits are for one growth more."""
    _usual: list[int] = field(default_factory=lambda: [0, 0])
    """Growths that the last root got by expectation alone, of those without rows and with."""
    _wanted: int = 0
    """Growths that the present root is waited for against expectation; 0 for most."""
    _roots: int = 0
    _unseen: int = 0
    """Roots since a first growth was seen or waited for in vain."""
    _allowance: float = 0.0
    """Tokens that the next waits against expectation may lose."""
    _wait: Wait | None = None

    @classmethod
    def serial(cls) -> "WaitPolicy":
        """Make the policy for a serial draft, which grows only during waits: tries them at once."""
        return cls(max_loss=16.0, trials=16, spare=16.0, looks_further=True)

    def for_sequences(self, count: int) -> "WaitPolicy":
        """Let waits lose so many times as much, for a step of as many sequences is worth that, and
        be tried at as many roots all in all: each step has so many."""
        self.max_loss *= count
        self.spare *= count
        self.trial_share *= count
        self.trials = -(-self.trials // count)
        return self

    def begin_as(self, other: "WaitPolicy") -> None:
        """Take over what growth has brought and taken at another batch size, instead of trials."""
        self.latency, self.period = other.latency, other.period
        for own, known in ((self.fresh, other.fresh), (self.supplied, other.supplied)):
            own.value[:], own.seen[:] = known.value, np.minimum(known.seen, INHERITED)
        self.trials = 0

    @property
    def ongoing(self) -> Wait | None:
        """The present wait, None if there is none."""
        return self._wait

    def saw_value(self, supplied: bool, growths: int, value: float) -> None:
        """Learn the value of a tree, in tokens, after so many growths at its root."""
        curve = self.supplied if supplied else self.fresh
        _learn(curve.value, curve.seen, min(growths, GROWTHS), value)

    def wants_value(self, supplied: bool) -> bool:
        """True if the value of a first growth should be learnt though none is waited for."""
        if self._wait is not None:
            return False  # the step after the wait shows it
        curve = self.supplied if supplied else self.fresh
        return bool(curve.seen[1] < SAMPLES) or self._roots % SAMPLE_EVERY == 0

    def saw_latency(self, seconds: float) -> None:
        """Learn the time from a commit to the first growth that knows it."""
        self._learn_latency(seconds)
        self.timed = True
        self._allowance = 0.0

    def saw_period(self, seconds: float) -> None:
        """Learn the time between two growths of one root."""
        self.period = _mean_time(self.period, seconds)

    def should_wait(
        self,
        roots: list[tuple[bool, int]],
        value: float,
        rate: float,
        since_commit: float,
        now: float,
    ) -> bool:
        """Return True if the next growth is worth more than the time that it takes.

        `roots`: of each sequence that may grow, at least one: (True if it began with rows, growths
        since); `value` of a step now, in tokens; `rate` λ in tokens per second; times in seconds.
        """
        growths = min(growths for _, growths in roots)
        supplied = all(supplied for supplied, _ in roots)
        if self._wait is None:
            self._count_root(growths, supplied)
        elif now >= self._wait.until:
            if growths == 0:  # growth takes at least this long
                self._learn_latency(max(since_commit, self.latency))
            self.stop(value, rate, now)
            return False
        seconds = self.period
        if growths == 0:
            least = self.period if self.looks_further else 0.5 * self.period
            seconds = max(self.latency - since_commit, least)
        if self.growth_seconds:
            seconds = min(seconds, TRUSTED * self.growth_seconds)
        gain = sum(self._next(*root) for root in roots) - rate * seconds
        if not self._begins_or_goes_on(gain, growths):
            self.stop(value, rate, now)
            if self._wanted == 0:
                self._usual[supplied] = growths
            return False
        if self._wait is None:
            until = now + min(MAX_SECONDS, MAX_OVERTIME * seconds)
            self._wait = Wait(now, until, value, value, rate, max(gain, 0.0), supplied)
        self._wait.latest = value
        self._wait.upto = growths + 1
        self._wait.growths += 1
        return True

    @property
    def wanted(self) -> WantedGrowths:
        """Growths that the next roots are waited for: as many as the last one by expectation."""
        further = FURTHER_EVERY - 1 - self._roots % FURTHER_EVERY
        tried = self.trials > 0 or self.spare <= 0 or not self.looks_further
        return WantedGrowths(self._usual[0], self._usual[1], 0 if tried else further)

    def stop(self, value: float, rate: float, now: float) -> None:
        """End the present wait, if there is one, and count what it brought.

        What it waited for is waited for the next time, though it may not have come.
        """
        if self._wait is None:
            return
        if self._wanted == 0:
            self._usual[self._wait.supplied] = self._wait.upto
        waited = now - self._wait.since
        if self.growth_seconds:  # prompts that the draft had to compute are no loss by the wait
            most = TRUSTED * self.growth_seconds * max(1, self._wait.growths)
            waited = min(waited, most)
        brought = value - self._wait.value - rate * waited
        self.seconds += waited
        self.predicted_gain += self._wait.predicted
        self.realised_gain += brought
        self._wait = None
        self.spare = min(self.spare + brought, self.max_loss)

    def break_off(self, now: float) -> None:
        """End the present wait, if there is one, because sequences have come or gone.

        It is counted with the value of the step when `should_wait` last saw it, with the sequences
        that the wait began with.
        """
        if self._wait is not None:
            self.stop(self._wait.latest, self._wait.rate, now)

    def _learn_latency(self, seconds: float) -> None:
        """Weigh in one latency, but for one in which a serial draft had to catch up."""
        if not self.looks_further or self._unseen <= 1:
            self.latency = _mean_time(self.latency, seconds)
        self._unseen = 0

    def _next(self, supplied: bool, growths: int) -> float:
        """Return what one more growth should add to the value of one sequence, in tokens."""
        curve, at = self.supplied if supplied else self.fresh, min(growths, GROWTHS - 1)
        return float(curve.value[at + 1] - curve.value[at])

    def _count_root(self, growths: int, supplied: bool) -> None:
        """Count a root that is not waited at so far: waits may lose a little more."""
        self.spare = min(
            self.spare + self.max_loss / (FIRST_ROOTS + min(self._roots, MAX_ROOTS)), self.max_loss
        )
        self._roots += 1
        usual = self._usual[supplied]
        further = self.looks_further and usual > 0 and self._roots % FURTHER_EVERY == 0
        self._wanted = usual + 1 if further else 0
        if growths == 0:
            self._unseen += 1
            self._allowance += self.trial_share

    def _begins_or_goes_on(self, gain: float, growths: int) -> bool:
        """True if growth is waited for; whatever is expected of it, in a trial."""
        if self._wait is not None:
            return gain > 0 or growths < max(1, self._wanted)
        loss = TRIAL_ROOTS * -gain
        if (
            self.trials == 0
            and self._allowance >= loss > 0
            and self.spare >= min(loss, self.max_loss)
        ):
            self.trials, self._allowance = TRIAL_ROOTS, 0.0
        if self.trials > 0 and growths == 0:  # trials that have begun go on to their last root
            self.trials -= 1
            self._wanted = max(self._wanted, 1)
        elif self.spare <= 0:
            return False
        return gain > 0 or growths < self._wanted


@dataclass(slots=True)
class WaitPolicyByBatch:
    """One wait policy for each batch size: 1, 2, 3-4, 5-8, ... sequences in a step.

    In a large batch one pass serves many sequences and a wait holds up all of them; what is learnt
    there does not apply to one sequence alone.
    """

    start: Callable[[], WaitPolicy] = WaitPolicy
    """Makes the policy of a batch size that is new."""
    growth_seconds: Callable[[int], float] | None = None
    """Seconds of a growth of so many sequences by the draft's step costs; None: not known."""
    present: WaitPolicy = field(init=False)
    """Of the last step that was planned; before the first one: a policy that has seen nothing."""
    _sequences: int = 0
    """Of that step."""
    _by_batch: dict[int, WaitPolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.present = self.start()

    @property
    def ongoing(self) -> Wait | None:
        """The present wait, None if there is none; there is one at most, over all batch sizes."""
        return self.present.ongoing

    @property
    def seconds(self) -> float:
        """Spent waiting, over all batch sizes."""
        return sum(policy.seconds for policy in self._by_batch.values())

    @property
    def predicted_gain(self) -> float:
        """Tokens that waits were thought to bring, less their cost, over all batch sizes."""
        return sum(policy.predicted_gain for policy in self._by_batch.values())

    @property
    def realised_gain(self) -> float:
        """Tokens that they brought, less their cost, over all batch sizes."""
        return sum(policy.realised_gain for policy in self._by_batch.values())

    def of(self, sequences: int, now: float) -> WaitPolicy:
        """Return the policy for a step of so many sequences, at least one, and make it the present.

        A wait of another number of sequences ends, and is counted where it began.
        """
        if sequences != self._sequences:
            self.break_off(now)
            self._sequences = sequences
            self.present = self._at((sequences - 1).bit_length())
        return self.present

    def break_off(self, now: float) -> None:
        """End the present wait, as `WaitPolicy.break_off`."""
        self.present.break_off(now)

    def _at(self, size: int) -> WaitPolicy:
        """Return the policy of one batch size, made the first time.

        It begins with what the nearest smaller size has learnt. Its times begin as the draft's step
        costs say, if these are known: growth takes as long at least as at a smaller size. It takes
        over nothing of a larger size: values that are too low, or times that are too long, let no
        wait happen that would correct them.
        """
        if size in self._by_batch:
            return self._by_batch[size]
        made = self.start().for_sequences(1 << size)
        smaller = [at for at, known in self._by_batch.items() if known.timed and at < size]
        if smaller:
            made.begin_as(self._by_batch[max(smaller)])
        if self.growth_seconds is not None:
            made.growth_seconds = self.growth_seconds(1 << size)
            made.latency = made.period = made.growth_seconds
        self._by_batch[size] = made
        return made


def _mean_time(mean: float, seconds: float) -> float:
    """Return a running mean of times that has seen one more."""
    return mean + (1 - TIME_MEMORY) * (min(seconds, MAX_TIME_FACTOR * mean + MAX_TIME_MORE) - mean)


@njit()
def _learn(value: Table, seen: Table, at: int, observed: float) -> None:
    """Move the curve at one point, and beyond it where nothing was seen yet."""
    share = max(1.0 - MEMORY, 1.0 / (seen[at] + PRIOR_WEIGHT))
    step = share * (observed - value[at])
    seen[at] += 1.0
    value[at] += step
    for later in range(at + 1, value.shape[0]):
        step *= CARRY_OVER
        if seen[later] == 0.0:
            value[later] += step
