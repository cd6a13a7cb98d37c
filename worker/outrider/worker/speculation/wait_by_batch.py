"""What a target believes of waits at each load: one `WaitPolicy` for 1, 2, 3-4, 5-8, ... sequences.

Under load one pass serves many and a wait holds all of them up; what is learnt there says nothing
of a sequence alone. Leaves whether to wait, and what a wait brought, to `patience`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.worker.speculation.wait import Wait, WaitPolicy


@dataclass(slots=True)
class WaitPolicyByBatch:
    """One target's experience with waiting; what it may lose by it is bounded for each load."""

    start: Callable[[], WaitPolicy] = WaitPolicy
    """Makes the experience of a load that is met for the first time."""
    present: WaitPolicy = field(init=False)
    """That of the last step that was planned; before the first one: what is believed anyway."""
    _sequences: int = 0
    """Of that step."""
    _by_load: dict[int, WaitPolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.present = self.start()

    @property
    def going_on(self) -> Wait | None:
        """The present wait; there is one at most, over all loads."""
        return self.present.going_on

    @property
    def seconds(self) -> float:
        """Spent waiting, at all loads."""
        return sum(patience.seconds for patience in self._by_load.values())

    @property
    def predicted_gain(self) -> float:
        """Tokens that waits were thought to bring, less their cost, at all loads."""
        return sum(patience.predicted_gain for patience in self._by_load.values())

    @property
    def realised_gain(self) -> float:
        """Tokens that they did bring, less their cost, at all loads."""
        return sum(patience.realised_gain for patience in self._by_load.values())

    def of(self, sequences: int, now: float) -> WaitPolicy:
        """The experience with so many sequences in a step, at least one, which the next one has.

        A wait of another number of sequences ends, and is booked where it began.
        """
        if sequences != self._sequences:
            self.break_off(now)
            self._sequences = sequences
            self.present = self._at((sequences - 1).bit_length())
        return self.present

    def saw_growth(self, growths: int, since_commit: float, now: float) -> None:
        """As `WaitPolicy.saw_growth`, at the present load."""
        self.present.saw_growth(growths, since_commit, now)

    def break_off(self, now: float) -> None:
        """As `WaitPolicy.break_off`, whatever load is waited at."""
        self.present.break_off(now)

    def _at(self, load: int) -> WaitPolicy:
        """The experience of a load, made if it is the first time.

        Its times start from the nearest lighter load: growth takes as long at least. Not from a
        heavier one, for times that are too long let no wait happen that would correct them.
        """
        if load not in self._by_load:
            made = self._by_load[load] = self.start()
            lighter = [at for at, known in self._by_load.items() if at < load and known.seconds > 0]
            if lighter:
                nearest = self._by_load[max(lighter)]
                made.latency, made.period = nearest.latency, nearest.period
        return self._by_load[load]
