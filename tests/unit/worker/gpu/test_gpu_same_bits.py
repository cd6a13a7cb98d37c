"""A row's bits are its own: alone, beside others, padded otherwise, as prompt, root or node."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from outrider.contract.settings import PolicySettings, PrefillKind
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.link.wire import Grow
from outrider.worker.messages import Finished, FromPeer, LinkUp, Submit, Tokens
from outrider.worker.model.rows import Rows, joined, prompt_rows, tree_rows
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions
from outrider.worker.tree.growth import Growth
from tests.gpu_models import on_device, write
from tests.unit.worker.fakes import FlatCosts

NOTHING = np.empty(0, np.int32)
TOKENS = np.random.default_rng(5).integers(0, 256, 200).astype(np.int32)
START, COUNT = 150, 3
"""Tokens of context, whose KV is noise, and tokens after it."""
PROMPT = TOKENS[:3]
LINK = 1
VOCABULARY = 260


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def block_tables(model: GpuModel, count: int) -> list[BlockTable]:
    """Sequences of one context, in blocks of their own."""
    found = [model.kv_cache.admit(NOTHING, 192) for _ in range(count)]
    generator = torch.Generator().manual_seed(1)
    for kept in (model.kv_cache.k, model.kv_cache.v):
        layers, heads, _, size = kept.shape
        noise = torch.randn((layers, heads, START, size), generator=generator)
        for block_table in found:
            assert block_table is not None
            slots = block_table.slots(np.arange(START, dtype=np.int32))
            kept[:, :, torch.from_numpy(slots).long()] = noise.to(kept.device, kept.dtype)
    model.copies.synchronize()
    return [block_table for block_table in found if block_table is not None]


def chain(own: BlockTable, offsets: np.ndarray) -> Rows:
    """The tokens as nodes at any offsets, each followed by a sibling of another token."""
    depth = np.repeat(np.arange(1, COUNT + 1, dtype=np.int32), 2)
    ancestors = np.zeros((2 * COUNT, COUNT), np.int32)
    places = np.empty(2 * COUNT, np.int32)
    tokens = np.repeat(TOKENS[:COUNT], 2)
    for i in range(COUNT):
        places[2 * i : 2 * i + 2] = offsets[i], START + 20 + i
        ancestors[2 * i : 2 * i + 2, :i] = offsets[:i]
        ancestors[2 * i : 2 * i + 2, i] = places[2 * i : 2 * i + 2]
        tokens[2 * i + 1] += 1
    prefix = np.full(2 * COUNT, START, np.int32)
    return tree_rows(tokens, places, own, prefix, ancestors, depth)


def kv(model: GpuModel, own: BlockTable) -> torch.Tensor:
    """Keys and values of the tokens after the context."""
    slots = torch.from_numpy(own.slots(np.arange(START, START + COUNT, dtype=np.int32))).long()
    return torch.stack([kept[:, :, slots] for kept in (model.kv_cache.k, model.kv_cache.v)])


def test_a_row_has_the_same_bits_in_every_pass(
    tmp_path: Path, dtype: torch.dtype, device: str
) -> None:
    model = on_device(write(tmp_path, kv_heads=1, heads=2), device, dtype, blocks=12)
    alone, chunk, verified, other = block_tables(model, 4)
    expected = np.concatenate(
        [
            model.forward(prompt_rows(TOKENS[i : i + 1], START + i, alone, True)).copy()
            for i in range(COUNT)
        ]
    )
    assert np.isfinite(expected).all()
    assert np.abs(expected).max() > 0

    beside = prompt_rows(TOKENS[50:52], 3, other, True)
    rows = joined([beside, prompt_rows(TOKENS[:COUNT], START, chunk, True)])
    assert np.array_equal(model.forward(rows)[1], expected[-1])

    offsets = ints(START + 7, START + 2, START)
    rows = chain(verified, offsets)
    assert np.array_equal(model.forward(rows)[::2], expected)
    model.kv_cache.move(verified, offsets, np.arange(START, START + COUNT, dtype=np.int32))
    model.forward(beside)

    for own in (chunk, verified):
        assert torch.equal(kv(model, own), kv(model, alone))


Grower = Callable[[int, int], Grow | None]
"""Growth of a draft, by the root's position and its first free id."""


def no_draft(position: int, first_id: int) -> Grow | None:
    return None


def growth_of(tokens: list[int], position: int, first_id: int) -> Grow:
    """A branch of nodes, and beside its first one another."""
    count = len(tokens)
    parents = np.array([0, 0, *range(first_id + 1, first_id + count - 1)][:count], np.int64)
    logprobs = np.array([-2.5] + [-0.1] * (count - 1), np.float32)
    return Grow(1, Growth(position, first_id, parents, np.array(tokens, np.int32), logprobs))


def text(
    model: GpuModel,
    sampling: SamplingParams,
    count: int,
    grower: Grower,
    prefill: PrefillKind = PrefillKind.EXACT,
) -> tuple[list[int], Any]:
    """Text of a request by the real scheduler, and its usage."""
    outbox: list[Any] = []
    row_selector = RowSelector.start(FlatCosts(), PolicySettings(off_below_percent=0), 16)  # type: ignore[arg-type]
    sessions = TargetSessions(lambda link, message: None, row_selector)
    scheduler = TargetScheduler(
        model.kv_cache, 120, 1, sessions, outbox, LogitsProcessors(VOCABULARY), prefill
    )
    runner = GpuTargetRunner(model, VOCABULARY)
    scheduler.receive(LinkUp(LINK, np.ones(VOCABULARY, np.bool_)), 0.0)
    scheduler.receive(Submit(1, PROMPT, sampling, count, (), True, 0.0), 0.0)
    now, first_id = 0.0, 1
    while (step := scheduler.next(now, may_wait=False)) is not None:
        now += 0.01
        scheduler.settle(step, runner.run(step), now)
        if scheduler.admission.running and (
            grown := grower(scheduler.admission.running[0].position, first_id)
        ):
            scheduler.receive(FromPeer(LINK, [grown]), now)
            first_id += len(grown.growth.tokens)
    (end,) = [m for m in outbox if isinstance(m, Finished)]
    return [t for m in outbox if isinstance(m, Tokens) for t in m.ids], end.usage


def test_a_requests_text_is_the_same_with_drafts_right_wrong_and_none(
    tmp_path: Path, device: str
) -> None:
    folder = write(tmp_path, layers=1, heads=2, kv_heads=1)
    model = on_device(folder, device, torch.float16)
    sampling, count = SamplingParams(temperature=0.9, seed=77), 9
    plain, _ = text(model, sampling, count, no_draft)
    assert len(set(plain)) > 4
    known = PROMPT.tolist() + plain

    def grower(position: int, first_id: int) -> Grow | None:
        """Nonsense at first, then what is right."""
        after = known[position + 1 : position + 4]
        return growth_of([9, *after] if position > 4 else [4, 5, 6], position, first_id)

    found, usage = text(model, sampling, count, grower)
    assert found == plain
    assert usage.accepted_rows > 2
    assert usage.passes < count - 2
