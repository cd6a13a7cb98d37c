"""Whether to wait for growth before a step: what more passes of the draft have been worth so far.

Pure: time comes in as numbers. Values are in tokens: what a step's node rows are expected to bring,
less their cost at the long-run rate (decision 0006: λ also prices a wait).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider.kernels.compiled import njit
from outrider.worker.speculation.candidates import Seconds

GROWTHS = 16
"""Growths since a commit that are told apart."""
MEMORY = 0.95
"""Weight of the past in running means of values, once there is one."""
TIME_MEMORY = 0.8
"""Weight of the past in running means of times."""
PRIOR_VALUE = 1.0
"""Tokens that a fresh tree is first thought to be worth once it has grown for long."""
PRIOR_SURVIVED = 0.6
"""What growth is first thought to add where the root was in the mirror."""
PRIOR_RATE = 0.3
"""Share of what is missing that one more growth is first thought to bring."""
PRIOR_WEIGHT = 3.0
"""Observations that the prior is worth."""
KINSHIP = 0.7
"""How much of what is learnt of one number of growths is believed of the next, not seen yet."""
PROBE_LENGTH = 8
"""Roots in a row whose first growth is waited for whatever is expected of it: from time to time,
so that a wrong belief is found out by a draft that has caught up."""
ALLOWANCE = 3.0
"""Tokens that waits may lose, all in all, before there are none for a while."""
FIRST_REST = 128
"""Roots without a wait, at the start and after a loss;"""
REST_GROWTH = 2.0
"""each time more by this factor,"""
MAX_REST = 4096
"""up to this many."""
OVERTIME = 4.0
"""A wait is given up after this many times the expected time."""
MAX_SECONDS = 0.1


@dataclass(slots=True)
class Wait:
    """One wait that is going on."""

    since: float
    until: float
    value: float
    """Of the step that was put off, in tokens."""
    latest: float
    """Of a step when it was last looked at."""
    rate: float
    """λ, in tokens per second."""
    predicted: float
    """Gain that was hoped for, in tokens."""


@dataclass(slots=True)
class Curve:
    """Mean value of a step by growths since the commit."""

    value: Seconds
    """[GROWTHS + 1] in tokens."""
    seen: Seconds
    """[GROWTHS + 1] observations."""

    @classmethod
    def prior(cls, limit: float) -> "Curve":
        """What is believed before anything was seen."""
        missing = np.power(1 - PRIOR_RATE, np.arange(GROWTHS + 1, dtype=np.float64))
        return cls(limit - limit * missing, np.zeros(GROWTHS + 1))


@dataclass(slots=True)
class WaitPolicy:
    """One target's experience with waiting at one load; what it may lose by it is bounded."""

    latency: float = 0.002
    """From a commit to the first growth that knows it, in seconds."""
    period: float = 0.001
    """Between two growths, in seconds."""
    seconds: float = 0.0
    """Spent waiting."""
    predicted_gain: float = 0.0
    """Tokens that waits were thought to bring, less their cost."""
    realised_gain: float = 0.0
    """Tokens that they did bring, less their cost."""
    fresh: Curve = field(default_factory=lambda: Curve.prior(PRIOR_VALUE))
    """After a fall-out."""
    survived: Curve = field(default_factory=lambda: Curve.prior(PRIOR_SURVIVED))
    """After a fall-in."""
    probe_length: int = PROBE_LENGTH
    loss_allowance: float = ALLOWANCE
    probing: int = 0
    """Roots left of the present probe."""
    resting: int = FIRST_REST
    """Roots left without a wait."""
    _rest: float = FIRST_REST
    _roots: int = 0
    """Since the last probe."""
    _credit: float = 0.0
    """What waits have brought, never more than the allowance."""
    _wait: Wait | None = None
    _last_growth: tuple[int, float] = (0, 0.0)

    @classmethod
    def serial(cls) -> "WaitPolicy":
        """For a draft that grows only while it is waited for: probes at once, forgives more."""
        return cls(probe_length=16, loss_allowance=16.0, probing=16, resting=0)

    @property
    def going_on(self) -> Wait | None:
        """The present wait."""
        return self._wait

    def saw_value(self, survived: bool, growths: int, value: float) -> None:
        """Learns what a tree was worth, in tokens, after so many growths at its root."""
        curve = self.survived if survived else self.fresh
        _learn(curve.value, curve.seen, min(growths, GROWTHS), value)

    def saw_growth(self, growths: int, since_commit: float, now: float) -> None:
        """Learns how long growth takes; counts only while the target waits and so sees it come."""
        if self._wait is None:
            return
        before, at = self._last_growth
        if growths == 1:
            self.latency += (1 - TIME_MEMORY) * (since_commit - self.latency)
        elif before == growths - 1 and at >= self._wait.since:
            self.period += (1 - TIME_MEMORY) * (now - at - self.period)
        self._last_growth = (growths, now)

    def should_wait(
        self,
        roots: Sequence[tuple[bool, int]],
        value: float,
        rate: float,
        since_commit: float,
        now: float,
    ) -> bool:
        """Whether the next growth is worth more than the time that it takes.

        `roots`: of each sequence that may grow, at least one, whether its root was in the mirror
        and the growths since; `value` of a step now, in tokens; `rate` λ in tokens per second;
        times in seconds.
        """
        growths = min(growths for _, growths in roots)
        if self._wait is not None and now >= self._wait.until:
            if growths == 0:  # growth takes at least this long
                self.latency += (1 - TIME_MEMORY) * max(0.0, since_commit - self.latency)
            self.stop(value, rate, now)
            return False
        if self._wait is None and growths == 0 and self._rests():
            return False
        seconds = self.period
        if growths == 0:
            seconds = max(self.latency - since_commit, 0.5 * self.period)
        gain = sum(self._next(*root) for root in roots) - rate * seconds
        if gain <= 0 and not self._probes(growths):
            self.stop(value, rate, now)
            return False
        if self._wait is None:
            until = now + min(MAX_SECONDS, OVERTIME * seconds)
            self._wait = Wait(now, until, value, value, rate, max(gain, 0.0))
            self._last_growth = (growths, now)
        self._wait.latest = value
        return True

    def stop(self, value: float, rate: float, now: float) -> None:
        """Ends the present wait, if there is one, and books what it brought."""
        if self._wait is None:
            return
        waited = now - self._wait.since
        brought = value - self._wait.value - rate * waited
        self.seconds += waited
        self.predicted_gain += self._wait.predicted
        self.realised_gain += brought
        self._wait = None
        self._credit = min(self._credit + brought, self.loss_allowance)
        if self._credit < -self.loss_allowance:
            self._credit, self.probing, self.resting = 0.0, 0, int(self._rest)
            self._rest = min(MAX_REST, REST_GROWTH * self._rest)

    def break_off(self, now: float) -> None:
        """Ends the present wait, if there is one, because sequences have come or gone.

        What it brought is the value of a step when it was last looked at, with the sequences that
        the wait began with.
        """
        if self._wait is not None:
            self.stop(self._wait.latest, self._wait.rate, now)

    def _next(self, survived: bool, growths: int) -> float:
        """What one more growth should add to the value of one sequence."""
        curve, at = self.survived if survived else self.fresh, min(growths, GROWTHS - 1)
        return float(curve.value[at + 1] - curve.value[at])

    def _rests(self) -> bool:
        """Counts a root; whether it is one without a wait."""
        if self.resting > 0:
            self.resting -= 1
            self.probing = self.probe_length if self.resting == 0 else 0
            return True
        return False

    def _probes(self, growths: int) -> bool:
        """Whether this root's first growth is waited for against expectation."""
        if growths > 0:
            return False
        if self._wait is not None:
            return True
        if self.probing > 0:
            self.probing -= 1
            self._roots = 0
            return True
        self._roots += 1
        if self._roots >= self._rest:
            self._roots, self.probing = 0, self.probe_length
            self._rest = min(MAX_REST, REST_GROWTH * self._rest)
        return False


@njit()
def _learn(value: Seconds, seen: Seconds, at: int, observed: float) -> None:
    """Moves the curve at one point, and beyond it where nothing was seen yet."""
    share = max(1.0 - MEMORY, 1.0 / (seen[at] + PRIOR_WEIGHT))
    step = share * (observed - value[at])
    seen[at] += 1.0
    value[at] += step
    for later in range(at + 1, value.shape[0]):
        step *= KINSHIP
        if seen[later] == 0.0:
            value[later] += step
