"""GEMM, sum over ranks and residual in one launch: its sums, and that no device waits for ever."""

import math
from dataclasses import dataclass, field
from random import Random

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from outrider.kernels.gpu.all_reduce import Emulation, emulated, exchange
from outrider.kernels.gpu.linear import linear
from outrider.kernels.gpu.linear_sum import (
    linear_sum,
    linear_sums,
    linear_sums_reference,
    stacked,
)
from outrider.kernels.gpu.meeting import SumMeeting, meeting, words
from outrider.kernels.gpu.tiles import TileScratch, make_scratch
from outrider.kernels.gpu.tiling import Tiling, plan
from outrider.kernels.gpu.weights import WeightFormat, Weights
from tests.kernel_outputs import assert_close, normal, unwritten
from tests.linear_layers import layer


@dataclass
class Layer:
    """The same layer's shares at all ranks, in one process."""

    shares: list[Weights]
    rows: int
    where: SumMeeting
    cut: Tiling
    scratch: TileScratch

    @classmethod
    def of(
        cls,
        kind: WeightFormat,
        ranks: int,
        rows: int,
        outputs: int,
        dtype: torch.dtype,
        device: str,
    ) -> "Layer":
        shares = [layer(kind, outputs, 512, dtype, device) for _ in range(ranks)]
        for rank, share in enumerate(shares):
            share.values.copy_(share.values.roll(rank, 1))
        cut = plan(shares[0], splits=2)
        assert cut.splits == 2
        scratch = make_scratch(ranks * 16 * math.prod(cut.programs(rows)), [cut], device)
        scratch.sums.fill_(torch.nan)
        where = meeting(emulated(ranks, words(rows, cut, dtype), device))
        return cls(shares, rows, where, cut, scratch)

    def run(self, x: Tensor, residual: Tensor, seed: int = 0) -> Tensor:
        """All ranks in one launch with random delays; interpreted, first all send."""
        out = unwritten(*residual.shape, dtype=x.dtype, device=str(x.device))
        given = (x, stacked(self.shares), residual, out, self.scratch, self.where, self.cut)
        if triton.knobs.runtime.interpret:
            linear_sums(*given, Emulation(receive=False))
            linear_sums(*given, Emulation(send=False))
        else:
            shape = (len(x), self.cut.tiles, math.prod(self.cut.programs(x.shape[1])))
            generator = torch.Generator().manual_seed(seed)
            delays = torch.randint(0, 2000, shape, generator=generator, dtype=torch.int32)
            linear_sums(*given, Emulation(delays=delays.to(x.device)))
        assert not self.scratch.arrivals.any()
        assert not self.where.counts[:, 1].any()
        return out

    def apart(self, x: Tensor, residual: Tensor) -> Tensor:
        """The same by `linear` on every rank, then the exchange."""
        part, out = (unwritten(*residual.shape, dtype=x.dtype, device=str(x.device)) for _ in "ab")
        for rank, share in enumerate(self.shares):
            linear(x[rank], share, part[rank], self.scratch, self.cut)
        boxes = emulated(len(x), residual[0].numel(), str(x.device))
        exchange(part, residual, out, boxes, Emulation(receive=False))
        exchange(part, residual, out, boxes, Emulation(send=False))
        return out


def inputs(ranks: int, rows: int, outputs: int, dtype: torch.dtype, device: str, seed: int = 0):  # type: ignore[no-untyped-def]
    x = normal(ranks, rows, 512, dtype=dtype, device=device, seed=seed)
    residual = normal(rows, outputs, dtype=dtype, device=device, seed=9)
    return x, residual.expand(ranks, -1, -1).contiguous()


@pytest.mark.parametrize(
    ("kind", "ranks", "rows", "outputs"),
    [
        (WeightFormat.PLAIN, 3, 18, 80),
        (WeightFormat.FP8, 2, 3, 72),
        (WeightFormat.INT4, 2, 35, 200),
    ],
)
def test_the_sum_has_the_bits_of_product_and_exchange_apart(
    kind: WeightFormat, ranks: int, rows: int, outputs: int, dtype: torch.dtype, device: str
) -> None:
    layers = Layer.of(kind, ranks, rows, outputs, dtype, device)
    for call in range(2):
        x, residual = inputs(ranks, rows, outputs, dtype, device, call)
        result = layers.run(x, residual, seed=call)
        assert torch.equal(result, layers.apart(x, residual))
        assert all(torch.equal(result[0], other) for other in result)
    wanted = torch.empty_like(residual)
    shares = stacked(layers.shares)
    linear_sums_reference(x, shares, residual, wanted, layers.scratch, layers.where)
    assert_close(result, wanted)


def test_launches_of_many_and_of_few_rows_alternate(device: str) -> None:
    layers = Layer.of(WeightFormat.PLAIN, 2, 18, 80, torch.float16, device)
    for call, rows in enumerate([17, 1, 1, 17]):
        x, residual = inputs(2, rows, 80, torch.float16, device, call)
        assert torch.equal(layers.run(x, residual, seed=call), layers.apart(x, residual))


def test_layers_of_other_plans_share_mailboxes(device: str) -> None:
    wide = Layer.of(WeightFormat.PLAIN, 2, 3, 200, torch.float16, device)
    other = Layer.of(WeightFormat.INT4, 2, 3, 200, torch.float16, device)
    other.where = wide.where
    for call, layers in enumerate([wide, other, other, wide]):
        x, residual = inputs(2, 3, 200, torch.float16, device, call)
        assert torch.equal(layers.run(x, residual, seed=call), layers.apart(x, residual))


def test_numbers_of_launches_may_run_over(device: str) -> None:
    layers = Layer.of(WeightFormat.PLAIN, 2, 2, 80, torch.float16, device)
    layers.where.counts[:, 0] = 2**31 - 2
    for call in range(3):
        x, residual = inputs(2, 2, 80, torch.float16, device, call)
        assert torch.equal(layers.run(x, residual, seed=call), layers.apart(x, residual))


def test_a_row_has_the_same_bits_whatever_runs_beside_it(device: str) -> None:
    layers = Layer.of(WeightFormat.PLAIN, 2, 18, 72, torch.float16, device)
    x, residual = inputs(2, 18, 72, torch.float16, device)
    whole = layers.run(x, residual)
    for count in (1, 17):
        few = layers.run(x[:, :count].contiguous(), residual[:, :count].contiguous())
        assert torch.equal(few, whole[:, :count])


def test_one_rank_adds_its_own_product(device: str) -> None:
    layers = Layer.of(WeightFormat.PLAIN, 1, 3, 80, torch.float16, device)
    x, residual = inputs(1, 3, 80, torch.float16, device)
    wanted = layers.apart(x, residual)
    where, scratch = layers.where, layers.scratch
    linear_sum(x[0], layers.shares[0], residual[0], residual[0], scratch, where, layers.cut)
    assert torch.equal(residual, wanted)


def test_what_does_not_fit_is_named(device: str) -> None:
    layers = Layer.of(WeightFormat.PLAIN, 2, 3, 80, torch.float32, device)
    x, residual = inputs(2, 3, 80, torch.float32, device)
    longer = inputs(2, 4, 80, torch.float32, device)[1]
    with pytest.raises(ValueError, match="x: 2176 words, the mailboxes hold 512"):
        layers.run(*inputs(2, 17, 80, torch.float32, device))
    with pytest.raises(ValueError, match="residual: "):
        layers.run(x, longer)
    with pytest.raises(ValueError, match="x: 1 ranks, this process has 2"):
        layers.run(x[:1], residual[:1])


@dataclass
class Device:
    """Programs of one launch at one rank: some have places, in any order; the last few wait."""

    programs: int
    places: int
    waiting_most: int
    own_tile: bool
    """True if each program waits for its own tile instead."""
    waiting: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)
    left: list[int] = field(default_factory=list)


def finishes(devices: list[Device], random: Random) -> bool:
    """True if all programs of all ranks end, whatever comes first; False: all wait for ever."""
    for device in devices:
        device.left = random.sample(range(device.programs), device.programs)
    while True:
        moves = []
        for device in devices:
            if device.left and len(device.running) + len(device.waiting) < device.places:
                moves.append(("place", device, 0))
            moves += [("send", device, program) for program in device.running]
            for program in device.waiting:
                awaited = {program} if device.own_tile else range(device.programs)
                if all(one in other.sent for other in devices for one in awaited):
                    moves.append(("end", device, program))
        if not moves:
            return not any(device.left or device.waiting for device in devices)
        kind, device, program = random.choice(moves)
        if kind == "place":
            device.running.append(device.left.pop())
        elif kind == "send":
            device.running.remove(program)
            device.sent.add(program)
            late = len(device.sent) > device.programs - device.waiting_most
            if device.own_tile or late:
                device.waiting.append(program)
        else:
            device.waiting.remove(program)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 9))
def test_as_many_places_as_may_wait_are_enough_in_any_order(seed: int, programs: int) -> None:
    ranks = [Device(programs, 3, 3, own_tile=False) for _ in range(3)]
    assert finishes(ranks, Random(seed))


def test_waiting_for_the_own_tile_or_for_more_than_there_are_places_is_stuck() -> None:
    def stuck(waiting: int, own_tile: bool) -> bool:
        runs = ([Device(9, 3, waiting, own_tile) for _ in "ab"] for _ in range(20))
        return not all(finishes(one, Random(seed)) for seed, one in enumerate(runs))

    assert stuck(9, own_tile=True)
    assert stuck(4, own_tile=False)
    assert not stuck(3, own_tile=False)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_programs_that_all_have_places_may_wait_for_their_own_tile(seed: int) -> None:
    assert finishes([Device(3, 3, 3, own_tile=True) for _ in range(3)], Random(seed))
