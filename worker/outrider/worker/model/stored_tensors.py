"""Tensors as checkpoints of a family store them, and as a pass computes with them.

Gemma 3 stores its norms less one. Phi-3 stores queries, keys and values as one matrix, and gates
and ups as one. Where only the first numbers of a head turn, those that turn are made the first of
each half: a pass turns the halves. Leaves reading files to `checkpoints`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.worker.errors import ModelError
from outrider.worker.model.config import Family, ModelConfig
from outrider.worker.model.tensor_names import expected_shapes

Index = NDArray[np.int64]
FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Phi-3's name of each matrix that is several."""
_WHOLE = {part: whole for whole, parts in FUSED.items() for part in parts}


def stored_names(config: ModelConfig) -> list[str]:
    """Return the names of a checkpoint's tensors, each once."""
    names = list(expected_shapes(config))
    if config.family is not Family.PHI3:
        return names
    return list(dict.fromkeys(_renamed(name, _WHOLE.get(_part(name))) for name in names))


class Part(NamedTuple):
    """What a pass computes with of a stored tensor."""

    name: str
    rows: Index | None
    """Rows of the stored tensor; None: all."""
    more: float = 0.0
    """Number that is added to every element."""


def parts_of(config: ModelConfig, name: str, rows: int) -> Iterator[Part]:
    """Yield what a stored tensor of so many rows holds; raises `ModelError` for a matrix that does
    not consist of its parts."""
    more = float(config.family is Family.GEMMA3 and is_norm(name))
    for own, index in _cut(config, name, rows):
        turns = _part(own) in FUSED["self_attn.qkv_proj"][:2] and config.rotary_dim
        order = np.arange(rows) if index is None else index
        yield Part(own, _halved(config, order) if turns else index, more)


def is_norm(name: str) -> bool:
    """True for the name of a norm's weights."""
    return name.endswith("norm.weight")


def _cut(config: ModelConfig, name: str, rows: int) -> Iterator[tuple[str, Index | None]]:
    parts = FUSED.get(_part(name)) if config.family is Family.PHI3 else None
    if parts is None:
        yield name, None
        return
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    wanted = [queries, keys, keys] if len(parts) == 3 else [config.ffn] * 2
    if rows != sum(wanted):
        raise ModelError(f"tensor {name} has {rows} rows instead of {sum(wanted)}")
    cuts = np.split(np.arange(rows), np.cumsum(wanted[:-1]))
    yield from ((_renamed(name, part), cut) for part, cut in zip(parts, cuts, strict=True))


def _halved(config: ModelConfig, rows: Index) -> Index:
    """Return the rows of q or k with the numbers of each head that turn as the first of its
    halves."""
    assert config.rotary_dim is not None
    size, turning = config.head_dim // 2, config.rotary_dim // 2
    still = np.arange(config.rotary_dim, config.head_dim)
    low, high = np.arange(turning), np.arange(turning, 2 * turning)
    order = np.concatenate((low, still[: size - turning], high, still[size - turning :]))
    return rows.reshape(-1, config.head_dim)[:, order].reshape(-1)


def _part(name: str) -> str:
    """Return the name of a matrix in its layer; `name`: its weights'."""
    return ".".join(name.removesuffix(".weight").split(".")[-2:])


def _renamed(name: str, part: str | None) -> str:
    """Return the name of another matrix of the same layer; of the same for None."""
    return (
        name
        if part is None
        else f"{name.removesuffix('.weight').removesuffix(_part(name))}{part}.weight"
    )
