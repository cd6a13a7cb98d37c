"""Folders of AWQ and GPTQ, made of a tiny model's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

Packed = dict[str, np.ndarray]
Pack = Callable[[np.ndarray], tuple[Packed, np.ndarray]]


AWQ = {"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "desc_act": False}


def quantised(folder: Path, pack: Pack, **config: Any) -> dict[str, np.ndarray]:
    """Quantise the layers' matrices of a tiny model; returns the values that these have then."""
    tensors, values = load_file(folder / "model.safetensors"), {}
    for name in [name for name in tensors if name.startswith("model.layers") and "proj" in name]:
        parts, values[name] = pack(tensors.pop(name))
        tensors |= {f"{name.removesuffix('.weight')}.{part}": x for part, x in parts.items()}
    held = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
    save_file(held, folder / "model.safetensors")
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | {"quantization_config": config}))
    return values


def in_groups(
    weight: np.ndarray, group: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return quants [out, in], zeros and scales [groups, out], and values."""
    groups = weight.reshape(len(weight), -1, group)
    scales = ((groups.max(axis=2) - groups.min(axis=2)) / 15).astype(np.float16)
    wide = scales.astype(np.float32)[..., None]
    zeros = np.clip(np.rint(-groups.min(axis=2, keepdims=True) / wide), 1, 15)
    quants = np.clip(np.rint(groups / wide) + zeros, 0, 15)
    values = ((quants - zeros) * wide).reshape(weight.shape).astype(np.float32)
    return (
        quants.reshape(weight.shape).astype(np.int64),
        zeros[..., 0].T.astype(np.int64),
        scales.T,
        values,
    )


def integers(numbers: np.ndarray, order: tuple[int, ...] = tuple(range(8))) -> np.ndarray:
    """Pack eight numbers along the last axis into an int32: number order[i] in bits 4 i."""
    eights = numbers.reshape(*numbers.shape[:-1], -1, 8)
    packed = sum(eights[..., at] << 4 * i for i, at in enumerate(order))
    return np.asarray(packed).astype(np.uint32).view(np.int32)


def awq(weight: np.ndarray, group: int = 32) -> tuple[Packed, np.ndarray]:
    quants, zeros, scales, values = in_groups(weight, group)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {
        "qweight": integers(quants.T, order),
        "qzeros": integers(zeros, order),
        "scales": scales,
    }, values


def gptq(weight: np.ndarray, less: int = 1, group: int = 32) -> tuple[Packed, np.ndarray]:
    quants, zeros, scales, values = in_groups(weight, group)
    index = np.arange(weight.shape[1], dtype=np.int32) // group
    packed = {"qweight": integers(quants).T, "qzeros": integers(zeros - less), "scales": scales}
    return packed | {"g_idx": index}, values
