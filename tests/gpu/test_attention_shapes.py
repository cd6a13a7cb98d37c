"""Tree attention at the shapes of real models: close to float64, and the same bits in any pass."""

import numpy as np
import pytest
import torch
from torch import Tensor

from outrider.kernels.gpu.attention import tree_attention
from outrider.kernels.gpu.attention_inputs import (
    TILE,
    ContextRows,
    group_rows,
    groups_of,
    make_scratch,
)
from tests.gpu.shapes import (
    ATTENTIONS,
    LARGEST_ERROR,
    ROWS,
    ModelShape,
    differing,
    error,
    name_of,
    random,
)
from tests.kernel_outputs import unwritten

CONTEXTS = (1000, 4090, 32_000)
LINES = 2
"""Sequences of a pass; rows go to them in turn, and the second one's context is half as long."""


class Trees:
    """Rows of binary trees behind two contexts, in shuffled blocks of one pool of NaN."""

    def __init__(self, model: ModelShape, context: int, device: str) -> None:
        self.model, self.device = model, device
        self.prefixes = (context, context // 2 + 7)
        blocks = -(-(context + max(ROWS)) // TILE)
        order = np.random.default_rng(context).permutation(LINES * blocks + 3).astype(np.int32)
        self.tables = torch.from_numpy(order[: LINES * blocks].reshape(LINES, blocks)).to(device)
        shape = model.kv_heads, len(order) * TILE, model.head_dim
        self.pools = []
        for kind in range(2):
            pool = unwritten(*shape, dtype=torch.bfloat16, device=device)
            for line in range(LINES):
                values = random(shape[0], self.length(line), shape[2], device=device, seed=kind)
                pool[:, self.slots(line)] = values * (1 + line)
            self.pools.append(pool)
        self.q = random(max(ROWS), model.heads, model.head_dim, device=device, seed=2)

    def length(self, line: int) -> int:
        """Return the offsets that are written: a context, and a node for every row."""
        return self.prefixes[line] + max(ROWS) // LINES

    def slots(self, line: int) -> Tensor:
        """Return the slot of every written offset."""
        offsets = torch.arange(self.length(line), device=self.device)
        return self.tables[line, offsets // TILE].long() * TILE + offsets % TILE

    def chain(self, row: int) -> list[int]:
        """Return the offsets of a row's ancestors and its own."""
        node = row // LINES
        above = self.chain(row - LINES * (node - (node - 1) // 2)) if node else []
        return [*above, self.prefixes[row % LINES] + node]

    def attend(self, rows: list[int], splits: int | None = None) -> Tensor:
        """Return the results of some rows in one launch, as [rows, heads, head_dim]."""
        chains = [self.chain(row) for row in rows]
        ancestors = np.zeros((len(rows), 64), np.int32)
        for own, chain in zip(ancestors, chains, strict=True):
            own[: len(chain)] = chain
        line = np.array(rows, np.int32) % LINES
        prefix, depth = (
            np.array(values, np.int32)
            for values in ([self.prefixes[i] for i in line], [len(chain) for chain in chains])
        )
        heads, kv_heads, size = self.model.heads, self.model.kv_heads, self.model.head_dim
        groups = groups_of(line, prefix + depth, group_rows(heads, kv_heads))
        arrays = (torch.from_numpy(x).to(self.device) for x in (line, prefix, ancestors, depth))
        context = ContextRows(*arrays, self.tables, torch.from_numpy(groups).to(self.device))
        out = unwritten(len(rows), heads, size, dtype=torch.bfloat16, device=self.device)
        scratch = make_scratch(len(rows), heads, kv_heads, size, self.device, splits)
        scratch.sums.fill_(torch.nan)
        scratch.statistics.fill_(torch.nan)
        window = self.model.window
        tree_attention(self.q[rows], *self.pools, context, size**-0.5, window, out, scratch)
        return out

    def expected(self, rows: list[int]) -> Tensor:
        """Return the same in float64, each row over the offsets that it sees."""
        model = self.model
        of_head = model.heads // model.kv_heads
        out = torch.empty(len(rows), model.heads, model.head_dim, device=self.device)
        for line in range(LINES):
            keys, values = (pool[:, self.slots(line)].double() for pool in self.pools)
            for at, row in enumerate(rows):
                if row % LINES == line:
                    offsets = [*range(self.prefixes[line]), *self.chain(row)]
                    seen = torch.tensor(offsets[-model.window :], device=self.device)
                    q = self.q[row].double().view(model.kv_heads, of_head, -1)
                    scores = q @ keys[:, seen].transpose(1, 2) * model.head_dim**-0.5
                    out[at] = (scores.softmax(2) @ values[:, seen]).view(model.heads, -1)
        return out


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("model", ATTENTIONS, ids=name_of)
def test_every_row_is_close_to_float64(model: ModelShape, context: int, device: str) -> None:
    trees = Trees(model, context, device)
    for rows in ROWS:
        found = trees.attend(list(range(rows)))
        assert error(found, trees.expected(list(range(rows)))) < LARGEST_ERROR, f"{rows} rows"


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("model", ATTENTIONS, ids=name_of)
def test_a_row_has_the_same_bits_alone_and_among_others(
    model: ModelShape, context: int, device: str
) -> None:
    trees = Trees(model, context, device)
    everyone = list(range(max(ROWS)))
    whole = trees.attend(everyone)
    for some in ([0], [5], [127], everyone[:8], everyone[40:57], everyone[1::2], everyone[::-1]):
        assert torch.equal(trees.attend(some), whole[some]), f"rows {some[:3]}…"


@pytest.mark.parametrize("rows", [8, 128])
@pytest.mark.parametrize("model", ATTENTIONS, ids=name_of)
def test_every_launch_gives_the_same_bits(model: ModelShape, rows: int, device: str) -> None:
    trees = Trees(model, 4090, device)
    everyone = list(range(rows))
    assert differing(lambda: trees.attend(everyone), trees.attend(everyone)) == 0


def test_sanitized_attention_reads_and_writes_its_own(device: str) -> None:
    """A launch with two groups and tails in each line, small enough for a memory checker."""
    trees = Trees(ATTENTIONS[0], 1000, device)
    assert trees.attend(list(range(17))).isfinite().all()
