"""Evidence of what drafting gains, and the sequential test on it. Pure arithmetic.

Evidence is the mean gain of the windows since drafting went on, weighted by the seconds that
targets spent in each, with its standard error by the variance that these windows have shown: the
content of answers spreads far more than the tokens of one answer do. After `HORIZON` windows old
ones fade, so that the mean is the one of the last hours: gain that comes and goes faster is judged
by what it comes to. Leaves measuring windows to `scrapes`, and acting to `phases`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

HORIZON = 360
"""Windows after which old ones fade, an hour and a half by default: turns of two hours between 0.9
and 1.6 do not end drafting. Two thirds of it lose 6 % there."""
SURELY_UNDER = 0.5
"""Standard errors by which a gain has to be under break-even. At a gain of exactly 1.0, seen with
25 % of noise, drafts run for 5 % of a day, and 12 % with a whole one."""
SURELY_OVER = 1.0
"""Standard errors by which a gain has to be over break-even."""


@dataclass(frozen=True, slots=True)
class GainWindow:
    """Gain of all targets between two scrapes."""

    began: float
    """Time of the earlier scrape."""
    ended: float
    """Time of the later scrape."""
    gain: float
    """Seconds of plain decoding that the work was worth, over `seconds`."""
    seconds: float
    """Seconds that targets spent."""
    used: bool = True
    """True if some target used drafts for more than its own switch's probes."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Mean gain of some windows and its spread; gain 1.0 is plain decoding."""

    windows: float = 0.0
    """Number of windows."""
    seconds: float = 0.0
    """Seconds that targets spent in them."""
    mean: float = 1.0
    """Gain over these seconds."""
    squares: float = 0.0
    """Squared deviations of the windows' gains, weighted by seconds."""

    def add(self, measured: Iterable[GainWindow]) -> "Evidence":
        """Return the evidence with more windows."""
        n, seconds, mean, squares = self.windows, self.seconds, self.mean, self.squares
        for one in measured:
            n, seconds = n + 1, seconds + one.seconds
            off = one.gain - mean
            mean += off * one.seconds / seconds
            squares += one.seconds * off * (one.gain - mean)
        kept = min(1.0, HORIZON / n) if n else 1.0
        numbers = (n * kept, seconds * kept, mean, squares * kept)
        return Evidence(*(round(number, 6) for number in numbers))

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        n, seconds = self.windows, self.seconds
        return math.sqrt(max(0.0, self.squares) / (n - 1) / seconds) if n > 1 else math.inf

    def is_surely_under(self, percent: float) -> bool:
        """True if the gain is less than so many percent, and not by chance."""
        return 100 * (self.mean + SURELY_UNDER * self.error) < percent

    def is_surely_over(self, percent: float) -> bool:
        """True if the gain is as many percent or more, and not by chance."""
        return 100 * (self.mean - SURELY_OVER * self.error) >= percent

    @property
    def words(self) -> str:
        """The gain for messages."""
        known = math.isfinite(self.error) and 100 * self.error >= 0.5
        return f"gain {100 * self.mean:.0f} %" + (f" ± {100 * self.error:.0f}" if known else "")
