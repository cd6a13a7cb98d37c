"""All-reduce: the ranks' partial products plus the residual, in one launch and one trip, by flag
words.

Leaves the matrix product before it to `linear`, and the choice between this and the library to the
runner, which takes it where `engine.allReduce` says so. It has not run on two GPUs yet.

Each rank holds a mailbox: for each of two buffers and each source, one 64-bit word for 32 bits of
data, {data, number of the call}. A program writes its tiles of words into every rank's mailbox and
reads all ranks' from its own, again and again until each word has this call's number: a word is
written at once, so data and flag arrive together, and there is no barrier. Programs are so few that
all run at once: none waits for one that has no place. Buffers alternate. Two
are enough: a rank that writes call n + 2 has finished call n + 1, so has every rank's words of it,
and a rank sends those only after its launch of call n has read all of call n. A tile counts its
calls itself, in device memory, so a CUDA graph may replay it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.tensors import check

TILE = 512
"""Words of a tile: two of 64 bits, a 128-bit store, for each thread and iteration."""
PROGRAMS = 128
"""Most programs of a rank's launch: so few that all of them run at once on any device."""
WARPS = 4
BUFFERS: tl.constexpr = tl.constexpr(2)
TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@dataclass(frozen=True, slots=True)
class Mailboxes:
    """This process's ends of the exchange; `symmetric` and `emulated` make them."""

    addresses: Tensor  # int64 [ranks], where each rank's mailbox is, as this device sees it
    calls: Tensor  # int32 [ranks of this process, tiles], calls so far
    memory: Tensor  # int64, the mailboxes of this process's ranks: [.., 2, ranks, capacity]
    rank: int  # the first of this process's ranks

    @property
    def capacity(self) -> int:
        """Words of the longest message."""
        return self.memory.shape[-1]


def emulated(ranks: int, words: int, device: str) -> Mailboxes:
    """Return mailboxes of all ranks in one process, for tests of the protocol."""
    tiles = triton.cdiv(words, TILE)
    memory = torch.zeros((ranks, 2, ranks, tiles * TILE), dtype=torch.int64, device=device)
    addresses = [memory[rank].data_ptr() for rank in range(ranks)]
    calls = torch.zeros((ranks, tiles), dtype=torch.int32, device=device)
    return Mailboxes(torch.tensor(addresses, dtype=torch.int64, device=device), calls, memory, 0)


def symmetric(
    words: int, device: torch.device, group: dist.ProcessGroup, barrier: Callable[[], None]
) -> Mailboxes:
    """Return mailboxes in torch's symmetric memory (NVLink), of one rank in each process.

    All ranks of `group`, one that torch knows by name, call it together. `barrier` returns once all
    ranks have called it and their devices have run what was launched before. Raises `RuntimeError`
    where the devices cannot map each other's memory.
    """
    import torch.distributed._symmetric_memory as symmetric_memory

    tiles, ranks = triton.cdiv(words, TILE), group.size()
    shape = (1, 2, ranks, tiles * TILE)
    memory = symmetric_memory.empty(shape, dtype=torch.int64, device=device).zero_()
    handle = symmetric_memory.rendezvous(memory, group)
    addresses = torch.tensor(list(handle.buffer_ptrs), dtype=torch.int64, device=device)
    torch.cuda.synchronize(device)
    barrier()  # all mailboxes are empty before the first word arrives
    calls = torch.zeros((1, tiles), dtype=torch.int32, device=device)
    return Mailboxes(addresses, calls, memory, group.rank())


@triton.jit
def halves(words, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return two numbers of 16 bits in each int32, the lower first, as fp32."""
    low = (words & 0xFFFF).to(tl.int16).to(DTYPE, bitcast=True)
    high = (words >> 16).to(tl.int16).to(DTYPE, bitcast=True)
    return low.to(tl.float32), high.to(tl.float32)


@triton.jit
def word_of(low, high, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the word of two numbers, rounded: the inverse of `halves`."""
    lower = low.to(DTYPE).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    return (high.to(DTYPE).to(tl.int16, bitcast=True).to(tl.int32) << 16) | lower


@triton.jit
def exchange_kernel(  # type: ignore[no-untyped-def]
    x, residual, out, addresses, calls, delays, first_rank, words, capacity,
    RANKS: tl.constexpr, DTYPE: tl.constexpr, TILE: tl.constexpr, SEND: tl.constexpr,
    RECEIVE: tl.constexpr,
):  # fmt: skip
    """Programs of one rank of this process share out its tiles: each sends all of its own, and only
    then waits. `delays`: loads to waste before sending a tile."""
    here, tiles = tl.program_id(1), tl.cdiv(words, TILE)
    rank = first_rank + here
    counters = calls + here * (capacity // TILE)
    own = here.to(tl.int64) * words
    lanes = tl.arange(0, TILE)
    if SEND:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            flag = tl.load(counters + tile) + 1
            if delays is not None:
                for _ in range(tl.load(delays + here * (capacity // TILE) + tile)):
                    tl.load(counters + tile, volatile=True)
            lane = tile * TILE + lanes
            real = lane < words
            data = tl.load(x + own + lane, real).to(tl.int64) & 0xFFFFFFFF
            word = (flag.to(tl.int64) << 32) | data
            buffer = (flag & (BUFFERS - 1)).to(tl.int64) * RANKS * capacity
            for peer in tl.static_range(RANKS):
                mailbox = tl.load(addresses + peer).to(tl.pointer_type(tl.int64))
                mailbox = tl.multiple_of(mailbox, 16)
                tl.store(
                    mailbox + buffer + rank * capacity + lane, word, real, cache_modifier=".wt"
                )
    if RECEIVE:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            flag = tl.load(counters + tile) + 1
            lane = tile * TILE + lanes
            real = lane < words
            buffer = (flag & (BUFFERS - 1)).to(tl.int64) * RANKS * capacity
            mailbox = tl.load(addresses + rank).to(tl.pointer_type(tl.int64))
            mailbox = tl.multiple_of(mailbox, 16) + buffer + lane
            low = tl.zeros((TILE,), tl.float32)
            high = tl.zeros((TILE,), tl.float32)
            for source in tl.static_range(RANKS):
                word = tl.load(mailbox + source * capacity, real, other=0, volatile=True)
                while tl.sum((real & ((word >> 32) != flag)).to(tl.int32), 0) > 0:
                    word = tl.load(mailbox + source * capacity, real, other=0, volatile=True)
                data = (word & 0xFFFFFFFF).to(tl.int32)
                if tl.float32 == DTYPE:
                    low += data.to(tl.float32, bitcast=True)
                else:
                    lower, higher = halves(data, DTYPE)
                    low += lower
                    high += higher
            kept = tl.load(residual + own + lane, real, other=0)
            if tl.float32 == DTYPE:
                result = (kept.to(tl.float32, bitcast=True) + low).to(tl.int32, bitcast=True)
            else:
                lower, higher = halves(kept, DTYPE)
                result = word_of(lower + low, higher + high, DTYPE)
            tl.store(out + own + lane, result, real)
            tl.store(counters + tile, flag)


def all_reduce(x: Tensor, residual: Tensor, out: Tensor, mailboxes: Mailboxes) -> None:
    """Compute out = residual + (x of rank 0 + x of rank 1 + …), rounded once; alike on every rank.

    x, residual, out: [rows, width] of one dtype, contiguous; `out` may be `residual`. Sums are
    float32 in the order of ranks. All ranks call in one order, on one stream each.

    Source: NCCL's LL words as SwiftSpec puts them into its GEMM + all-reduce (arXiv 2506.11309,
    M6). Traffic for b bytes of x: 2 b from and to each peer over the link (half is flags), and
    3 b + 4 b ranks in device memory.
    """
    exchange(x[None], residual[None], out[None], mailboxes)


class Emulation(NamedTuple):
    """Options of a launch of several ranks in one process, for tests of the protocol."""

    send: bool = True
    receive: bool = True
    """False for one of these: half a launch. Where programs run one after another, all ranks must
    send before any receives."""
    delays: Tensor | None = None
    """Loads to waste before sending, int32: [ranks of this process, tiles], and of `linear_sums`
    [.., 16s of rows]."""


WHOLE_LAUNCH = Emulation()


def exchange(
    x: Tensor,
    residual: Tensor,
    out: Tensor,
    mailboxes: Mailboxes,
    how: Emulation = WHOLE_LAUNCH,
) -> None:
    """Run `all_reduce` for this process's ranks, [ranks of this process, rows, width]."""
    words, tiles = _checked(x, residual, out, mailboxes)
    exchange_kernel[(min(tiles, PROGRAMS), x.shape[0])](
        x.view(torch.int32), residual.view(torch.int32), out.view(torch.int32),
        mailboxes.addresses, mailboxes.calls, how.delays, mailboxes.rank, words, mailboxes.capacity,
        mailboxes.addresses.shape[0], TYPES[x.dtype], TILE, how.send, how.receive, num_warps=WARPS,
    )  # fmt: skip


def all_reduce_reference(x: Tensor, residual: Tensor, out: Tensor, mailboxes: Mailboxes) -> None:
    """Compute what `exchange` leaves on every rank, from all ranks' x [ranks, rows, width]."""
    _checked(x, residual, out, mailboxes)
    total = torch.zeros_like(x[0], dtype=torch.float32)
    for share in x:
        total = total + share.float()
    out.copy_((residual.float() + total).to(out.dtype))


def _checked(x: Tensor, residual: Tensor, out: Tensor, mailboxes: Mailboxes) -> tuple[int, int]:
    """Return the words of a rank's message and their tiles; `ValueError` names what does not
    fit.
    """
    if x.dtype not in TYPES:
        raise ValueError(f"x: {x.dtype}, wanted bfloat16, float16 or float32")
    check(x.dtype, x.shape, x=x, residual=residual, out=out)
    numbers = x[0].numel()
    if numbers * x.element_size() % 4:
        raise ValueError(f"x: {numbers} numbers, wanted an even number")
    words = numbers * x.element_size() // 4
    if words > mailboxes.capacity:
        raise ValueError(f"x: {words} words, the mailboxes hold {mailboxes.capacity}")
    if mailboxes.calls.shape[0] != x.shape[0]:
        raise ValueError(f"x: {x.shape[0]} ranks, this process has {mailboxes.calls.shape[0]}")
    return words, triton.cdiv(words, TILE)


def _compilation(ranks: int) -> Compilation:
    constants = {"RANKS": ranks, "DTYPE": tl.bfloat16, "TILE": TILE, "delays": None}
    return Compilation(
        kernel=exchange_kernel,
        name=f"{ranks} ranks, bf16",
        types=dict.fromkeys(("x", "residual", "out"), "*i32"),
        constants=constants | {"SEND": True, "RECEIVE": True},
        warps=WARPS,
        multiples=("words", "capacity"),
    )


COMPILATIONS = tuple(_compilation(ranks) for ranks in (2, 3, 4, 8))
