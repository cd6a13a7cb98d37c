"""A linear layer cut by inputs over ranks, its sum over ranks and the residual, in one launch.

Leaves products to `tiles`, words and their sums to `meeting`, and the choice of this to the runner,
which takes it where `engine.allReduce` says so. It has not run on two GPUs yet.

The program that has a tile's products sends them to every rank as words of {data, number of the
launch}, as `all_reduce` does, and ends or goes on; it never waits for its own tile. Waiting is
for the last few: each program that has nothing left to send takes a number, and only those with the
last `RECEIVERS` numbers wait for words, share all tiles among themselves and add them up.

Why no device waits for ever: a program that waits keeps its place on a multiprocessor, and while it
waits another of its launch may have no place yet, whose words a peer's programs wait for.
Here, while any program of a launch has words to send, at most RECEIVERS - 1 of it wait. A device
with RECEIVERS multiprocessors or more has a place left, on which the others run one after another,
in any order; none of them waits before it has sent. So every launch sends all its words, whatever
its peers do, and then every word that is waited for comes. Several ranks or models on one device
need RECEIVERS multiprocessors each.

Two alternating buffers are enough for the reason that `all_reduce` gives.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.all_reduce import (
    BUFFERS,
    TYPES,
    WHOLE_LAUNCH,
    Emulation,
    all_reduce_reference,
)
from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.dot import INTERPRETED
from outrider.kernels.gpu.linear_shapes import compilations
from outrider.kernels.gpu.meeting import SumMeeting, finish, send, words
from outrider.kernels.gpu.tensors import check
from outrider.kernels.gpu.tiles import TileScratch, gathered, launch, products
from outrider.kernels.gpu.tiling import LINES, Tiling, plan
from outrider.kernels.gpu.weights import Weights, dense

RECEIVERS = 32
"""Programs of a launch that wait: 4 rows of 4096 outputs are one piece for each."""
ALONE = 1
"""The same where programs run one after another: all others have sent before the last one waits."""


@triton.jit(do_not_specialize=["rows", "splits", "first_rank", "capacity"])
def linear_sum_kernel(  # type: ignore[no-untyped-def]
    x, weights, scales, zeros, sums, arrivals,
    rows, inputs, outputs, splits, share,
    residual, out, addresses, counts, delays, first_rank, capacity,
    FORMAT: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr,
    NATIVE: tl.constexpr, PARTS: tl.constexpr, RANKS: tl.constexpr, HERE: tl.constexpr,
    RECEIVERS: tl.constexpr, SEND: tl.constexpr, RECEIVE: tl.constexpr,
):  # fmt: skip
    """A program: PARTS of 16 rows, two neighbouring tiles of outputs, one split; of HERE ranks."""
    group, tile, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    here = 0
    if HERE > 1:
        here = split // splits
        split = split % splits
        cells = outputs.to(tl.int64) * inputs
        x += here * rows * inputs
        residual += here * rows * outputs
        out += here * rows * outputs
        if FORMAT == 2:
            weights += here * (cells // 4)
            scales += here * (cells // 128)
            zeros += here * (cells // 128)
        else:
            weights += here * cells
            if FORMAT == 1:
                scales += here * outputs
    dtype: tl.constexpr = residual.dtype.element_ty
    pairs = tl.num_programs(1) * COLUMNS  # words of a row: outputs of two tiles in each
    if SEND:
        row = group * PARTS * LINES
        first = tile.to(tl.int64) * (2 * COLUMNS) + tl.arange(0, COLUMNS)
        second = first + COLUMNS
        begin = split * share
        ones, others = products(
            x, weights, scales, zeros, row, rows, inputs, outputs, first, second,
            first < outputs, second < outputs, begin, tl.minimum(begin + share, inputs),
            FORMAT, COLUMNS, BLOCK, EVEN, NATIVE, PARTS,
        )  # fmt: skip
        place = ((here * tl.num_programs(1) + tile) * tl.num_programs(0) + group) * PARTS
        for part in tl.static_range(PARTS):
            begin_row = row + part * LINES
            one, other, last = gathered(
                ones[part], others[part], sums, arrivals, place + part, begin_row, rows, split,
                splits, COLUMNS,
            )  # fmt: skip
            if last:
                if delays is not None:
                    for _ in range(tl.load(delays + place + part)):
                        tl.load(counts, volatile=True)
                lines = begin_row + tl.arange(0, LINES)
                at = lines[:, None] * pairs + (tile * COLUMNS + tl.arange(0, COLUMNS))[None, :]
                seen = (lines < rows)[:, None] & (first < outputs)[None, :]
                call = tl.load(counts + 2 * here) + 1
                box = ((call & (BUFFERS - 1)) * RANKS + first_rank + here).to(tl.int64) * capacity
                send(one, other, addresses, box, call, at, rows * pairs, seen, RANKS, dtype)
    if RECEIVE:
        call = tl.load(counts + 2 * here) + 1
        programs = tl.num_programs(0) * tl.num_programs(1) * splits
        receivers = tl.minimum(programs, RECEIVERS)
        tl.debug_barrier()
        turn = tl.atomic_add(counts + 2 * here + 1, 1, sem="acq_rel")
        receiver = turn - (programs - receivers)
        if receiver >= 0:
            mailbox = tl.load(addresses + first_rank + here).to(tl.pointer_type(tl.int64))
            buffer = (call & (BUFFERS - 1)).to(tl.int64) * RANKS * capacity
            mailbox = tl.multiple_of(mailbox, 16) + buffer
            plane = rows * pairs
            PIECE: tl.constexpr = 256  # two words a thread of each rank: more of them would spill
            for piece in range(receiver * PIECE, plane, receivers * PIECE):
                finish(
                    mailbox, call, piece, pairs, plane, outputs, capacity, residual, out,
                    RANKS, COLUMNS, PIECE,
                )  # fmt: skip
        if turn == programs - 1:  # no program reads the count any more
            tl.store(counts + 2 * here, call)
            tl.store(counts + 2 * here + 1, 0)


def linear_sum(
    x: Tensor,
    weights: Weights,
    residual: Tensor,
    out: Tensor,
    scratch: TileScratch,
    where: SumMeeting,
    cut: Tiling | None = None,
) -> None:
    """Compute out = residual + (x @ W.T of rank 0 + x @ W.T of rank 1 + …), alike on every rank.

    x: [rows, this rank's inputs]; residual, out: [rows, outputs] in x's dtype, contiguous; `out`
    may be `residual`. Products are rounded to x's dtype, their sums are float32 in the order of
    ranks, rounded once: what `linear` and `all_reduce` give, to the bit. All ranks call in one
    order with equal shapes and plans, on one stream each. `cut` is what `plan` says, if not given.

    Source: SwiftSpec's GEMM + all-reduce (arXiv 2506.11309, M6). Traffic: `linear`'s without its
    out, 8 bytes a word (two outputs of 16 bits) from and to each peer over the link, 8 * 2 * ranks
    * words + 2 * rows * outputs * size of x bytes in device memory.
    """
    linear_sums(x[None], weights, residual[None], out[None], scratch, where, cut)


def linear_sums(
    x: Tensor,
    weights: Weights,
    residual: Tensor,
    out: Tensor,
    scratch: TileScratch,
    where: SumMeeting,
    cut: Tiling | None = None,
    how: Emulation = WHOLE_LAUNCH,
) -> None:
    """Run `linear_sum` for all of this process's ranks, [ranks of this process, rows, ..].

    Of more than one rank, `weights` are `stacked`. Raises `ValueError` naming what does not fit.
    """
    cut = cut or plan(weights)
    one_by_one = INTERPRETED.value and how.send and how.receive
    receivers = ALONE if one_by_one else RECEIVERS
    here, boxes = len(x), where.mailboxes
    _check(x, weights, residual, out, where, cut)
    launch(
        linear_sum_kernel, cut, x.flatten(0, 1), weights, scratch,
        residual, out, boxes.addresses, where.counts, how.delays, boxes.rank, boxes.capacity,
        ranks=here, RANKS=len(boxes.addresses), HERE=here, RECEIVERS=receivers,
        SEND=how.send, RECEIVE=how.receive,
    )  # fmt: skip


def stacked(shares: Sequence[Weights]) -> Weights:
    """Stack the weights of several ranks, of one format and shape, as `linear_sums` takes them."""

    def together(tensors: list[Tensor | None]) -> Tensor | None:
        given = [one for one in tensors if one is not None]
        return torch.stack(given) if given else None

    values = torch.stack([one.values for one in shares])
    scales = together([one.scales for one in shares])
    zeros = together([one.zeros for one in shares])
    first = shares[0]
    return Weights(first.format, first.outputs, first.inputs, values, scales, zeros)


def _share(weights: Weights, rank: int) -> Weights:
    """Return one rank's of `stacked` weights."""
    scales = None if weights.scales is None else weights.scales[rank]
    zeros = None if weights.zeros is None else weights.zeros[rank]
    values = weights.values[rank]
    return Weights(weights.format, weights.outputs, weights.inputs, values, scales, zeros)


def linear_sums_reference(
    x: Tensor,
    weights: Weights,
    residual: Tensor,
    out: Tensor,
    scratch: TileScratch,
    where: SumMeeting,
    cut: Tiling | None = None,
) -> None:
    """Compute what `linear_sums` leaves on every rank, from all ranks' x and `stacked` weights."""
    products = [own.float() @ dense(_share(weights, rank)).T for rank, own in enumerate(x)]
    all_reduce_reference(torch.stack(products).to(x.dtype), residual, out, where.mailboxes)


def _check(
    x: Tensor, weights: Weights, residual: Tensor, out: Tensor, where: SumMeeting, cut: Tiling
) -> None:
    """Raise `ValueError` naming what does not fit; x and scratch are `launch`'s to check."""
    ranks, rows = x.shape[:2]
    if x.dtype not in TYPES:
        raise ValueError(f"x: {x.dtype}, wanted bfloat16, float16 or float32")
    check(x.dtype, (ranks, rows, weights.outputs), residual=residual, out=out)
    if len(where.counts) != ranks:
        raise ValueError(f"x: {ranks} ranks, this process has {len(where.counts)}")
    needed, capacity = words(rows, cut, x.dtype), where.mailboxes.capacity
    if needed > capacity:
        raise ValueError(f"x: {needed} words, the mailboxes hold {capacity}")
    if x.is_cuda:
        places = torch.cuda.get_device_properties(x.device).multi_processor_count
        if places < RECEIVERS * ranks:
            raise ValueError(
                f"device: {places} multiprocessors, wanted {RECEIVERS} for each of {ranks} ranks"
            )


def _compilations(ranks: int) -> tuple[Compilation, ...]:
    constants = {"RANKS": ranks, "HERE": 1, "RECEIVERS": RECEIVERS, "delays": None}
    return compilations(
        linear_sum_kernel,
        constants=constants | {"SEND": True, "RECEIVE": True},
        name=f"{ranks} ranks, ",
    )


COMPILATIONS = tuple(one for ranks in (2, 4, 8) for one in _compilations(ranks))
