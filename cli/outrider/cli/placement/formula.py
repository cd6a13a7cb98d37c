"""Tokens per second of an arrangement, from the seconds of passes and the pair's acceptance. Pure.

One request decodes in rounds. The draft's likeliest next token is right with the chance a at every
depth, so that a tree of n levels brings E(n) = a + a² + … + aⁿ tokens beside the target's own. A
round finds a tree of n levels with the chance h; else the target waits until w levels have grown:

    tokens  = 1 + h E(n) + (1 - h) E(w)
    seconds = h T(n) + (1 - h) (G(w) + T(w))

T(n) is a pass that verifies n levels, G(w) what w levels take, G(0) = 0. The arrangements differ in
h, n and w alone, and take those that pay best:

    plain decoding   h = 0, w = 0
    Colocated        h = 0, w ≥ 1
    Separate         h = a, n ≥ w ≥ 0; T and G as measured at the same time
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

HOST_SECONDS = 0.0003
"""Time between a target's passes (Zen 5, plain decoding of the demo: 3.7 ms a pass of 3.4)."""
DRAFT_HOST_SECONDS = 0.0001
"""Time between a draft's passes."""
LINK_SECONDS = 0.0005
"""Time from a commit to the draft and back, without passes (rings of shared memory, Zen 5)."""
ROWS_A_LEVEL = 1.75
"""Node rows of a verify pass for each level (the demo's pair: 3.5 rows at 2 levels)."""
MOST_LEVELS = 6
CATCH_UP_ROWS = 2
"""Rows of a draft's first pass after a commit: what was committed."""
GROWTH_ROWS = 8
"""Rows of its further passes: leaves that are expanded together while the target computes."""
AWAITED_ROWS = 3
"""Rows of a further pass where the target waits for it, as `Colocated`: fewer pay (Xeon with AMX,
Qwen2.5-Coder's 0.5B: 23 ms a pass in serving, as one of two rows takes; 29 of eight)."""

Curve = Mapping[int, float]
"""Seconds of a pass by its rows, ascending."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a target with its draft."""

    target: Curve
    draft: Curve
    acceptance: float
    growth_rows: int = GROWTH_ROWS
    """Rows of a pass that grows one more level."""

    def rate(self, hit: float, levels: int, waited: int, link: float = 0.0) -> float:
        """Return the tokens per second of rounds that find a tree of so many levels with the chance
        `hit`, and else wait for some; `link`: seconds that such a wait takes besides."""
        tokens = 1 + hit * self._brought(levels) + (1 - hit) * self._brought(waited)
        missed = self.verify(waited) + (self.grow(waited) + link if waited else 0.0)
        return tokens / (hit * self.verify(levels) + (1 - hit) * missed)

    def verify(self, levels: int) -> float:
        """Return the seconds of a pass that verifies a tree of so many levels, T."""
        return seconds(self.target, 1 + levels * ROWS_A_LEVEL) + HOST_SECONDS

    def grow(self, levels: int) -> float:
        """Return the seconds in which the draft grows so many levels, one or more, G."""
        growth = (levels - 1) * seconds(self.draft, self.growth_rows)
        return seconds(self.draft, CATCH_UP_ROWS) + growth + levels * DRAFT_HOST_SECONDS

    def parallel(self, levels: int) -> float:
        """Return the tokens per second of a draft that grows trees of so many levels beside its
        target, which waits for as many as pays. A root is at hand as often as the draft is right,
        but only if the draft keeps up with plain passes or is waited for."""
        in_time = LINK_SECONDS + self.grow(2) <= self.verify(0)
        return max(
            self.rate(self.acceptance if waited or in_time else 0.0, levels, waited, LINK_SECONDS)
            for waited in range(levels + 1)
        )

    def _brought(self, levels: int) -> float:
        """Return the draft tokens that a tree of so many levels brings, E."""
        return sum(self.acceptance**level for level in range(1, levels + 1))


def plain_rate(target: Curve) -> float:
    """Return the tokens per second without a draft."""
    return Rounds(target, {}, 0.0).rate(0.0, 0, 0)


def colocated_rate(rounds: Rounds) -> float:
    """Return the tokens per second of `Colocated`."""
    awaited = replace(rounds, growth_rows=AWAITED_ROWS)
    return max(awaited.rate(0.0, levels, levels) for levels in range(1, MOST_LEVELS + 1))


def parallel_rate(alone: Curve, beside: Rounds) -> float:
    """Return the tokens per second of `Separate`; `alone`: passes of the target while the draft
    rests, as it does once its tree has as many levels as a pass leaves time for."""
    rates = []
    for levels in _in_a_pass(beside):
        busy = min(1.0, beside.grow(levels) / beside.verify(0))
        mixed = {n: busy * beside.target[n] + (1 - busy) * alone[n] for n in beside.target}
        rates.append(replace(beside, target=mixed).parallel(levels))
    return max(rates)


def _in_a_pass(rounds: Rounds) -> Iterator[int]:
    """Yield the numbers of levels that the draft grows while its target decodes plainly; 1 at
    least."""
    for levels in range(1, MOST_LEVELS + 1):
        if levels == 1 or rounds.grow(levels) <= rounds.verify(0):
            yield levels


def seconds(curve: Curve, rows: float) -> float:
    """Return the seconds of a pass over so many rows: straight lines between, and beyond."""
    points = list(curve.items())
    if rows <= points[0][0] or len(points) == 1:
        return points[0][1]
    after = next((at for at, (n, _) in enumerate(points) if n >= rows), len(points) - 1)
    (low, start), (high, end) = points[after - 1], points[after]
    return start + (end - start) * (rows - low) / (high - low)
