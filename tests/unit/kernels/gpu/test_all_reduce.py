"""The exchange by flag words: its sums, and its protocol under any order of events."""

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from outrider.kernels.gpu.all_reduce import (
    PROGRAMS,
    TILE,
    Emulation,
    Mailboxes,
    all_reduce_reference,
    emulated,
    exchange,
)
from tests.kernel_outputs import normal, unwritten


def run(x: Tensor, residual: Tensor, out: Tensor, mailboxes: Mailboxes, seed: int) -> None:
    """All ranks in one launch with random delays; interpreted, first all send, then all receive."""
    if triton.knobs.runtime.interpret:
        exchange(x, residual, out, mailboxes, Emulation(receive=False))
        exchange(x, residual, out, mailboxes, Emulation(send=False))
        return
    generator = torch.Generator().manual_seed(seed)
    delays = torch.randint(0, 2000, mailboxes.calls.shape, generator=generator, dtype=torch.int32)
    exchange(x, residual, out, mailboxes, Emulation(delays=delays.to(x.device)))


@pytest.mark.parametrize(("ranks", "rows", "width"), [(2, 3, 410), (3, 1, 82), (4, 5, 4)])
def test_every_rank_has_the_sum_in_the_order_of_ranks(
    ranks: int, rows: int, width: int, dtype: torch.dtype, device: str
) -> None:
    mailboxes = emulated(ranks, 3 * 410, device)
    for call in range(4):
        x = normal(ranks, rows, width, dtype=dtype, device=device, seed=call)
        residual = normal(rows, width, dtype=dtype, device=device, seed=9).expand_as(x).contiguous()
        out, wanted = (unwritten(*x.shape, dtype=dtype, device=device) for _ in range(2))
        run(x, residual, out, mailboxes, seed=call)
        all_reduce_reference(x, residual, wanted, mailboxes)
        assert torch.equal(out, wanted)


def test_calls_of_many_and_of_few_rows_alternate(device: str) -> None:
    mailboxes = emulated(2, 1200, device)
    for call, rows in enumerate([12, 1, 1, 12, 1, 12, 12]):
        x = normal(2, rows, 100, dtype=torch.float32, device=device, seed=call)
        out, wanted = (unwritten(*x.shape, dtype=x.dtype, device=device) for _ in range(2))
        run(x, torch.zeros_like(x), out, mailboxes, seed=call)
        all_reduce_reference(x, torch.zeros_like(x), wanted, mailboxes)
        assert torch.equal(out, wanted)


def test_more_tiles_than_programs_are_shared_out(device: str) -> None:
    numbers = TILE * (PROGRAMS + 1) + 2
    mailboxes = emulated(2, numbers, device)
    for call, length in enumerate([numbers, TILE, numbers]):
        x = normal(2, 1, length, dtype=torch.float32, device=device, seed=call)
        out, wanted = (unwritten(*x.shape, dtype=x.dtype, device=device) for _ in range(2))
        run(x, torch.ones_like(x), out, mailboxes, seed=call)
        all_reduce_reference(x, torch.ones_like(x), wanted, mailboxes)
        assert torch.equal(out, wanted)


def test_numbers_of_calls_may_run_over(device: str) -> None:
    mailboxes = emulated(2, 100, device)
    mailboxes.calls.fill_(2**31 - 2)
    for call in range(4):
        x = normal(2, 1, 100, dtype=torch.float32, device=device, seed=call)
        out, wanted = (unwritten(*x.shape, dtype=x.dtype, device=device) for _ in range(2))
        run(x, torch.zeros_like(x), out, mailboxes, seed=call)
        all_reduce_reference(x, torch.zeros_like(x), wanted, mailboxes)
        assert torch.equal(out, wanted)
    assert (mailboxes.calls < 0).all()


def test_what_does_not_fit_is_named(device: str) -> None:
    mailboxes = emulated(2, 100, device)
    x = torch.zeros(2, 1, 600, device=device)
    with pytest.raises(ValueError, match="600 words, the mailboxes hold 512"):
        exchange(x, x, x, mailboxes)
    with pytest.raises(ValueError, match="1 ranks, this process has 2"):
        exchange(x[:1, :, :8].contiguous(), *[x[:1, :, :8].contiguous()] * 2, mailboxes)
    with pytest.raises(ValueError, match="residual"):
        exchange(x, x[:1], x, mailboxes)
    odd = torch.zeros(2, 1, 3, dtype=torch.float16, device=device)
    with pytest.raises(ValueError, match="3 numbers, wanted an even number"):
        exchange(odd, odd, odd, mailboxes)


RANKS, WORDS, CALLS = 3, 2, 5
Place = tuple[int, int, int, int]
"""Rank that reads, buffer, source, word."""


@dataclass
class Model:
    """Ranks that send, links that deliver late, and ranks that read, one event at a time.

    Words to one place arrive in order, words to different places in any.
    """

    buffers: int
    call: list[int] = field(default_factory=lambda: [1] * RANKS)
    unsent: list[set[tuple[int, int]]] = field(default_factory=lambda: [_all() for _ in "abc"])
    unread: list[set[tuple[int, int]]] = field(default_factory=lambda: [_all() for _ in "abc"])
    flying: dict[Place, deque[tuple[int, int]]] = field(default_factory=dict)
    memory: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """(Number of the call, data), data being the sender's 10 x call + source."""

    def events(self) -> list[tuple[str, int, int, int] | tuple[str, Place]]:
        """Everything that may happen next; nothing: finished, or stuck."""
        found: list[tuple[str, int, int, int] | tuple[str, Place]] = []
        for rank in range(RANKS):
            if self.call[rank] > CALLS:
                continue
            found += [("send", rank, *one) for one in self.unsent[rank]]
            if not self.unsent[rank]:
                found += [("read", rank, *one) for one in self.unread[rank] if self.has(rank, one)]
        return found + [("arrive", place) for place, words in self.flying.items() if words]

    def has(self, rank: int, one: tuple[int, int]) -> bool:
        buffer = self.call[rank] % self.buffers
        return self.memory.get((rank, buffer, *one), (0, 0))[0] == self.call[rank]

    def happen(self, event: tuple[str, int, int, int] | tuple[str, Place]) -> None:
        if len(event) == 2:
            self.memory[event[1]] = self.flying[event[1]].popleft()
            return
        kind, rank, other, word = event
        call, buffer = self.call[rank], self.call[rank] % self.buffers
        if kind == "send":
            self.unsent[rank].remove((other, word))
            place = (other, buffer, rank, word)
            self.flying.setdefault(place, deque()).append((call, 10 * call + rank))
            return
        self.unread[rank].remove((other, word))
        assert self.memory[rank, buffer, other, word] == (call, 10 * call + other)
        if not self.unread[rank]:
            self.call[rank] += 1
            self.unsent[rank], self.unread[rank] = _all(), _all()

    def run(self, random: Random) -> bool:
        """True if every rank finishes all its calls."""
        while events := self.events():
            self.happen(random.choice(sorted(events, key=str)))
        return self.call == [CALLS + 1] * RANKS


def _all() -> set[tuple[int, int]]:
    return {(rank, word) for rank in range(RANKS) for word in range(WORDS)}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_two_buffers_are_enough_in_any_order_of_events(seed: int) -> None:
    assert Model(2).run(Random(seed))


def test_one_buffer_is_not() -> None:
    assert not all(Model(1).run(Random(seed)) for seed in range(20))
