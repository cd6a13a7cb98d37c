"""Inputs of sampling on a GPU: requests' settings by row, ranks' shards, logits as sortable keys.

Leaves the cuts of filters to `filters` and sampling to `sampling`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.sampling.filters import TEMPERATURE_FLOOR, SamplingTuple
from outrider.kernels.sampling.gumbel_max import Settings

CHUNK = 4096
"""Most columns of one program."""
RUN = 1024
"""Fewest columns of one program."""
WARPS = 4
UNIT: tl.constexpr = tl.constexpr(2.0**40)
"""Weights are integers in this unit, so that their sums do not depend on an order."""

Gather = Callable[[Tensor], Tensor]
"""All-gather: the ranks' tensors of one shape side by side, [...] -> [ranks, ...]."""


def chunk_of(columns: int) -> int:
    """Return the columns of one program, for a shard of so many."""
    return min(CHUNK, max(RUN, int(triton.next_power_of_2(columns))))


def alone(tensor: Tensor) -> Tensor:
    """Gather the tensors of a single rank."""
    return tensor[None]


class VocabularyShard(NamedTuple):
    """One rank's columns of a vocabulary that ranks share."""

    rank: int = 0
    gather: Gather = alone


WHOLE = VocabularyShard()


@dataclass(frozen=True, slots=True)
class SamplingInputs:
    """Sampling settings of n rows; tensors on the device, flags on the host."""

    temperature: Tensor  # float32 [n], 0 is greedy
    top_k: Tensor  # int32 [n], 0 is off
    top_p: Tensor  # float64 [n], 1 is off
    log_min_p: Tensor  # float32 [n], ln min_p; -inf is off
    seed: Tensor  # int64 [n], the bits of the unsigned seed
    choice: Tensor  # int32 [n]
    position: Tensor  # int32 [n], of the token to sample
    sampled: bool  # some temperature is above 0
    cuts_k: bool  # some top_k is on
    cuts_p: bool  # some top_p is on


def sampling_inputs_of(
    settings: Sequence[Settings], positions: Sequence[int], device: str
) -> SamplingInputs:
    """Return the inputs of rows with their requests' settings."""

    def tensor(values: list[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    temperatures = [
        max(s.temperature, TEMPERATURE_FLOOR) if s.temperature else 0.0 for s in settings
    ]
    logs = [float(np.log(s.min_p)) if s.min_p > 0 else -np.inf for s in settings]
    seeds = [int(np.uint64(s.seed).astype(np.int64)) for s in settings]
    return SamplingInputs(
        tensor(temperatures, torch.float32),
        tensor([s.top_k for s in settings], torch.int32),
        tensor([s.top_p for s in settings], torch.float64),
        tensor(logs, torch.float32),
        torch.tensor(seeds, dtype=torch.int64, device=device),
        tensor([s.choice for s in settings], torch.int32),
        tensor(list(positions), torch.int32),
        any(s.temperature > 0 for s in settings),
        any(s.top_k > 0 for s in settings),
        any(s.top_p < 1 for s in settings),
    )


def sampling_tuple_of(inputs: SamplingInputs, row: int) -> SamplingTuple:
    """Return one row's settings as the CPU's rules take them."""
    return SamplingTuple(
        float(inputs.temperature[row]),
        int(inputs.top_k[row]),
        float(inputs.top_p[row]),
        float(np.exp(float(inputs.log_min_p[row]))),
        np.uint64(int(inputs.seed[row]) % (1 << 64)),
        int(inputs.choice[row]),
    )


@triton.jit
def clean(logits, row, column, row_size, columns):  # type: ignore[no-untyped-def]
    """Load logits as fp32, -inf for NaN and for columns that are no tokens."""
    at = logits + row.to(tl.int64) * row_size + column
    x = tl.load(at, column < columns, other=float("-inf")).to(tl.float32)
    return tl.where(x == x, x, float("-inf"))


@triton.jit
def parts_of(row, rows, ranks, chunks, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the index of each rank's chunks of a row in [ranks, rows, chunks], and which exist."""
    part = tl.arange(0, PARTS)
    return (part // chunks * rows + row) * chunks + part % chunks, part < ranks * chunks


@triton.jit
def top_of(survey, row, rows, ranks, chunks, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a row's largest logit over all ranks, 0 if it is not finite, and whether it is."""
    at, real = parts_of(row, rows, ranks, chunks, PARTS)
    top = tl.max(tl.load(survey + 3 * at, real, other=float("-inf")), 0)
    finite = tl.abs(top) < float("inf")
    return tl.where(finite, top, 0.0), finite


@triton.jit
def scaled_by(x, top, temperature):  # type: ignore[no-untyped-def]
    """Return (x - top) / T in fp32, rounded as on the CPU; T = 0 is read as 1."""
    effective_temperature = tl.where(temperature > 0, temperature, 1.0)
    return tl.div_rn(x - top, tl.zeros(x.shape, tl.float32) + effective_temperature)


@triton.jit
def key_of(scaled):  # type: ignore[no-untyped-def]
    """Return a uint32 that grows as a scaled logit falls: 0 for the largest."""
    return tl.abs(scaled).to(tl.uint32, bitcast=True)


@triton.jit
def weight_of(scaled):  # type: ignore[no-untyped-def]
    """Return exp(scaled) as an integer in units of 2^-40."""
    return (tl.exp(scaled) * UNIT).to(tl.int64)
