"""Sampling of tokens on a GPU by the target's noise, over a vocabulary that ranks share.

Leaves the noise to `philox`, the cuts of top-k and top-p to `filters`, penalties and grammar masks
to the caller, who writes the logits. No probabilities are written anywhere: chunks of a row leave
their largest logit and their best perturbed one, which ranks exchange.
"""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.filters import (
    count_equals,
    filtered,
    find_cuts,
    passed_before,
    top_k_goal,
    top_p_goal,
)
from outrider.kernels.gpu.philox import gumbel, gumbel_bound, noise_bits
from outrider.kernels.gpu.sampling_inputs import (
    CHUNK,
    WARPS,
    WHOLE,
    SamplingInputs,
    VocabularyShard,
    chunk_of,
    clean,
    parts_of,
    sampling_tuple_of,
    scaled_by,
    top_of,
)
from outrider.kernels.gpu.tensors import check
from outrider.kernels.sampling import reference
from outrider.kernels.sampling.gumbel_max import NONE

MAX_TOKENS = 1 << 24
"""Token ids travel in float32."""
RUN: tl.constexpr = tl.constexpr(1024)
"""Tokens whose noise is computed together."""
NEGLIGIBLE: tl.constexpr = tl.constexpr(1e-3)
"""More than the rounding of an fp32 bound on a perturbed logit."""


@triton.jit(do_not_specialize=["first_id", "chunks"])
def survey_kernel(  # type: ignore[no-untyped-def]
    logits, out, row_size, columns, first_id, chunks, CHUNK: tl.constexpr
):
    """One program a chunk and row: largest logit, sum of exp(logit - largest), lowest id of it."""
    chunk, row = tl.program_id(0), tl.program_id(1)
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    x = clean(logits, row, column, row_size, columns)
    top = tl.max(x, 0)
    finite = tl.abs(top) < float("inf")
    mass = tl.sum(tl.exp(x - tl.where(finite, top, 0.0)), 0)
    at = out + 3 * (row * chunks + chunk)
    tl.store(at, top)
    tl.store(at + 1, tl.where(finite, mass, 0.0))
    tl.store(at + 2, (first_id + tl.min(tl.where(x == top, column, 1 << 30), 0)).to(tl.float32))


@triton.jit(do_not_specialize=["first_id", "rank", "rows", "ranks", "chunks"])
def sample_kernel(  # type: ignore[no-untyped-def]
    logits, survey, temperature, log_min_p, seed, choice, position, cuts_k, cuts_p,
    equals, out, row_size, columns, first_id, rank, rows, ranks, chunks,
    PARTS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One program a chunk and row: best score (logit + noise) of the filtered tokens, id, logit."""
    chunk, row = tl.program_id(0), tl.program_id(1)
    effective_temperature = tl.load(temperature + row)
    top, finite = top_of(survey, row, rows, ranks, chunks, PARTS)
    best = tl.full((), float("-inf"), tl.float64)
    winner = tl.full((), 0, tl.int32)
    logit = tl.full((), float("-inf"), tl.float32)
    passed = passed_before(equals, chunk, row, rank, rows, ranks, chunks, PARTS)
    runs = tl.where((effective_temperature > 0) & finite, CHUNK // RUN, 0)
    for run in range(runs):
        column = chunk * CHUNK + run * RUN + tl.arange(0, RUN)
        x = clean(logits, row, column, row_size, columns)
        scaled = scaled_by(x, top, effective_temperature)
        real = column < columns
        scaled, passed = filtered(scaled, real, row, log_min_p, cuts_k, cuts_p, passed)
        first = first_id + chunk * CHUNK + run * RUN
        bits = noise_bits(
            tl.load(seed + row), tl.load(choice + row), tl.load(position + row), first, RUN
        )
        bound = tl.max(scaled + gumbel_bound(bits), 0) + NEGLIGIBLE
        if bound.to(tl.float64) >= best:
            score = scaled.to(tl.float64) + gumbel(bits).to(tl.float64)
            highest = tl.max(score, 0)
            if highest > best:
                best = highest
                index = tl.min(tl.where(score == highest, tl.arange(0, RUN), RUN), 0)
                winner = first + index
                logit = tl.max(tl.where(tl.arange(0, RUN) == index, x, float("-inf")), 0)
    at = out + 3 * (row * chunks + chunk)
    tl.store(at, best)
    tl.store(at + 1, winner.to(tl.float64))
    tl.store(at + 2, logit.to(tl.float64))


@triton.jit(do_not_specialize=["rows", "ranks", "chunks"])
def settle_kernel(  # type: ignore[no-untyped-def]
    survey, best, temperature, tokens, logprobs, rows, ranks, chunks, PARTS: tl.constexpr
):
    """One program a row: the winner of all chunks, by score, then by lowest id."""
    row = tl.program_id(0)
    at, real = parts_of(row, rows, ranks, chunks, PARTS)
    tops = tl.load(survey + 3 * at, real, other=float("-inf"))
    top = tl.max(tops, 0)
    finite = tl.abs(top) < float("inf")
    faded = tl.exp(tl.where(finite, tops - tl.where(finite, top, 0.0), float("-inf")))
    mass = tl.sum(tl.load(survey + 3 * at + 1, real, other=0.0) * faded, 0)
    ids = tl.load(survey + 3 * at + 2, real, other=0.0).to(tl.int32)
    winner = tl.min(tl.where(real & (tops == top), ids, 1 << 30), 0)
    logit = top
    if best is not None:
        is_sampled = tl.load(temperature + row) > 0
        scores = tl.load(best + 3 * at, real, other=float("-inf"))
        winners = tl.load(best + 3 * at + 1, real, other=0.0).to(tl.int32)
        won = real & (scores == tl.max(scores, 0))
        lowest = tl.min(tl.where(won, winners, 1 << 30), 0)
        values = tl.load(best + 3 * at + 2, real, other=0.0).to(tl.float32)
        value = tl.max(tl.where(won & (winners == lowest), values, float("-inf")), 0)
        winner = tl.where(is_sampled, lowest, winner)
        logit = tl.where(is_sampled, value, logit)
    tl.store(tokens + row, tl.where(finite, winner, -1))
    below = logit - tl.where(finite, top, 0.0)
    logprob = tl.minimum(below - tl.log(tl.maximum(mass, 1.0)), 0.0)
    tl.store(logprobs + row, tl.where(finite, logprob, float("-inf")))


def sample(
    logits: Tensor,
    columns: int,
    inputs: SamplingInputs,
    tokens: Tensor,
    logprobs: Tensor,
    shard: VocabularyShard = WHOLE,
) -> None:
    """Sample the token of each row by Gumbel-max over its filtered distribution; temperature 0:
    argmax.

    logits: this rank's shard [rows, at least `columns`] in any float type, rank r's first column
    being token r * columns; `columns`: tokens of a shard, a multiple of 4, alike on all ranks
    (a last shard's padding is -inf). tokens: int32 [rows], -1 (`sampling.NONE`) where the largest
    logit is not finite; logprobs: float32 [rows], the token's under the unfiltered distribution at
    temperature 1. Every rank gets all of them. Ties go to the lowest id; NaN never wins.

    Rules and source: speculation.md, Sampling (Gumbel-max); filters are those of
    `kernels.sampling.filters`,
    their weights fp32 exponentials summed in units of 2^-40. Ranks exchange 12 bytes a chunk of
    4096 columns and row, 24 more if some row is sampled, and 1 KB more for each filter in use.
    Traffic: rows * columns * size of a logit bytes for greedy rows, twice that for sampled ones
    (from L2 where it holds the logits), and `find_cuts`' for each filter in use.
    """
    rows = _checked(logits, columns, inputs, tokens, logprobs)
    chunk = chunk_of(columns)
    chunks = triton.cdiv(columns, chunk)
    local = torch.empty((rows, chunks, 3), dtype=torch.float32, device=logits.device)
    grid, first = (chunks, rows), shard.rank * columns
    survey_kernel[grid](
        logits, local, logits.stride(0), columns, first, chunks, chunk, num_warps=WARPS
    )
    survey = shard.gather(local)
    ranks = survey.shape[0]
    parts = triton.next_power_of_2(ranks * chunks)
    best = None
    if inputs.sampled:
        cuts_k = cuts_p = equals = None
        if inputs.cuts_k:
            cuts_k = find_cuts(logits, columns, survey, inputs, top_k_goal(inputs), shard)
        if inputs.cuts_p:
            goal = top_p_goal(inputs, cuts_k)
            cuts_p = find_cuts(logits, columns, survey, inputs, goal, shard)
            equals = shard.gather(count_equals(logits, columns, survey, inputs, cuts_p))
        scores = torch.empty((rows, chunks, 3), dtype=torch.float64, device=logits.device)
        sample_kernel[grid](
            logits, survey, inputs.temperature, inputs.log_min_p, inputs.seed,
            inputs.choice, inputs.position, cuts_k, cuts_p, equals, scores, logits.stride(0),
            columns, first, shard.rank, rows, ranks, chunks, parts, chunk,
            num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
        best = shard.gather(scores)
    settle_kernel[(rows,)](
        survey, best, inputs.temperature, tokens, logprobs, rows, ranks, chunks, parts
    )


def sample_reference(
    logits: Tensor,
    columns: int,
    inputs: SamplingInputs,
    tokens: Tensor,
    logprobs: Tensor,
    shard: VocabularyShard = WHOLE,
) -> None:
    """Compute what `sample` does, by the CPU's plain rules (`kernels.sampling.reference`)."""
    rows = _checked(logits, columns, inputs, tokens, logprobs)
    shares = shard.gather(logits[:, :columns].float().contiguous()).cpu()  # [ranks, rows, columns]
    whole = shares.transpose(0, 1).reshape(rows, -1).numpy()
    winners = np.empty(rows, np.int32)
    for row in range(rows):
        position = inputs.position[row : row + 1].cpu().numpy()
        params = sampling_tuple_of(inputs, row)
        winners[row] = reference.sample(whole[row : row + 1], position, params)[0]
    tokens.copy_(torch.from_numpy(winners))
    clean_rows = torch.from_numpy(np.where(np.isnan(whole), -np.inf, whole)).double()
    of_token = clean_rows.log_softmax(1).gather(
        1, torch.from_numpy(winners).long().clamp_min(0)[:, None]
    )
    of_token = of_token[:, 0].masked_fill(torch.from_numpy(winners) == NONE, -torch.inf)
    logprobs.copy_(of_token)


def _checked(
    logits: Tensor, columns: int, inputs: SamplingInputs, tokens: Tensor, logprobs: Tensor
) -> int:
    """Return the number of rows; `ValueError` names what does not fit."""
    rows = logits.shape[0]
    if columns % 4 or not 0 < columns <= logits.shape[1] or logits.stride(1) != 1:
        raise ValueError(f"columns: {columns}, wanted a multiple of 4 up to {logits.shape[1]}")
    if columns > MAX_TOKENS:
        raise ValueError(f"columns: {columns}, at most {MAX_TOKENS}")
    check(torch.int32, (rows,), tokens=tokens)
    check(torch.float32, (rows,), logprobs=logprobs, temperature=inputs.temperature)
    return rows


def _compilation(kernel: Any, name: str, out: str, **constants: Any) -> Compilation:
    names = set(kernel.arg_names) - set(constants)
    sizes = {name: value for name, value in (("PARTS", 32), ("CHUNK", CHUNK)) if name in names}
    return Compilation(
        kernel=kernel,
        name=name,
        types={"out": out, "best": "*fp64"},
        constants=constants | sizes,
        warps=WARPS,
        multiples=tuple(name for name in ("row_size", "columns") if name in names),
    )


COMPILATIONS = (
    _compilation(survey_kernel, "survey", "*fp32"),
    _compilation(sample_kernel, "sample", "*fp64", cuts_k=None, cuts_p=None, equals=None),
    _compilation(sample_kernel, "sample, filtered", "*fp64"),
    _compilation(settle_kernel, "settle", "*fp64"),
)
