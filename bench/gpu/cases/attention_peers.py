"""Other implementations of tree attention: torch's SDPA and flex attention, FlashInfer,
FlashAttention.

Every peer gets keys that lie side by side, and its mask made beforehand. FlashAttention knows no
mask but the causal one: its rows are a chain, which is less to do. Leaves shapes to
`attention_cases`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.gpu.cases.kernel_case import Launch

FLASH = {
    "flash_attn": "flash attention 2, a chain",
    "flash_attn_interface": "flash attention 3, a chain",
}
PACKAGES = ("flashinfer", *FLASH)
"""Packages that need not be installed."""


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
        return visible_offsets(self.chains, self.k.shape[1]).to(self.q.device)


def visible_offsets(chains: Sequence[Sequence[int]], offsets: int) -> Tensor:
    """bool [rows, offsets]: what is committed, and each row's own chain."""
    seen = torch.zeros(len(chains), offsets, dtype=torch.bool)
    seen[:, : offsets - len(chains)] = True
    for row, chain in enumerate(chains):
        seen[row, list(chain)] = True
    return seen


Peer = Callable[[Tree], Launch]


def peers(device: str) -> dict[str, Peer]:
    """By name, those that are installed; all that compile need a GPU."""
    found: dict[str, Peer] = {"torch sdpa": _sdpa, "torch sdpa, heads as rows": _folded_sdpa}
    if device == "cuda":
        found["flex attention"] = _flex
        if find_spec("flashinfer"):
            found["flashinfer"] = _flashinfer
        flash = {name: package for package, name in FLASH.items() if find_spec(package)}
        found |= {name: partial(_flash, package) for name, package in flash.items()}
    return found


def _sdpa(tree: Tree) -> Launch:
    q, k, v = _by_head(tree)
    mask = tree.mask() if len(tree.chains) > 1 else None

    def launch() -> Tensor:
        attend = functional.scaled_dot_product_attention
        return attend(q, k, v, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1)

    return launch


def _by_head(tree: Tree) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as [1, heads, positions, head_dim]."""
    return tree.q.transpose(0, 1)[None], tree.k[None], tree.v[None]


def _folded_sdpa(tree: Tree) -> Launch:
    """Fold heads that share keys into rows: kernels that take a mask know no groups."""
    rows, heads, size = tree.q.shape
    kv_heads = tree.k.shape[0]
    q = tree.q.view(rows, kv_heads, heads // kv_heads, size).permute(1, 2, 0, 3)
    q = q.reshape(1, kv_heads, -1, size)
    mask = tree.mask().repeat(heads // kv_heads, 1) if rows > 1 else None

    def launch() -> Tensor:
        out = functional.scaled_dot_product_attention(q, tree.k[None], tree.v[None], attn_mask=mask)
        return out.view(heads, rows, size).transpose(0, 1)

    return launch


def _flex(tree: Tree) -> Launch:
    q, k, v = _by_head(tree)
    mask = _block_mask(tuple(map(tuple, tree.chains)), k.shape[2], str(q.device))
    attend = _compiled_flex(tuple(q.shape), tuple(k.shape))
    return lambda: attend(q, k, v, block_mask=mask, enable_gqa=True)[0].transpose(0, 1)


@lru_cache(maxsize=1)
def _block_mask(chains: tuple[tuple[int, ...], ...], offsets: int, device: str) -> Any:
    """One for all copies of a launch: another would be compiled for anew."""
    from torch.nn.attention.flex_attention import create_block_mask

    seen = visible_offsets(chains, offsets).to(device)

    def visible(batch: Any, head: Any, row: Any, offset: Any) -> Any:
        return seen[row, offset]

    return create_block_mask(visible, None, None, len(chains), offsets, device=device)


@cache
def _compiled_flex(*shapes: tuple[int, ...]) -> Any:
    """Compiled for these shapes alone; those of before are dropped: torch keeps only a few."""
    from torch.nn.attention.flex_attention import flex_attention

    torch.compiler.reset()
    return torch.compile(flex_attention, dynamic=False)


def _flashinfer(tree: Tree) -> Launch:
    flashinfer = import_module("flashinfer")

    k, v = (values.transpose(0, 1).contiguous() for values in (tree.k, tree.v))
    if len(tree.chains) == 1:
        return lambda: flashinfer.single_decode_with_kv_cache(tree.q[0], k, v)[None]
    bits = flashinfer.packbits(tree.mask().flatten(), bitorder="little")
    attend = flashinfer.single_prefill_with_kv_cache
    return lambda: attend(tree.q, k, v, packed_custom_mask=bits)


def _flash(package: str, tree: Tree) -> Launch:
    attend = import_module(package).flash_attn_with_kvcache
    k, v = (values.transpose(0, 1)[None].contiguous() for values in (tree.k, tree.v))
    length = torch.tensor([k.shape[1]], dtype=torch.int32, device=k.device)

    def launch() -> Tensor:
        out = attend(tree.q[None], k, v, cache_seqlens=length, causal=True)
        return (out[0] if isinstance(out, tuple) else out)[0]  # type: ignore[no-any-return]

    return launch
