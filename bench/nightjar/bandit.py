"""Nightjar's planner: learns the number of draft tokens for each batch size by trying.

Nightjar (arXiv 2512.22420) after Ada-BinGreedy. Steps of one context, a pair of batch sizes, form
blocks of 1, 2, 4, ... steps, and a block bins of floor(sqrt(block)) steps.
Bin b explores with probability 1 / b, else it exploits; its arm, 0 draft tokens included, is locked
until it ends. Exploiting minimises the seconds per token of an arm, plus C / arm where drafting
rests: C is the cost of taking it up again at the present lag, by the draft's step costs.

What the published code does otherwise, and this does not (docs/concepts/planner.md): it draws anew
in every step of an exploring bin; explores with 1 / sqrt(b); never explores 0 below 50 sequences;
turns drafting off by a fixed rule of load before the bandit is asked; puts all larger batches into
the last of twelve contexts; reads its cost table by an index that does not exist; averages rates of
steps, not seconds and tokens; and leaves out the test for change, so that old means stay for ever.
Pure: chance comes from a generator that the caller seeds.
"""

import math
import random
from dataclasses import dataclass

from bench.nightjar.planners import FixedPlanner
from outrider.worker.costs.step_costs import Seconds
from outrider.worker.speculation.planner import NodeCandidates, RowPlan

CHANGE_BINS = 4
"""Bins of an arm before a bin that lies far from their mean counts as a change."""
CHANGE_SIGMAS = 4.0
CHANGE_SHARE = 0.2
"""Least distance from the mean, as a share of it, that can be a change."""


@dataclass(slots=True)
class Arm:
    """One number of draft tokens in one context: what its steps wrote, and took."""

    tokens: float = 0.0
    seconds: float = 0.0
    bins: int = 0
    mean: float = 0.0
    """Mean of the bins' seconds per token."""
    squares: float = 0.0
    """Sum of squared distances from the mean."""

    @property
    def seconds_per_token(self) -> float:
        """Seconds of all steps over their tokens; 0, so the best, where it was never tried."""
        return self.seconds / self.tokens if self.tokens else 0.0

    def changed(self, latency: float) -> bool:
        """True if a bin with so many seconds per token does not fit those before it."""
        if self.bins < CHANGE_BINS:
            return False
        sigma = math.sqrt(self.squares / (self.bins - 1))
        return abs(latency - self.mean) > max(CHANGE_SIGMAS * sigma, CHANGE_SHARE * self.mean)

    def add_bin(self, tokens: float, seconds: float) -> None:
        """Count a bin that has ended."""
        self.tokens += tokens
        self.seconds += seconds
        latency = seconds / tokens
        self.bins += 1
        step = latency - self.mean
        self.mean += step / self.bins
        self.squares += step * (latency - self.mean)


@dataclass(slots=True)
class Context:
    """Blocks, bins and arms of one pair of batch sizes."""

    arms: list[Arm]
    block: int = 1
    """Steps of the present block."""
    block_left: int = 1
    bin: int = 0
    """Number of the present bin in its block, from 1; 0: before the first."""
    bin_left: int = 0
    arm: int = 0
    explores: bool = True
    tokens: float = 0.0
    """Tokens of the present bin."""
    seconds: float = 0.0

    def next_bin(self) -> None:
        """Begin a bin; a new block of twice the steps where this one has ended."""
        if self.block_left == 0:
            self.block *= 2
            self.block_left, self.bin = self.block, 0
        self.bin += 1
        self.bin_left = min(math.isqrt(self.block), self.block_left)
        self.tokens = self.seconds = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        """Count a step of the present bin; at its end, forget all if the pair has changed."""
        self.tokens += tokens
        self.seconds += seconds
        self.bin_left -= 1
        self.block_left -= 1
        if self.bin_left or not self.tokens:
            return
        arm = self.arms[self.arm]
        if arm.changed(self.seconds / self.tokens):
            self.arms = [Arm() for _ in self.arms]
            self.block, self.block_left, self.bin = 1, 1, 0
            arm = self.arms[self.arm]
        arm.add_bin(self.tokens, self.seconds)


class Bandit(FixedPlanner):
    """Chooses one number of draft tokens for all sequences of a batch, 0 to `most`."""

    def __init__(self, most: int, seed: int = 0) -> None:
        super().__init__(awaited=most)
        self._most = most
        self._random = random.Random(seed)
        self._contexts: dict[int, Context] = {}
        self._context = Context([Arm() for _ in range(most + 1)])
        """Of the last step that was planned."""
        self.explores = True
        """True where the last plan tries a number, false where it takes the best one."""

    def plan(self, candidates: list[NodeCandidates], costs: Seconds, max_rows: int) -> RowPlan:
        """Plan the arm's rows for each sequence."""
        sequences = len(candidates)
        context = self._context = self._of(sequences)
        if context.bin_left == 0:
            context.next_bin()
            context.explores = self._random.random() * context.bin < 1.0
            if context.explores:
                context.arm = self._random.randrange(self._most + 1)
            else:
                context.arm = self._best(context)
                context.explores = context.arms[context.arm].tokens == 0.0  # never tried
        self.awaited = min(context.arm, max_rows)
        self.explores = context.explores
        return self.best_of_each(candidates, costs)

    def learn(self, tokens: float, seconds: float) -> None:
        """Learn one step: tokens committed over all sequences, and how long the step took."""
        if self._context.bin_left:
            self._context.add(tokens, seconds)

    def _of(self, sequences: int) -> Context:
        """Return the context of a batch size: 1 and 2, 3 and 4, and so on, without end."""
        pair = (sequences - 1) // 2
        found = self._contexts.get(pair)
        if found is None:
            found = self._contexts[pair] = Context([Arm() for _ in range(self._most + 1)])
        return found

    def _best(self, context: Context) -> int:
        """Return the arm with the least seconds per token, the cost of a return included."""
        restart = 0.0 if self.wants_drafts else self.return_seconds
        losses = [
            arm.seconds_per_token + (restart / number if number else 0.0)
            for number, arm in enumerate(context.arms)
        ]
        return losses.index(min(losses))
