"""Gain account: what steps with and without drafts bring and take, by the number of requests.

Passes feed it (`TargetScheduler.apply`), and growth as it comes. Every decision asks it: the price
of a row, waits, the switch, local sources, and what is reported. Pure: times come in as numbers.
What a step brings is counted in plain seconds, those of plain decoding for its tokens by the step
costs, so that prompts and context are no gain. Leaves what follows from it to `switch`, `wait` and
`planner`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

MEMORY_SECONDS = 20.0
"""Time over which what was measured is forgotten, and after which it has to be measured anew."""
PRIOR_SECONDS = 0.5
"""Seconds of plain decoding that the price of time begins with."""
LOSS_SHARE, ADVANCE_SECONDS = 0.01, 0.5
"""Share of the time at one load that drafting, and what is tried, may lose; and what may be lost
before any was earned, also the most that is saved up."""
TOLD_SECONDS = 0.5
"""Seconds of drafting that tell something of its gain."""
TIME_MEMORY = 0.8
"""Weight of the past in running means of a growth's times, of which one counts as twice the mean
and half a millisecond more at most: a stall says little of the next growth."""
TRUSTED = 1.5
"""Factor by which a growth's time may differ from its step cost: that of passes that had prompts
beside them does by more."""
SLOWDOWN_MEMORY = 0.98
"""Weight of the past in the running mean of a pass's time over its step cost."""


@dataclass(slots=True)
class Budget:
    """Time that may be lost, in one unit: a share of the time spent, and an advance."""

    share: float = LOSS_SHARE
    advance: float = ADVANCE_SECONDS
    spare: float = field(init=False)
    """Time that may be lost now."""
    rests: bool = False
    """True from the time that all is lost until half of the advance is earned back."""

    def __post_init__(self) -> None:
        self.spare = self.advance

    def add(self, spent: float, gain: float = 0.0) -> None:
        """Earn a share of the time spent, and count what was gained or, below 0, lost in it."""
        self.spare = min(self.spare + self.share * spent + gain, self.advance)
        self.rests = self.spare <= 0 or (self.rests and self.spare < self.advance / 2)

    def affords(self, seconds: float) -> bool:
        """True if a loss of so much time is covered, or of all that can be saved up."""
        return self.spare >= min(seconds, self.advance)


@dataclass(slots=True)
class Arm:
    """Steps of one kind at one load, as far as they are remembered."""

    plain: float = 0.0
    """Plain seconds of what they brought."""
    spent: float = 0.0
    squares: float = 0.0
    """Sum of squared differences of what steps brought and what they should have by the mean."""
    at: float = -math.inf
    """Time of the last one."""

    def add(self, plain: float, spent: float, now: float) -> None:
        """Add one step."""
        kept = math.exp((self.at - now) / MEMORY_SECONDS)
        self.plain, self.spent = kept * self.plain + plain, kept * self.spent + spent
        self.squares = kept**2 * self.squares + (plain - self.ratio * spent) ** 2
        self.at = now

    @property
    def ratio(self) -> float:
        """Plain seconds by seconds spent; 1 of no step."""
        return self.plain / self.spent if self.spent else 1.0

    @property
    def error(self) -> float:
        """Standard error of the ratio, by the variance of its steps."""
        return math.sqrt(self.squares) / self.spent if self.spent else math.inf

    def is_fresh(self, now: float) -> bool:
        """True if it is not too old to tell."""
        return now - self.at < MEMORY_SECONDS


@dataclass(slots=True)
class Load:
    """What is known of steps of about so many sequences."""

    scale: float
    """Seconds that plain decoding was seen to take, over those of the step costs."""
    latency: float = 0.002
    """Seconds from a commit to the first growth that knows it."""
    period: float = 0.001
    """Seconds between two growths."""
    plain: Arm = field(default_factory=Arm)
    """Steps without drafts."""
    drafted: Arm = field(default_factory=Arm)
    """Steps with drafts, that have some tokens of theirs or not."""
    budget: Budget = field(default_factory=Budget)
    """What drafting here, and trying it, may lose against plain decoding."""
    tried_at: float = -math.inf
    """Time of the last first growth of a root, or of the last try to see one."""
    owed: Arm = field(default_factory=Arm)
    """Steps with drafts since drafting last was ahead, or `budget` has paid what it lost."""
    invested: float = 0.0
    """Seconds that drafts have taken for texts, which no step has paid for yet; no loss."""
    predicted: float = 1.0
    """Gain of drafting by step costs and acceptance, as this load was last entered."""

    @property
    def is_new(self) -> bool:
        """True if no step was seen."""
        return max(self.plain.at, self.drafted.at) == -math.inf

    @property
    def gain(self) -> float:
        """Measured gain of drafting; as predicted where too little was measured."""
        measured = self.drafted.spent >= TOLD_SECONDS
        return self.scale * self.drafted.ratio if measured else self.predicted

    @property
    def lost(self) -> float:
        """Seconds that drafting has lost since it last was ahead, by the scale of now."""
        return max(0.0, self.owed.spent - self.scale * self.owed.plain)

    @property
    def loses(self) -> bool:
        """True if drafting has lost all that it may."""
        return self.lost > max(0.0, self.budget.spare)

    def add(self, drafted: bool, plain: float, spent: float, now: float) -> None:
        """Add one step."""
        self.budget.add(spent)
        if drafted:
            self.drafted.add(plain, spent, now)
            paid = min(max(0.0, spent - self.scale * plain), self.invested)
            self.invested -= paid
            self.owed.plain += plain
            self.owed.spent += spent - paid
            if self.lost == 0.0:
                self.owed = Arm()
        else:
            self.plain.add(plain, spent, now)
            self.scale = 1.0 / self.plain.ratio if self.plain.plain else self.scale

    def settle(self) -> None:
        """Pay what drafting has lost."""
        self.budget.add(0.0, -self.lost)
        self.owed = Arm()


@dataclass(slots=True)
class GainAccount:
    """All loads of one target, and what its time is worth."""

    predict: Callable[[int], float] = lambda sequences: math.inf
    """Predicts the gain of drafting for so many sequences."""
    growth_costs: Callable[[int], float] | None = None
    """Step cost of a growth of so many sequences, where growth takes the target's own time; None:
    it comes by itself, as measured."""
    return_costs: Callable[[int], float] = lambda tokens: 0.0
    """Time that drafts take from the target to catch up with so many tokens after a rest."""
    slowdown: float = 1.0
    """Measured time of a pass over its step cost: drafts may share memory with the target."""
    present: Load = field(default_factory=lambda: Load(1.0))
    """Load of the last step that was planned."""
    sequences: int = 0
    """Sequences of that step."""
    _loads: dict[int, Load] = field(default_factory=dict)
    """Loads by their number of sequences, in half powers of two."""
    _brought: float = PRIOR_SECONDS
    """Plain seconds of what was written in the long run, whatever it was written with."""
    _spent: float = PRIOR_SECONDS

    @property
    def pace(self) -> float:
        """Plain seconds that a second brings in the long run: times plain decoding's rate by step
        costs, it is what the target's time is worth."""
        return self._brought / self._spent

    def enter(self, sequences: int) -> bool:
        """Make the load of so many sequences, at least one, the present one; True if it was not."""
        if sequences == self.sequences:
            return False
        self.sequences, before, at = sequences, self.present, round(2 * math.log2(sequences))
        if at not in self._loads:
            self._loads[at] = Load(before.scale, *self._first_times(sequences))
        self.present = self._loads[at]
        if self.present is before:
            return False
        self.present.predicted = self.predict(sequences)
        return True

    def _first_times(self, sequences: int) -> tuple[float, float]:
        """Return latency and period of a load that is new."""
        if self.growth_costs is None:
            return self.present.latency, self.present.period
        seconds = self.growth_costs(sequences)
        return seconds, seconds

    def start(self) -> None:
        """Start a request: what was written for the one before it says little of it."""
        share = 1.0 / max(1, self.sequences)
        self._brought += (PRIOR_SECONDS - self._brought) * share
        self._spent += (PRIOR_SECONDS - self._spent) * share

    def learn(self, plain: float, spent: float) -> None:
        """Learn what a step brought, whatever it did."""
        kept = math.exp(-spent / MEMORY_SECONDS)
        self._brought, self._spent = kept * self._brought + plain, kept * self._spent + spent

    def learn_pass(self, expected: float, seconds: float) -> None:
        """Learn the time of a pass that was expected to take so long."""
        ratio = min(max(self.slowdown * seconds / expected, 0.5), 4.0)
        self.slowdown += (1 - SLOWDOWN_MEMORY) * (ratio - self.slowdown)

    def saw_latency(self, seconds: float, now: float) -> None:
        """Learn how long after a commit the first growth that knows it comes."""
        self.present.tried_at = now
        self.present.latency = _mean_time(self.present.latency, seconds)

    def saw_period(self, seconds: float) -> None:
        """Learn how long after growth of a root the next comes."""
        self.present.period = _mean_time(self.present.period, seconds)

    def growth_seconds(self, first: bool) -> float:
        """Return the expected time of the next growth, from a commit or the growth before."""
        latency, period = self.present.latency, self.present.period
        if self.growth_costs is None:
            return latency if first else period
        return min(latency, period, TRUSTED * self.slowdown * self.growth_costs(self.sequences))

    def invest(self, seconds: float) -> None:
        """Note time that drafts have taken for texts, before they bring any tokens."""
        self.present.invested += seconds

    def forget_drafts(self) -> None:
        """Forget what drafts brought: another one has joined. What they lost is paid."""
        for load in self._loads.values():
            load.settle()
            load.drafted = Arm()


def _mean_time(mean: float, seconds: float) -> float:
    """Return a running mean of times that has seen one more."""
    return mean + (1 - TIME_MEMORY) * (min(seconds, 2 * mean + 0.0005) - mean)
