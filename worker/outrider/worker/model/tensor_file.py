"""Tensors of a safetensors file as arrays: mapped, not read, and without torch.

Importing torch takes a worker longer than everything else until its weights are there. Leaves
names, shapes and scales to `load`.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from outrider.worker.errors import ModelError

BFLOAT16 = "BF16"
STORED = {"F32": "<f4", "F16": "<f2", BFLOAT16: "<u2", "I8": "i1"}
"""What numpy calls the dtypes that a checkpoint may have."""


def read(file: Path, only: str | None = None) -> dict[str, NDArray[np.generic]]:
    """Tensors by name, or `only` that one; writing to them changes no file. bfloat16, which numpy
    lacks, comes as uint16, for `widened`.

    Raises `ModelError` for a damaged file, a missing tensor or another dtype.
    """
    try:
        with safe_open(file, framework="np") as opened:  # checks the header against the file
            names = list(opened.keys()) if only is None else [only]
            dtypes = {name: opened.get_slice(name).get_dtype() for name in names}
        places, first = _header(file)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file}: {error}") from error
    contents = np.asarray(np.memmap(file, np.uint8, "c"))  # writable, for that is a type of its own
    tensors = {}
    for name, dtype in dtypes.items():
        if dtype not in STORED:
            raise ModelError(f"{file}: tensor {name} is stored as {dtype}, not {', '.join(STORED)}")
        begin, end = places[name]["data_offsets"]
        stored = contents[first + begin : first + end].view(STORED[dtype])
        tensors[name] = stored.reshape(places[name]["shape"])
    return tensors


def _header(file: Path) -> tuple[dict[str, dict[str, list[int]]], int]:
    """Places of tensors by name, and where in the file the first begins."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        return json.loads(opened.read(length)), 8 + length


def widened(stored: NDArray[np.generic]) -> NDArray[np.float32]:
    """float32 of bfloat16, which is its upper half."""
    return (stored.astype(np.uint32) << 16).view(np.float32)
