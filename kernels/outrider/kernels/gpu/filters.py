"""Filters on a GPU: where top-k and top-p cut a row of logits, whose vocabulary ranks may share.

Leaves noise and sampling to `sampling`, scores to `top_children`. A cut is a key (`key_of`):
the smallest one at which the number (top-k) or weight (top-p, of what top-k left) of the tokens up
to it reaches a goal. Eight passes find its eight digits to base 16: each counts, or weighs, up to
16 pivots. Sums are integers, so they are the same whatever shares the vocabulary is cut into.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.sampling_inputs import (
    CHUNK,
    WARPS,
    SamplingInputs,
    VocabularyShard,
    chunk_of,
    clean,
    key_of,
    parts_of,
    scaled_by,
    top_of,
    weight_of,
)

DIGITS = 8
LEADING: tl.constexpr = tl.constexpr(DIGITS - 1)
"""The first digit that is found."""
NO_CUT = 1 << 62
"""A key beyond every key."""
PIVOTS: tl.constexpr = tl.constexpr(16)
INFINITE: tl.constexpr = tl.constexpr(0x7F800000)
"""The key of -inf."""


@triton.jit
def narrowed(  # type: ignore[no-untyped-def]
    before, tallies, goals, row, rows, ranks, chunks, digit, MASS: tl.constexpr, PARTS: tl.constexpr
):
    """Return the key so far with one digit more, the tally of the keys below it, and the goal."""
    at, real = parts_of(row, rows, ranks, chunks, PARTS)
    cells = tallies + (at * PIVOTS)[:, None] + tl.arange(0, PIVOTS)[None, :]
    tally = tl.sum(tl.load(cells, real[:, None], other=0), 0)
    if digit == LEADING:
        key, below = (row * 0).to(tl.int64), (row * 0).to(tl.int64)
        goal = tl.max(tally, 0)
        asked = tl.load(goals + row)
        if MASS:
            goal = tl.maximum(tl.ceil(asked * goal.to(tl.float64)).to(tl.int64), 1)
        else:
            goal = tl.where((asked > 0) & (asked < goal), asked.to(tl.int64), goal)
    else:
        key, below = tl.load(before + 3 * row), tl.load(before + 3 * row + 1)
        goal = tl.load(before + 3 * row + 2)
    short = tally < goal
    key += tl.sum(short.to(tl.int64), 0) << (4 * digit)
    return key, tl.maximum(below, tl.max(tl.where(short, tally, 0), 0)), goal


@triton.jit(
    do_not_specialize=["rows", "ranks", "chunks", "digit"],
    do_not_specialize_on_alignment=["before", "found"],  # rows of 24 bytes
)
def tally_kernel(  # type: ignore[no-untyped-def]
    logits, survey, temperature, goals, cuts_k, before, found, tallies, out,
    row_size, columns, rows, ranks, chunks, digit,
    MASS: tl.constexpr, PARTS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One program a chunk and row: narrows by the last digit's tallies, then tallies the next."""
    chunk, row = tl.program_id(0), tl.program_id(1)
    key = (row * 0).to(tl.int64)
    if digit < LEADING:
        key, below, goal = narrowed(
            before, tallies, goals, row, rows, ranks, chunks, digit + 1, MASS, PARTS
        )
        if chunk == 0:
            tl.store(found + 3 * row, key)
            tl.store(found + 3 * row + 1, below)
            tl.store(found + 3 * row + 2, goal)
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    top, _ = top_of(survey, row, rows, ranks, chunks, PARTS)
    x = clean(logits, row, column, row_size, columns)
    scaled = scaled_by(x, top, tl.load(temperature + row))
    keys = key_of(scaled)
    if MASS:
        weight = tl.where(column < columns, weight_of(scaled), 0)
        if cuts_k is not None:
            weight = tl.where(keys.to(tl.int64) <= tl.load(cuts_k + 3 * row), weight, 0)
    else:
        weight = (column < columns).to(tl.int32)
    at = out + (row * chunks + chunk) * PIVOTS
    step = tl.full((), 1, tl.int64) << (4 * digit)
    for nth in tl.static_range(PIVOTS):
        pivot = key + (nth + 1) * step - 1
        held = tl.sum(tl.where(keys <= pivot.to(tl.uint32), weight, 0), 0)
        tl.store(at + nth, held.to(tl.int64))


@triton.jit(do_not_specialize=["rows", "ranks", "chunks"])
def cut_kernel(  # type: ignore[no-untyped-def]
    before, tallies, goals, cuts, rows, ranks, chunks, MASS: tl.constexpr, PARTS: tl.constexpr
):
    """One program a row: the last digit."""
    row = tl.program_id(0)
    key, below, goal = narrowed(before, tallies, goals, row, rows, ranks, chunks, 0, MASS, PARTS)
    tl.store(cuts + 3 * row, key)
    tl.store(cuts + 3 * row + 1, below)
    tl.store(cuts + 3 * row + 2, goal)


@triton.jit(do_not_specialize=["rows", "ranks", "chunks"])
def equals_kernel(  # type: ignore[no-untyped-def]
    logits, survey, temperature, cuts, out, row_size, columns, rows, ranks, chunks,
    PARTS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One program a chunk and row: how many tokens lie on the cut."""
    chunk, row = tl.program_id(0), tl.program_id(1)
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    top, _ = top_of(survey, row, rows, ranks, chunks, PARTS)
    x = clean(logits, row, column, row_size, columns)
    keys = key_of(scaled_by(x, top, tl.load(temperature + row)))
    on = (keys.to(tl.int64) == tl.load(cuts + 3 * row)) & (column < columns)
    tl.store(out + row * chunks + chunk, tl.sum(on.to(tl.int32), 0))


@triton.jit
def passed_before(  # type: ignore[no-untyped-def]
    equals, chunk, row, rank, rows, ranks, chunks, PARTS: tl.constexpr
):
    """Return tokens on top-p's cut in the chunks before this one; 0 where there is no top-p."""
    passed = (row * 0).to(tl.int64)
    if equals is not None:
        at, real = parts_of(row, rows, ranks, chunks, PARTS)
        real &= tl.arange(0, PARTS) < rank * chunks + chunk
        passed = tl.sum(tl.load(equals + at, real, other=0), 0).to(tl.int64)
    return passed


@triton.jit
def filtered(  # type: ignore[no-untyped-def]
    scaled, real, row, log_min_p, cuts_k, cuts_p, passed
):
    """Return a run's scaled logits, -inf where min-p, top-k or top-p drop them, and `passed`.

    `real`: which are tokens. Equals of top-p's cut stay while there is room, by column.
    """
    keys = key_of(scaled).to(tl.int64)
    kept = scaled >= tl.load(log_min_p + row)
    if cuts_k is not None:
        kept &= keys <= tl.load(cuts_k + 3 * row)
    if cuts_p is not None:
        cut, goal = tl.load(cuts_p + 3 * row), tl.load(cuts_p + 3 * row + 2)
        at_cut = tl.minimum(cut, INFINITE).to(tl.uint32).to(tl.float32, bitcast=True)
        of_cut = tl.maximum(weight_of(-at_cut), 1)
        equal = ((keys == cut) & real).to(tl.int64)
        room = (goal - tl.load(cuts_p + 3 * row + 1) + of_cut - 1) // of_cut
        nth = passed + tl.cumsum(equal, 0)
        kept &= (keys < cut) | ((equal > 0) & (nth <= room))
        passed += tl.sum(equal, 0)
    return tl.where(kept, scaled, float("-inf")), passed


class Goal(NamedTuple):
    """Part of each row that a filter keeps."""

    values: Tensor  # int32 [rows] top-k, a number; float64 [rows] top-p, a share of the weight
    by_weight: bool
    """True for top-p."""
    cuts_k: Tensor | None = None
    """The cuts of top-k, whose tokens alone count."""


def top_k_goal(inputs: SamplingInputs) -> Goal:
    """Return the goal of top-k."""
    return Goal(inputs.top_k, by_weight=False)


def top_p_goal(inputs: SamplingInputs, cuts_k: Tensor | None) -> Goal:
    """Return the goal of top-p among the tokens that top-k leaves."""
    return Goal(inputs.top_p, by_weight=True, cuts_k=cuts_k)


def find_cuts(
    logits: Tensor,
    columns: int,
    survey: Tensor,
    inputs: SamplingInputs,
    goal: Goal,
    shard: VocabularyShard,
) -> Tensor:
    """Return int64 [rows, 3] of each row: key of the cut, tally below it, goal.

    logits [rows, at least `columns`]; survey: float32 [ranks, rows, chunks, 3], of `sampling`. A
    row whose filter is off has NO_CUT. Source: radix select; FlashInfer's sampling searches pivots
    likewise, in floats. Traffic: 9 * rows * columns * size of a logit bytes, from L2 after the
    first.
    """
    rows, (ranks, _, chunks, _) = logits.shape[0], survey.shape

    def new(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int64, device=logits.device)

    found = new(DIGITS, rows, 3)
    cuts = new(rows, 3)
    goals, mass = goal.values, goal.by_weight
    parts = triton.next_power_of_2(ranks * chunks)
    tallies = new(1, rows, chunks, PIVOTS.value)
    for digit in range(DIGITS - 1, -1, -1):
        out = new(rows, chunks, PIVOTS.value)
        tally_kernel[(chunks, rows)](
            logits, survey, inputs.temperature, goals, goal.cuts_k,
            found[min(digit + 1, DIGITS - 1)], found[digit], tallies, out,
            logits.stride(0), columns, rows, ranks, chunks, digit,
            mass, parts, chunk_of(columns), num_warps=WARPS,
        )  # fmt: skip
        tallies = shard.gather(out)
    cut_kernel[(rows,)](found[0], tallies, goals, cuts, rows, ranks, chunks, mass, parts)
    off = goals >= 1 if mass else goals <= 0
    return cuts.masked_fill_(off[:, None], NO_CUT)


def count_equals(
    logits: Tensor, columns: int, survey: Tensor, inputs: SamplingInputs, cuts: Tensor
) -> Tensor:
    """Count the tokens on the cut in each chunk; int32 [rows, chunks]."""
    ranks, rows, chunks, _ = survey.shape
    out = torch.empty((rows, chunks), dtype=torch.int32, device=logits.device)
    equals_kernel[(chunks, rows)](
        logits, survey, inputs.temperature, cuts, out, logits.stride(0), columns, rows, ranks,
        chunks, triton.next_power_of_2(ranks * chunks), chunk_of(columns), num_warps=WARPS,
    )  # fmt: skip
    return out


def _compilation(kernel: Any, name: str, **constants: Any) -> Compilation:
    goals = "*fp64" if constants.get("MASS") else "*i32"
    of_logits = "logits" in kernel.arg_names
    return Compilation(
        kernel=kernel,
        name=name,
        types={"goals": goals, "out": "*i64" if kernel is tally_kernel else "*i32"},
        constants={"PARTS": 32, **({"CHUNK": CHUNK} if of_logits else {}), **constants},
        warps=WARPS,
        multiples=("row_size", "columns") if of_logits else (),
    )


COMPILATIONS = (
    _compilation(tally_kernel, "counts", MASS=False, cuts_k=None),
    _compilation(tally_kernel, "weights", MASS=True, cuts_k=None),
    _compilation(tally_kernel, "weights after top-k", MASS=True),
    _compilation(cut_kernel, "cut", MASS=True),
    _compilation(equals_kernel, "equals"),
)
