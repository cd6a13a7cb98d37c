"""Cases of `bench.kernels` around attention: tree attention, moves of its cache, greedy sampling.

Peers of tree attention get keys that lie side by side, and their masks made beforehand.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bench.kernel_case import OURS, Case, Launch
from bench.roofline_work import HALF, LLAMA_8B, LLAMA_70B, Shape
from outrider.kernels.gpu.attention import tree_attention
from outrider.kernels.gpu.cache import move
from outrider.kernels.gpu.contexts import TILE, ContextRows, group_rows, groups_of, make_scratch
from outrider.kernels.gpu.draws import Draws
from outrider.kernels.gpu.sampling import sample

SHAPES = ((LLAMA_8B, 1), (LLAMA_70B, 4), (LLAMA_70B, 8))
ROWS = (1, 4, 8, 16)
CONTEXTS = (1024, 4096, 32768)


def cases(device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Iterator[Case]:
    """All of them."""
    for model, ranks in SHAPES:
        for rows in ROWS:
            for context in CONTEXTS:
                yield attention(model, ranks, rows, context, device, dtype)
            yield moves(model, ranks, rows, device, dtype)
            yield greedy(model, ranks, rows, device, dtype)


@dataclass(frozen=True, slots=True)
class Tree:
    """Rows of a binary tree behind a context; keys and values by offset, [kv_heads, offsets, d]."""

    q: Tensor  # [rows, heads, head_dim]
    k: Tensor
    v: Tensor
    chains: list[list[int]]

    @property
    def prefix(self) -> int:
        """Committed offsets."""
        return self.k.shape[1] - len(self.chains)

    def mask(self) -> Tensor:
        """bool [rows, offsets]."""
        seen = torch.zeros(len(self.chains), self.k.shape[1], dtype=torch.bool)
        seen[:, : self.prefix] = True
        for row, chain in enumerate(self.chains):
            seen[row, chain] = True
        return seen.to(self.q.device)


def attention(
    model: Shape, ranks: int, rows: int, context: int, device: str, dtype: torch.dtype
) -> Case:
    """Verify rows at a context."""
    heads, kv_heads = model.heads // ranks, max(1, model.kv_heads // ranks)

    def tree() -> Tree:
        q = torch.randn(rows, heads, model.head_dim, device=device, dtype=dtype)
        shape = (kv_heads, context + rows, model.head_dim)
        k, v = (torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
        chains: list[list[int]] = []
        for row in range(rows):
            chains.append([*(chains[(row - 1) // 2] if row else []), context + row])
        return Tree(q, k, v, chains)

    sides: dict[str, Callable[[Tree], Launch]] = {OURS: _ours, "torch sdpa": _sdpa}
    if device == "cuda":
        sides["flex attention"] = _flex
        if find_spec("flashinfer"):
            sides["flashinfer"] = _flashinfer
    return Case(
        kernel="attention",
        shape=f"{model.name} TP {ranks} at {context}",
        weights="bf16",
        rows=rows,
        bytes=HALF * model.head_dim * (2 * kv_heads * (context + rows) + 2 * heads * rows),
        sides={name: (lambda side=side: side(tree())) for name, side in sides.items()},  # type: ignore[misc]
    )


def _ours(tree: Tree) -> Launch:
    rows, heads, head_dim = tree.q.shape
    kv_heads, device = tree.k.shape[0], str(tree.q.device)
    blocks = -(-tree.k.shape[1] // TILE)
    order = np.random.default_rng(0).permutation(blocks).astype(np.int32)
    table = torch.from_numpy(order).to(device)
    pools = []
    for values in (tree.k, tree.v):
        padded = functional.pad(values, (0, 0, 0, blocks * TILE - values.shape[1]))
        pool = torch.empty_like(padded).view(kv_heads, blocks, TILE, head_dim)
        pool[:, table.long()] = padded.view_as(pool)
        pools.append(pool.view_as(padded))
    ancestors = np.zeros((rows, max(map(len, tree.chains))), np.int32)
    for row, chain in enumerate(tree.chains):
        ancestors[row, : len(chain)] = chain
    depth = np.array([len(chain) for chain in tree.chains], np.int32)
    line, prefix = np.zeros(rows, np.int32), np.full(rows, tree.prefix, np.int32)
    groups = groups_of(line, prefix + depth, group_rows(heads, kv_heads))
    arrays = (torch.from_numpy(x).to(device) for x in (line, prefix, ancestors, depth))
    context = ContextRows(*arrays, table[None], torch.from_numpy(groups).to(device))
    out, scratch = torch.empty_like(tree.q), make_scratch(rows, heads, kv_heads, head_dim, device)

    def launch() -> Tensor:
        tree_attention(tree.q, *pools, context, head_dim**-0.5, 0, out, scratch)
        return out

    return launch


def _sdpa(tree: Tree) -> Launch:
    q, k, v = tree.q.transpose(0, 1)[None], tree.k[None], tree.v[None]
    mask = tree.mask()

    def launch() -> Tensor:
        attend = functional.scaled_dot_product_attention
        return attend(q, k, v, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1)

    return launch


def _flex(tree: Tree) -> Launch:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = tree.q.transpose(0, 1)[None], tree.k[None], tree.v[None]
    seen = tree.mask()

    def visible(batch: Any, head: Any, row: Any, offset: Any) -> Any:
        return seen[row, offset]

    shape = (None, None, seen.shape[0], seen.shape[1])
    mask = create_block_mask(visible, *shape, device=str(q.device))
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True)[0].transpose(0, 1)


def _flashinfer(tree: Tree) -> Launch:
    import flashinfer

    k, v = (values.transpose(0, 1).contiguous() for values in (tree.k, tree.v))
    mask = tree.mask()
    attend = flashinfer.single_prefill_with_kv_cache
    return lambda: attend(tree.q, k, v, custom_mask=mask)  # type: ignore[no-any-return]


def moves(model: Shape, ranks: int, rows: int, device: str, dtype: torch.dtype) -> Case:
    """An accepted path of `rows` slots, over all layers."""
    shape = (model.layers, max(1, model.kv_heads // ranks), 1024, model.head_dim)

    def side(ours: bool) -> Launch:
        k, v = (torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
        slots = torch.arange(rows, dtype=torch.int32, device=device)
        sources, destinations = 3 * slots + 5, slots
        wide = sources.long(), destinations.long()

        def launch() -> Tensor:
            if ours:
                move(k, v, sources, destinations)
            else:
                for pool in (k, v):
                    pool[:, :, wide[1]] = pool[:, :, wide[0]]
            return k

        return launch

    size = shape[0] * shape[1] * rows * model.head_dim
    sides = {OURS: lambda: side(True), "torch": lambda: side(False)}
    return Case(
        kernel="move", shape=f"{model.name} TP {ranks}", weights="bf16", rows=rows,
        bytes=4 * HALF * size, sides=sides,
    )  # fmt: skip


def greedy(model: Shape, ranks: int, rows: int, device: str, dtype: torch.dtype) -> Case:
    """The likeliest token of each row, of one rank's share of the vocabulary."""
    columns = model.vocabulary // ranks

    def side(ours: bool) -> Launch:
        logits = torch.randn(rows, columns, device=device, dtype=dtype)
        tokens = torch.empty(rows, dtype=torch.int32, device=device)
        logprobs = torch.empty(rows, device=device)
        cold = torch.zeros(rows, device=device)
        none = torch.zeros(rows, dtype=torch.int32, device=device)
        draws = Draws(cold, none, cold.double() + 1, cold, none.long(), none, none, *[False] * 3)

        def launch() -> Tensor:
            if not ours:
                return logits.argmax(1)
            sample(logits, columns, draws, tokens, logprobs)
            return tokens

        return launch

    sides = {OURS: lambda: side(True), "torch argmax": lambda: side(False)}
    return Case(
        kernel="sample", shape=f"{model.name} TP {ranks}", weights="bf16", rows=rows,
        bytes=HALF * rows * columns, sides=sides,
    )  # fmt: skip
