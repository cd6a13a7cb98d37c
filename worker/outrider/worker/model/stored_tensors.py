"""Tensors as checkpoints of a family store them, and as a pass computes with them.

Gemma 3 stores its norms less one. Phi-3 stores queries, keys and values as one matrix, and gates
and ups as one. Where only the first numbers of a head turn, those that turn are made the first of
each half: a pass turns the halves. Leaves reading files to `checkpoints`.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from outrider.worker.errors import ModelError
from outrider.worker.model.config import Family, ModelConfig
from outrider.worker.model.tensor_names import expected_shapes

Floats = NDArray[np.float32]
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


def computed(config: ModelConfig, name: str, stored: Floats) -> Iterator[tuple[str, Floats]]:
    """Yield name and values of what a stored tensor holds; raises `ModelError` for a matrix that
    does not consist of its parts."""
    if config.family is Family.GEMMA3 and is_norm(name):
        stored = stored + np.float32(1)
    for own, value in _parts(config, name, stored):
        turns = _part(own) in FUSED["self_attn.qkv_proj"][:2]
        yield own, _halved(config, value) if turns and config.rotary_dim else value


def is_norm(name: str) -> bool:
    """True for the name of a norm's weights."""
    return name.endswith("norm.weight")


def _parts(config: ModelConfig, name: str, stored: Floats) -> Iterator[tuple[str, Floats]]:
    parts = FUSED.get(_part(name)) if config.family is Family.PHI3 else None
    if parts is None:
        yield name, stored
        return
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    rows = [queries, keys, keys] if len(parts) == 3 else [config.ffn] * 2
    if len(stored) != sum(rows):
        raise ModelError(f"tensor {name} has {len(stored)} rows instead of {sum(rows)}")
    for part, value in zip(parts, np.split(stored, np.cumsum(rows[:-1])), strict=True):
        yield _renamed(name, part), value


def _halved(config: ModelConfig, rows: Floats) -> Floats:
    """Return the rows of q or k with the numbers of each head that turn as the first of its
    halves."""
    assert config.rotary_dim is not None
    size, turning = config.head_dim // 2, config.rotary_dim // 2
    still = np.arange(config.rotary_dim, config.head_dim)
    low, high = np.arange(turning), np.arange(turning, 2 * turning)
    order = np.concatenate((low, still[: size - turning], high, still[size - turning :]))
    heads = rows.reshape(-1, config.head_dim, *rows.shape[1:])
    return np.ascontiguousarray(heads[:, order]).reshape(rows.shape)


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
