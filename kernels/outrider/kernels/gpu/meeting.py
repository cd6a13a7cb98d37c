"""Meeting of several ranks' launches: tiles of sums are sent to all, and added up once there.

Mailboxes and their words {data, number of the launch} are `all_reduce`'s; here the whole launch has
one number, which no word that another launch left, of any shape, can have: so tiles of any plan may
lie anywhere. Leaves waiting to `linear_sum`.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.all_reduce import Mailboxes, halves, word_of
from outrider.kernels.gpu.tiling import Tiling


@dataclass(frozen=True, slots=True)
class SumMeeting:
    """Memory in which the launches of one process meet those of others; `meeting` makes it."""

    mailboxes: Mailboxes
    counts: Tensor  # int32 [ranks of this process, 2]: launches so far; programs done with sending


def meeting(mailboxes: Mailboxes) -> SumMeeting:
    """Return a meeting in mailboxes that nothing else uses."""
    return SumMeeting(mailboxes, torch.zeros_like(mailboxes.calls[:, :1]).repeat(1, 2))


def words(rows: int, cut: Tiling, dtype: torch.dtype) -> int:
    """Return the words of mailboxes for passes of `rows` rows through a layer cut so."""
    return rows * cut.tiles * cut.columns * (2 if dtype == torch.float32 else 1)


@triton.jit
def flagged(data, call):  # type: ignore[no-untyped-def]
    """Return words {data, number of the launch} of int32 data."""
    return (call.to(tl.int64) << 32) | (data.to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def send(  # type: ignore[no-untyped-def]
    one, other, addresses, place, call, at, plane, seen,
    RANKS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Send both sums of a tile into the same place of every rank's mailbox."""
    for peer in tl.static_range(RANKS):
        mailbox = tl.load(addresses + peer).to(tl.pointer_type(tl.int64)) + place
        if tl.float32 == DTYPE:
            low, high = one.to(tl.int32, bitcast=True), other.to(tl.int32, bitcast=True)
            tl.store(mailbox + at, flagged(low, call), seen, cache_modifier=".wt")
            tl.store(mailbox + plane + at, flagged(high, call), seen, cache_modifier=".wt")
        else:
            word = flagged(word_of(one, other, DTYPE), call)
            tl.store(mailbox + at, word, seen, cache_modifier=".wt")


@triton.jit
def received(  # type: ignore[no-untyped-def]
    mailbox, call, at, plane, capacity, seen,
    RANKS: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """Return the ranks' sums of a piece, in their order, once all words have come: two [PIECE]."""
    low = tl.zeros((PIECE,), tl.float32)
    high = tl.zeros((PIECE,), tl.float32)
    missing = 1
    while missing > 0:
        low = tl.zeros((PIECE,), tl.float32)
        high = tl.zeros((PIECE,), tl.float32)
        late = tl.zeros((PIECE,), tl.int32)
        for source in tl.static_range(RANKS):
            box = tl.multiple_of(mailbox + source * capacity, 16)
            word = tl.load(box + at, seen, other=0, volatile=True)
            late += ((word >> 32) != call).to(tl.int32)
            data = (word & 0xFFFFFFFF).to(tl.int32)
            if tl.float32 == DTYPE:
                low += data.to(tl.float32, bitcast=True)
                word = tl.load(box + plane + at, seen, other=0, volatile=True)
                late += ((word >> 32) != call).to(tl.int32)
                high += (word & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
            else:
                lower, higher = halves(data, DTYPE)
                low += lower
                high += higher
        missing = tl.sum(tl.where(seen, late, 0), 0)
    return low, high


@triton.jit
def finish(  # type: ignore[no-untyped-def]
    mailbox, call, piece, pairs, plane, outputs, capacity, residual, out,
    RANKS: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """Write residual + sum over ranks of the PIECE words from word `piece` of all rows."""
    dtype: tl.constexpr = residual.dtype.element_ty
    at = piece + tl.arange(0, PIECE)
    pair = at % pairs
    first = (pair // COLUMNS) * (2 * COLUMNS) + pair % COLUMNS
    second = first + COLUMNS
    seen = (at < plane) & (first < outputs)
    low, high = received(mailbox, call, at, plane, capacity, seen, RANKS, dtype, PIECE)
    line = (at // pairs).to(tl.int64) * outputs
    low += tl.load(residual + line + first, seen, other=0.0).to(tl.float32)
    tl.store(out + line + first, low.to(dtype), seen)
    also = seen & (second < outputs)
    high += tl.load(residual + line + second, also, other=0.0).to(tl.float32)
    tl.store(out + line + second, high.to(dtype), also)
