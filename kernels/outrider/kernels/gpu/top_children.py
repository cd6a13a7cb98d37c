"""Top children of a draft's rows on a GPU, by their score with the target's noise.

Leaves settings and masks to `child_inputs`, the noise to `philox`, cuts of top-k and top-p to
`filters`, and which rows run to `tree_growth` and the scheduler. The device form of
`kernels.sampling.draft_scores`. No probabilities are written anywhere: a chunk of a row leaves its
best children, the sum of its exponentials and their largest exponent, which ranks exchange.
"""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.child_inputs import ChildInputs
from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.filters import (
    count_equals,
    filtered,
    find_cuts,
    passed_before,
    top_k_goal,
    top_p_goal,
)
from outrider.kernels.gpu.philox import gumbel, noise_bits, noise_bits_of
from outrider.kernels.gpu.sampling import MAX_TOKENS, survey_kernel
from outrider.kernels.gpu.sampling_inputs import (
    CHUNK,
    WARPS,
    WHOLE,
    VocabularyShard,
    alone,
    chunk_of,
    clean,
    parts_of,
    sampling_tuple_of,
    scaled_by,
    top_of,
)
from outrider.kernels.gpu.tensors import check
from outrider.kernels.sampling import reference
from outrider.kernels.sampling.draft_scores import ScoreTuple

MAX_CHILDREN = 16
RUN: tl.constexpr = tl.constexpr(512)
"""Columns that are looked at together."""
LAST: tl.constexpr = tl.constexpr(1 << 30)
"""An id after every token's."""


@triton.jit
def insert(found, ids, score, token, K: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the best K with the worst replaced, if (score up, id down) is better than it."""
    lane = tl.arange(0, K)
    worst = tl.min(found, 0)
    last = tl.max(tl.where(found == worst, ids, -1), 0)
    at = tl.min(tl.where((found == worst) & (ids == last), lane, K), 0)
    better = (score > worst) | ((score == worst) & (token < last))
    here = lane == tl.where(better, at, K)
    return tl.where(here, score, found), tl.where(here, token, ids), better


@triton.jit(do_not_specialize=["first_id", "rank", "rows", "ranks", "chunks"])
def top_children_kernel(  # type: ignore[no-untyped-def]
    logits, survey, temperature, log_min_p, seed, choice, position, scale, token_ids,
    cuts_k, cuts_p, equals, out, row_size, columns, first_id, rank, rows, ranks, chunks,
    NOISY: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One program a chunk and row: its best K scores and ids, sum of exponentials, peak."""
    chunk, row = tl.program_id(0), tl.program_id(1)
    top, finite = top_of(survey, row, rows, ranks, chunks, PARTS)
    effective_temperature, factor = tl.load(temperature + row), tl.load(scale + row)
    passed = passed_before(equals, chunk, row, rank, rows, ranks, chunks, PARTS)
    lane = tl.arange(0, K)
    found = tl.full((K,), float("-inf"), tl.float32)
    winners = lane + LAST
    peak = tl.full((), float("-inf"), tl.float32)
    mass = tl.full((), 0.0, tl.float32)
    for run in range(tl.where(finite, CHUNK // RUN, 0)):
        column = chunk * CHUNK + run * RUN + tl.arange(0, RUN)
        real = column < columns
        x = clean(logits, row, column, row_size, columns)
        ids = first_id + column
        if token_ids is not None:
            ids = tl.load(token_ids + column, real, other=0)
        if NOISY:
            if effective_temperature > 0:
                scaled, passed = filtered(
                    scaled_by(x, top, effective_temperature),
                    real,
                    row,
                    log_min_p,
                    cuts_k,
                    cuts_p,
                    passed,
                )
                key, stream, place = (
                    tl.load(seed + row), tl.load(choice + row), tl.load(position + row)
                )  # fmt: skip
                if token_ids is None:
                    first = first_id + chunk * CHUNK + run * RUN
                    bits = noise_bits(key, stream, place, first, RUN)
                else:
                    bits = noise_bits_of(key, stream, place, ids)
                score = (scaled + gumbel(bits)) * factor
            else:
                score = scaled_by(x, top, factor)
        else:
            score = scaled_by(x, top, factor)
        highest = tl.max(score, 0)
        higher = tl.maximum(peak, highest)
        base = tl.where(higher > float("-inf"), higher, 0.0)
        mass = mass * tl.exp(peak - base) + tl.sum(tl.exp(score - base), 0)
        peak = higher
        better = highest > float("-inf")
        while better:
            token = tl.min(tl.where(score == highest, ids, LAST), 0)
            found, winners, better = insert(found, winners, highest, token, K)
            score = tl.where((score == highest) & (ids == token), float("-inf"), score)
            highest = tl.max(score, 0)
            better = better & (highest > float("-inf"))
    at = out + (row * chunks + chunk).to(tl.int64) * (2 * K + 2)
    tl.store(at + lane, found)
    tl.store(at + K + lane, winners.to(tl.float32))
    tl.store(at + 2 * K, mass)
    tl.store(at + 2 * K + 1, peak)


@triton.jit(do_not_specialize=["rows", "ranks", "chunks", "children"])
def merge_kernel(  # type: ignore[no-untyped-def]
    best, tokens, logprobs, log_share, rows, ranks, chunks, children,
    K: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One program a row: the best children of all chunks, by score, then by lowest id."""
    row = tl.program_id(0)
    at, real = parts_of(row, rows, ranks, chunks, PARTS)
    at = at.to(tl.int64) * (2 * K + 2)
    cells = best + at[:, None] + tl.arange(0, K)[None, :]
    scores = tl.load(cells, real[:, None], other=float("-inf"))
    ids = tl.load(cells + K, real[:, None], other=0.0).to(tl.int32)
    peaks = tl.load(best + at + 2 * K + 1, real, other=float("-inf"))
    peak = tl.max(peaks, 0)
    peak = tl.where(peak > float("-inf"), peak, 0.0)
    mass = tl.sum(tl.load(best + at + 2 * K, real, other=0.0) * tl.exp(peaks - peak), 0)
    shift = log_share - tl.log(tl.maximum(mass, 1.0))
    for nth in range(children):
        highest = tl.max(tl.max(scores, 1), 0)
        token = tl.min(tl.min(tl.where(scores == highest, ids, LAST), 1), 0)
        there = highest > float("-inf")
        logprob = tl.minimum(highest - peak + shift, 0.0)
        to = row * children + nth
        tl.store(tokens + to, tl.where(there, token, -1))
        tl.store(logprobs + to, tl.where(there, logprob, float("-inf")))
        scores = tl.where((scores == highest) & (ids == token), float("-inf"), scores)


def top_children(
    logits: Tensor,
    columns: int,
    inputs: ChildInputs,
    tokens: Tensor,
    logprobs: Tensor,
    shard: VocabularyShard = WHOLE,
) -> None:
    """Find the best children of each row by log softmax((logit + T g) / s) + log_share, best first.

    logits: this rank's shard [rows, at least `columns`] in any float type, masked columns and the
    padding of a last shard -inf; `columns`: a multiple of 4 where ranks share, alike on all. The
    softmax is over what the filters leave; at temperature 0 there is neither noise nor filter.
    tokens: int32 [rows, k], target ids, k at most 16; logprobs: float32 [rows, k]; -1 and -inf
    where there are no more, and in rows whose largest logit is not finite. Every rank gets all.
    Ties go to the lowest target id; NaN is never a child.

    Rules and source: speculation.md, Sampling, and `kernels.sampling.draft_scores`; the running
    best k and sum are the online softmax and top-k of Milakov and Gimelshein (arXiv 1805.02867).
    Ranks exchange 12 bytes a chunk of 4096 columns and row, 8 (k + 1) more for the children, and 1
    KB more for each filter in use. Traffic: 2 * rows * columns * size of a logit bytes, the second
    time from L2 where it holds the logits, and `find_cuts`' for each filter in use; 4 columns more
    with `token_ids`.
    """
    rows, children = _checked(logits, columns, inputs, tokens, logprobs, shard)
    sampling = inputs.sampling
    chunk = chunk_of(columns)
    chunks = triton.cdiv(columns, chunk)
    width = int(triton.next_power_of_2(children))
    grid, first = (chunks, rows), shard.rank * columns
    local = torch.empty((rows, chunks, 3), dtype=torch.float32, device=logits.device)
    survey_kernel[grid](
        logits, local, logits.stride(0), columns, first, chunks, chunk, num_warps=WARPS
    )
    survey = shard.gather(local)
    ranks = survey.shape[0]
    parts = triton.next_power_of_2(ranks * chunks)
    cuts_k = cuts_p = equals = None
    if sampling.cuts_k:
        cuts_k = find_cuts(logits, columns, survey, sampling, top_k_goal(sampling), shard)
    if sampling.cuts_p:
        goal = top_p_goal(sampling, cuts_k)
        cuts_p = find_cuts(logits, columns, survey, sampling, goal, shard)
        equals = shard.gather(count_equals(logits, columns, survey, sampling, cuts_p))
    shape = (rows, chunks, 2 * width + 2)
    best = torch.empty(shape, dtype=torch.float32, device=logits.device)
    top_children_kernel[grid](
        logits, survey, sampling.temperature, sampling.log_min_p, sampling.seed, sampling.choice,
        sampling.position, inputs.scale, inputs.token_ids, cuts_k, cuts_p, equals, best,
        logits.stride(0), columns, first, shard.rank, rows, ranks, chunks, sampling.sampled,
        width, parts, chunk, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    merge_kernel[(rows,)](
        shard.gather(best), tokens, logprobs, inputs.log_share, rows, ranks, chunks, children,
        width, parts, num_warps=WARPS,
    )  # fmt: skip


def top_children_reference(
    logits: Tensor,
    columns: int,
    inputs: ChildInputs,
    tokens: Tensor,
    logprobs: Tensor,
    shard: VocabularyShard = WHOLE,
) -> None:
    """Compute what `top_children` does, by the CPU's plain rules (`kernels.sampling.reference`)."""
    rows, _ = _checked(logits, columns, inputs, tokens, logprobs, shard)
    sampling, ids = inputs.sampling, inputs.token_ids
    shares = shard.gather(logits[:, :columns].float().contiguous()).cpu()  # [ranks, rows, columns]
    whole = shares.transpose(0, 1).reshape(rows, -1).numpy()
    columns_of = np.arange(whole.shape[1], dtype=np.int32)
    if ids is not None:
        columns_of = shard.gather(ids[:columns].contiguous()).cpu().numpy().reshape(-1)
    found, scores = tokens.cpu().numpy().copy(), logprobs.cpu().numpy().copy()
    for row in range(rows):
        params, scale = sampling_tuple_of(sampling, row), float(inputs.scale[row])
        error_scale = params.temperature / scale if params.temperature else scale
        found[row], scores[row] = reference.draft_scores(
            whole[row : row + 1],
            sampling.position[row : row + 1].cpu().numpy(),
            columns_of,
            ScoreTuple(params, error_scale, inputs.log_share),
            tokens.shape[1],
        )
    tokens.copy_(torch.from_numpy(found))
    logprobs.copy_(torch.from_numpy(scores))


def _checked(
    logits: Tensor, columns: int, inputs: ChildInputs, tokens: Tensor, logprobs: Tensor,
    shard: VocabularyShard,
) -> tuple[int, int]:  # fmt: skip
    """Return the numbers of rows and children; `ValueError` names what does not fit."""
    rows, ids = logits.shape[0], inputs.token_ids
    if not 0 < columns <= min(logits.shape[1], MAX_TOKENS) or logits.stride(1) != 1:
        raise ValueError(f"columns: {columns}, wanted 1 to {logits.shape[1]}, side by side")
    if columns % 4 and shard.gather is not alone:
        raise ValueError(f"columns: {columns}, wanted a multiple of 4 where ranks share")
    if ids is not None and (ids.dtype != torch.int32 or ids.shape[0] < columns):
        raise ValueError(f"token_ids: {ids.dtype} {tuple(ids.shape)}, wanted int32 [{columns}]")
    children = tokens.shape[1]
    if not 0 < children <= MAX_CHILDREN:
        raise ValueError(f"tokens: {children} children, wanted 1 to {MAX_CHILDREN}")
    check(torch.int32, (rows, children), tokens=tokens)
    check(torch.float32, (rows, children), logprobs=logprobs)
    check(torch.float32, (rows,), temperature=inputs.sampling.temperature, scale=inputs.scale)
    return rows, children


def _compilation(kernel: Any, name: str, **constants: Any) -> Compilation:
    names = [parameter for parameter in kernel.arg_names if parameter not in constants]
    constants |= {
        parameter: {"NOISY": True, "K": 8, "PARTS": 32, "CHUNK": CHUNK}[parameter]
        for parameter in names
        if parameter.isupper()
    }
    return Compilation(
        kernel=kernel,
        name=name,
        types={"out": "*fp32", "best": "*fp32"},
        constants=constants,
        warps=WARPS,
        multiples=tuple(name for name in ("row_size", "columns") if name in names),
    )


_UNFILTERED = dict.fromkeys(("cuts_k", "cuts_p", "equals"))
COMPILATIONS = (
    _compilation(top_children_kernel, "greedy", token_ids=None, NOISY=False, **_UNFILTERED),
    _compilation(top_children_kernel, "sampled", token_ids=None, **_UNFILTERED),
    _compilation(top_children_kernel, "sampled, filtered", token_ids=None),
    _compilation(top_children_kernel, "sampled, filtered, listed ids"),
    _compilation(merge_kernel, "merge"),
)
