"""Tiling of a linear layer into programs: tiles of outputs, and splits of the inputs.

A plan follows from the shape and the format of the weights, never from the rows at hand. Leaves
running it to `tiles`.
"""

from dataclasses import dataclass
from functools import cache

import triton.language as tl

from outrider.kernels.gpu.weights import GROUP, WeightFormat, Weights

LINES: tl.constexpr = tl.constexpr(16)
"""Rows of a tile: the least that a tensor core takes. Missing ones are zeros."""
MAX_SPLITS: tl.constexpr = tl.constexpr(16)
"""Most splits of the inputs."""
WARPS = 4
STAGES = {WeightFormat.PLAIN: 4, WeightFormat.FP8: 4, WeightFormat.INT4: 6}
"""Tiles under way in a program, and one: about 40 KB of weights. `bench.tuning` measures others."""
MIN_BLOCKS = 2
"""Tiles of inputs of a split, at least."""
SLOTS = 3 * 132
"""Programs that an H100 or H200 runs at once: 60 KB of shared memory each."""
ENOUGH = 200
"""Programs that keep its memory busy: 8 MB under way, twice what its latency asks for."""
BANDWIDTH = 3.35e12
"""Its bytes a second."""
MEETING = 2e-6
"""Seconds from a split's last product to the sum of all: a store, then an atomic, then a load."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Cut of a layer; follows from the weights' shape and format alone."""

    columns: int
    """Outputs of each of the two tiles of a program."""
    block: int
    """Inputs of a tile."""
    tiles: int
    splits: int
    share: int
    """Inputs of a split."""
    warps: int
    stages: int

    @property
    def sums(self) -> int:
        """Return the floats in which the splits of 16 rows meet."""
        of_split = int(LINES.value) * 2 * self.columns
        return self.tiles * self.splits * of_split if self.splits > 1 else 0


def plan(weights: Weights, columns: int | None = None, splits: int | None = None) -> Tiling:
    """Cut a layer as `seconds` finds fastest; `splits` overrides that."""
    columns = columns or (32 if weights.format is WeightFormat.PLAIN else 64)
    return _plan(weights.format, weights.outputs, weights.inputs, columns, splits)


@cache
def _plan(
    kind: WeightFormat, outputs: int, inputs: int, columns: int, splits: int | None
) -> Tiling:
    block = 64 if kind is WeightFormat.PLAIN and columns > 32 else GROUP
    tiles, blocks = -(-outputs // (2 * columns)), -(-inputs // block)
    most = max(1, min(MAX_SPLITS.value, blocks // MIN_BLOCKS)) if tiles < SLOTS else 1
    size = (
        outputs
        * inputs
        * {WeightFormat.PLAIN: 2, WeightFormat.FP8: 1, WeightFormat.INT4: 0.52}[kind]
    )
    wanted = splits or min(range(1, most + 1), key=lambda n: seconds(tiles, n, outputs, size))
    share = -(-blocks // wanted) * block
    return Tiling(columns, block, tiles, -(-inputs // share), share, WARPS, STAGES[kind])


def seconds(tiles: int, splits: int, outputs: int, size: float) -> float:
    """Estimate the time of a layer of `size` bytes: reading, slowed by few programs, and meeting.

    Programs that do not fit beside the others come after them. Eight rows are taken for the sums,
    whatever runs: a plan must not depend on it.
    """
    programs = tiles * splits
    left = programs % SLOTS
    reading = size / BANDWIDTH * (programs - left + max(left, ENOUGH * (left > 0))) / programs
    meeting = MEETING + 8 * 8 * splits * outputs / BANDWIDTH
    return reading + meeting * (splits > 1)
