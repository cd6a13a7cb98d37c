"""Folders of FP8, made of a tiny model's."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from tests.quantised_folders import Packed

FP8 = {"quant_method": "fp8"}


def as_e4m3(folder: Path) -> None:
    """Say of a folder's bytes that they are e4m3, which numpy lacks."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    e4m3 = {n: x.view(torch.float8_e4m3fn) for n, x in tensors.items() if x.dtype == torch.uint8}
    save_file(tensors | e4m3, file)


def fp8(weight: np.ndarray, scales: str, block: int = 32) -> tuple[Packed, np.ndarray]:
    """Return bits of e4m3, scales of the "tensor", each "channel" or "blocks", and values."""
    rows, columns = weight.shape
    factor = {
        "tensor": torch.rand(1) + 0.5,
        "channel": torch.rand(rows, 1) + 0.5,
        "blocks": torch.rand(-(-rows // block), -(-columns // block)) + 0.5,
    }[scales]
    spread = factor
    if scales == "blocks":
        rows_of = factor.repeat_interleave(block, 0)[:rows]
        spread = rows_of.repeat_interleave(block, 1)[:, :columns]
    rounded = torch.from_numpy(weight).to(torch.float8_e4m3fn)
    name = f"weight_scale{'_inv' * (scales == 'blocks')}"
    parts = {"weight": rounded.view(torch.uint8).numpy(), name: factor.numpy()}
    return parts, (rounded.float() * spread).numpy()
