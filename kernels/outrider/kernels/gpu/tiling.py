"""Tiling of a linear layer into programs: tiles of outputs, and splits of the inputs.

A plan follows from the shape and the format of the weights, never from the rows at hand. Leaves
running it to `tiles`.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
import triton.language as tl
from triton.runtime import driver

from outrider.kernels.gpu.dot import INTERPRETED
from outrider.kernels.gpu.weights import GROUP, WeightFormat, Weights

LINES: tl.constexpr = tl.constexpr(16)
"""Rows of a tile: the least that a tensor core takes. Missing ones are zeros."""
MAX_SPLITS: tl.constexpr = tl.constexpr(16)
"""Most splits of the inputs."""
WARPS = 4
COLUMNS = {WeightFormat.PLAIN: 32, WeightFormat.FP8: 32, WeightFormat.INT4: 64}
"""Outputs of each of a program's two tiles, where nothing else asks for a width."""
STAGES = {WeightFormat.PLAIN: 4, WeightFormat.FP8: 3, WeightFormat.INT4: 3}
"""Tiles under way in a program, and one."""
PLAIN_TILE = 32768
"""Bytes of both tiles of plain weights, in a program: reading long rows is fastest."""
SMALL_TILE = 16384
"""The same on a device whose programs have less than `LARGE` bytes of shared memory."""
LARGE = 160 << 10
PROCESSORS = 132
"""Processors of an H100 or H200."""
SHARED = 232448
"""Most bytes of shared memory of a program on an H100 or H200."""
RESIDENT = {WeightFormat.PLAIN: 4, WeightFormat.FP8: 4, WeightFormat.INT4: 2}
"""Most programs that a processor's registers hold, of 16 rows each."""
UNDER_WAY = {WeightFormat.PLAIN: 7e6, WeightFormat.FP8: 6.2e6, WeightFormat.INT4: 4.4e6}
"""Bytes under way that keep the memory busy; of int4, the instructions of its conversion."""
BANDWIDTH = 3.35e12
"""Bytes that an H100 reads in a second."""
PART_CHOICES = (4, 2)
"""Numbers of parts of a program, the first that fits; no device has judged them."""
MOST_SUMS = 128
"""Most outputs of a tile times parts: beyond it registers spill."""
MEETING = 2e-6
"""Seconds from a split's last product to the sum of all: a store, then an atomic, then a load."""
MIN_BLOCKS = 2
"""Tiles of inputs of a split, at least."""
PACKED = {WeightFormat.FP8: 1.0, WeightFormat.INT4: 0.52}
"""Bytes of a weight that is not plain, its part of scales and zeros included."""
# Measured by `bench.gpu.tuning` on an H100, triton 3.6, 2026-11-26, layers of Llama-3-8B. Against
# 60 KB of tiles in each of three programs a processor: bf16 4 to 11 %, fp8 5 to 13, int4 6 to 18
# less. int4's conversion takes half the instructions since, and its numbers wait for a device.


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
    parts: int
    """Parts of 16 rows that a program multiplies with its weights, where rows are more than 16."""
    warps: int
    stages: int

    @property
    def sums(self) -> int:
        """Return the floats in which the splits of 16 rows meet."""
        of_split = int(LINES.value) * 2 * self.columns
        return self.tiles * self.splits * of_split if self.splits > 1 else 0

    def programs(self, rows: int) -> tuple[int, int]:
        """Return how many programs share `rows` rows, and the parts of each."""
        parts = self.parts if rows > LINES.value else 1  # no number between: each is a kernel
        return -(-rows // (parts * LINES.value)), parts


def plan(
    weights: Weights,
    columns: int | None = None,
    splits: int | None = None,
    shared: int | None = None,
) -> Tiling:
    """Cut a layer as `seconds` finds fastest; `splits` overrides that.

    `shared`: bytes of shared memory of a program; None: those of the device that is here.
    """
    kind = weights.format
    each = PACKED[kind] if kind in PACKED else float(weights.values.element_size())
    layer = (kind, weights.outputs, weights.inputs, each)
    return _plan(layer, columns or COLUMNS[kind], splits, shared or shared_memory())


def shared_memory() -> int:
    """Return the bytes of shared memory that a program may have on the device that is here; an
    H100's where there is none."""
    if INTERPRETED.value or not torch.cuda.is_available():
        return SHARED
    return _shared_memory(torch.cuda.current_device())


@cache
def _shared_memory(device: int) -> int:
    return int(driver.active.utils.get_device_properties(device)["max_shared_mem"])


@cache
def _plan(
    layer: tuple[WeightFormat, int, int, float], columns: int, splits: int | None, shared: int
) -> Tiling:
    """`layer`: format, outputs, inputs, bytes of a weight."""
    kind, outputs, inputs, each = layer
    block = GROUP
    if kind is WeightFormat.PLAIN:
        most = PLAIN_TILE if shared >= LARGE else SMALL_TILE
        block = min(256, most // int(2 * columns * each))
    tiles, blocks = -(-outputs // (2 * columns)), -(-inputs // block)
    tile, row = 2 * columns * block * each, block * max(2, int(each))
    load = _load(kind, tile, LINES.value * row, shared)
    most = max(1, min(MAX_SPLITS.value, blocks // MIN_BLOCKS)) if tiles < load.slots else 1
    size = outputs * inputs * each
    wanted = splits or min(range(1, most + 1), key=lambda n: seconds(tiles, n, outputs, size, load))
    share = -(-blocks // wanted) * block
    parts = _parts(kind, columns, tile, row, shared)
    return Tiling(columns, block, tiles, -(-inputs // share), share, parts, WARPS, STAGES[kind])


def _parts(kind: WeightFormat, columns: int, tile: float, row: int, shared: int) -> int:
    """Return the most parts of rows whose sums fit a program's registers, and whose tiles its
    shared memory; `tile` bytes of weights and `row` bytes of a row of x at a time."""
    for parts in PART_CHOICES:
        under_way = (STAGES[kind] - 1) * (tile + parts * LINES.value * row)
        if parts * columns <= MOST_SUMS and under_way <= shared:
            return parts
    return 1


class Occupancy(NamedTuple):
    """What a layer's programs make of the device."""

    slots: int
    """Programs that run at once."""
    enough: float
    """Programs whose bytes under way keep the memory busy."""


def _load(kind: WeightFormat, tile: float, rows: int, shared: int) -> Occupancy:
    """Return the load of programs with `tile` bytes of weights and `rows` bytes of x at a time."""
    buffers = STAGES[kind] - 1
    resident = min(RESIDENT[kind], shared // int(buffers * (tile + rows)))
    return Occupancy(PROCESSORS * max(1, resident), UNDER_WAY[kind] / (buffers * tile))


def seconds(tiles: int, splits: int, outputs: int, size: float, load: Occupancy) -> float:
    """Estimate the time of a layer of `size` bytes: reading, slowed by few programs, and meeting.

    Programs that do not fit beside the others come after them. Eight rows are taken for the sums,
    whatever runs: a plan must not depend on it.
    """
    programs = tiles * splits
    left = programs % load.slots
    reading = size / BANDWIDTH * (programs - left + max(left, load.enough * (left > 0))) / programs
    meeting = MEETING + 8 * 8 * splits * outputs / BANDWIDTH
    return reading + meeting * (splits > 1)
