"""Whether to wait for growth before a step: what more passes of the draft have been worth so far.

Pure: time comes in as numbers. Values are in tokens: expected committed tokens of a step, less its
cost at the long-run rate (PROTOCOL.md §1 and §3, λ also prices a wait).
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

GROWTHS = 16
"""Growths since a commit that are told apart."""
MEMORY = 0.95
"""Weight of the past in running means."""
PRIOR_VALUE = 1.3
"""Tokens that a fresh tree is first thought to be worth once it has grown for long."""
PRIOR_SURVIVED = 0.6
"""The same for a root that was in the mirror: some of its tree is there already."""
PRIOR_RATE = 0.35
"""Share of what is missing that one more growth is first thought to bring."""
PROBE_EVERY = 64
"""Chances to wait after which one is taken anyway, so that a wrong prior is found out."""
OVERTIME = 4.0
"""A wait is given up after this many times the expected time."""
LONGEST_SECONDS = 0.1


def _prior(limit: float) -> NDArray[np.float64]:
    return np.asarray(limit * (1 - (1 - PRIOR_RATE) ** np.arange(GROWTHS + 1)), np.float64)


@dataclass(slots=True)
class Wait:
    """One wait that is going on."""

    since: float
    until: float
    value: float
    """Of the step that was put off."""
    predicted: float
    """Gain that was hoped for, in tokens."""


@dataclass(slots=True)
class Patience:
    """One target's experience with waiting."""

    latency: float = 0.004
    """From a commit to the first growth that knows it, in seconds."""
    period: float = 0.002
    """Between two growths, in seconds."""
    seconds: float = 0.0
    """Spent waiting."""
    predicted_gain: float = 0.0
    """Tokens that waits were thought to bring, less their cost."""
    realised_gain: float = 0.0
    """Tokens that they did bring, less their cost."""
    _fresh: NDArray[np.float64] = field(default_factory=lambda: _prior(PRIOR_VALUE))
    _survived: NDArray[np.float64] = field(default_factory=lambda: _prior(PRIOR_SURVIVED))
    _chances: int = 0
    _wait: Wait | None = None
    _last_growth: tuple[int, float] = (0, 0.0)

    @property
    def going_on(self) -> Wait | None:
        """The present wait."""
        return self._wait

    def saw_value(self, survived: bool, growths: int, value: float) -> None:
        """Learns what a tree was worth after so many growths at its root.

        `value` in tokens: expected tokens beyond the root's own, less the cost of their rows.
        """
        curve = self._survived if survived else self._fresh
        at = min(growths, GROWTHS)
        curve[at] += (1 - MEMORY) * (value - curve[at])

    def saw_growth(self, growths: int, since_commit: float, now: float) -> None:
        """Learns how long growth takes; counts only while the target waits and so sees it come."""
        if self._wait is None:
            return
        before, at = self._last_growth
        if growths == 1:
            self.latency += (1 - MEMORY) * (since_commit - self.latency)
        elif before == growths - 1 and at >= self._wait.since:
            self.period += (1 - MEMORY) * (now - at - self.period)
        self._last_growth = (growths, now)

    def should_wait(
        self,
        survived: bool,
        growths: int,
        value: float,
        rate: float,
        since_commit: float,
        now: float,
    ) -> bool:
        """Whether the next growths are worth more than the time they take.

        `value` of a step now, in tokens; `rate` λ in tokens per second; times in seconds.
        """
        if self._wait is not None and now >= self._wait.until:
            self._late(growths, since_commit)
            self.stop(value, rate, now)
            return False
        gain, delay = self._best(survived, growths, rate, since_commit)
        if gain <= 0 and not self._probe(growths):
            self.stop(value, rate, now)
            return False
        if self._wait is None:
            until = now + min(LONGEST_SECONDS, OVERTIME * delay)
            self._wait = Wait(now, until, value, max(gain, 0.0))
            self._last_growth = (growths, now)
        return True

    def stop(self, value: float, rate: float, now: float) -> None:
        """Ends the present wait, if there is one, and books what it brought."""
        if self._wait is None:
            return
        waited = now - self._wait.since
        self.seconds += waited
        self.predicted_gain += self._wait.predicted
        self.realised_gain += value - self._wait.value - rate * waited
        self._wait = None

    def _best(
        self, survived: bool, growths: int, rate: float, since_commit: float
    ) -> tuple[float, float]:
        """Best gain over waiting for one or more growths, and the time until the first."""
        curve = np.maximum.accumulate(self._survived if survived else self._fresh)
        now = min(growths, GROWTHS)
        first = max(self.latency - since_commit, self.period / 2) if growths == 0 else self.period
        later = np.arange(GROWTHS - now)
        if len(later) == 0:
            return 0.0, first
        gains = curve[now + 1 :] - curve[now] - rate * (first + later * self.period)
        return float(gains.max()), first

    def _probe(self, growths: int) -> bool:
        """Now and then a fresh root waits for its first growth whatever is expected of it."""
        if growths > 0 or self._wait is not None:
            return self._wait is not None and growths == 0
        self._chances += 1
        return self._chances % PROBE_EVERY == 0

    def _late(self, growths: int, since_commit: float) -> None:
        """Growth did not come in time: it takes at least this long."""
        if growths == 0:
            self.latency += (1 - MEMORY) * max(0.0, since_commit - self.latency)
