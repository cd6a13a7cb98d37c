"""Cases of `bench.kernels` around attention: tree attention, moves of its cache, greedy sampling.

Leaves what else computes tree attention to `attention_peers`.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bench.gpu.cases.attention_peers import Tree, peers
from bench.gpu.cases.kernel_case import CONTEXTS, OURS, ROWS, Backing, Case, Launch
from bench.roofline.work import HALF, Shape
from outrider.kernels.gpu.attention import tree_attention
from outrider.kernels.gpu.attention_inputs import (
    TILE,
    ContextRows,
    group_rows,
    groups_of,
    make_scratch,
)
from outrider.kernels.gpu.cache import move
from outrider.kernels.gpu.sampling import sample
from outrider.kernels.gpu.sampling_inputs import SamplingInputs

SPLITS = (4, 8, 16, 32, 64)
"""Numbers of splits of a context that a kernel could choose by its length."""


def cases(model: Shape, ranks: int) -> Iterator[Case]:
    """Those of one rank of a model, on a GPU."""
    device, dtype = "cuda", torch.bfloat16
    for rows in ROWS:
        for context in CONTEXTS:
            yield attention(model, ranks, rows, context, Backing(device, dtype))
        yield moves(model, ranks, rows, device, dtype)
        yield greedy(model, ranks, rows, device, dtype)


def attention(
    model: Shape, ranks: int, rows: int, context: int, on: Backing, splits: int | None = None
) -> Case:
    """Verify rows at a context, which is cut into `splits` as `make_scratch` has it."""
    heads, kv_heads = model.heads // ranks, max(1, model.kv_heads // ranks)
    tree = partial(random_tree, rows, heads, kv_heads, model.head_dim, context, on)
    sides = {OURS: partial(launched, splits=splits)} | peers(on.device)
    return Case(
        kernel="attention",
        shape=f"{model.name} TP {ranks} at {context}",
        weights="bf16",
        rows=rows,
        bytes=HALF * model.head_dim * (2 * kv_heads * (context + rows) + 2 * heads * rows),
        sides={name: partial(_on, side, tree) for name, side in sides.items()},
        choices={f"{n} splits": partial(_on, partial(launched, splits=n), tree) for n in SPLITS},
    )


def random_tree(rows: int, heads: int, kv_heads: int, size: int, context: int, on: Backing) -> Tree:
    """A binary tree of `rows` nodes behind `context` positions."""
    device, dtype = on
    q = torch.randn(rows, heads, size, device=device, dtype=dtype)
    k, v = (torch.randn(kv_heads, context + rows, size, device=device, dtype=dtype) for _ in "kv")
    chains: list[list[int]] = []
    for row in range(rows):
        chains.append([*(chains[(row - 1) // 2] if row else []), context + row])
    return Tree(q, k, v, chains)


def _on(side: Callable[[Tree], Launch], tree: Callable[[], Tree]) -> Launch:
    return side(tree())


def launched(tree: Tree, splits: int | None = None) -> Launch:
    """Our launch, from a pool of shuffled blocks; `splits` as `make_scratch` takes them."""
    rows, heads, head_dim = tree.q.shape
    kv_heads, device = tree.k.shape[0], str(tree.q.device)
    blocks = -(-tree.k.shape[1] // TILE)
    order = np.random.default_rng(0).permutation(blocks).astype(np.int32)
    table = torch.from_numpy(order).to(device)
    pools = []
    for values in (tree.k, tree.v):
        padded = functional.pad(values, (0, 0, 0, blocks * TILE - values.shape[1]))
        kv_cache = torch.empty_like(padded).view(kv_heads, blocks, TILE, head_dim)
        kv_cache[:, table.long()] = padded.view_as(kv_cache)
        pools.append(kv_cache.view_as(padded))
    ancestors = np.zeros((rows, max(map(len, tree.chains))), np.int32)
    for row, chain in enumerate(tree.chains):
        ancestors[row, : len(chain)] = chain
    depth = np.array([len(chain) for chain in tree.chains], np.int32)
    line, prefix = np.zeros(rows, np.int32), np.full(rows, tree.prefix, np.int32)
    groups = groups_of(line, prefix + depth, group_rows(heads, kv_heads))
    arrays = (torch.from_numpy(x).to(device) for x in (line, prefix, ancestors, depth))
    context = ContextRows(*arrays, table[None], torch.from_numpy(groups).to(device))
    out = torch.empty_like(tree.q)
    scratch = make_scratch(rows, heads, kv_heads, head_dim, device, splits)

    def launch() -> Tensor:
        tree_attention(tree.q, *pools, context, head_dim**-0.5, 0, out, scratch)
        return out

    return launch


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
                for kv_cache in (k, v):
                    kv_cache[:, :, wide[1]] = kv_cache[:, :, wide[0]]
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
        greedy = torch.zeros(rows, device=device)
        none = torch.zeros(rows, dtype=torch.int32, device=device)
        inputs = SamplingInputs(
            greedy, none, greedy.double() + 1, greedy, none.long(), none, none, *[False] * 3
        )

        def launch() -> Tensor:
            if not ours:
                return logits.argmax(1)
            sample(logits, columns, inputs, tokens, logprobs)
            return tokens

        return launch

    sides = {OURS: lambda: side(True), "torch argmax": lambda: side(False)}
    return Case(
        kernel="sample", shape=f"{model.name} TP {ranks}", weights="bf16", rows=rows,
        bytes=HALF * rows * columns, sides=sides,
    )  # fmt: skip
