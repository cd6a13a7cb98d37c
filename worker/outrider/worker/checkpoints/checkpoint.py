"""Checkpoint folders: safetensors files, and their tensors as arrays.

Tensors are mapped, not read, and without torch, whose import takes a worker longer than everything
else until its weights are there. Leaves scales and missing tensors to `load`, and hashing to
`fingerprint`.
"""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from outrider.worker.checkpoints.config_file import read_json
from outrider.worker.errors import ModelError
from outrider.worker.host.disk_cache import remember, remembered
from outrider.worker.model.tensor_names import EMBEDDING, HEAD

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
GGUF = "model.gguf"
"""Link in a prepared folder to the file that holds its tensors."""
BFLOAT16 = "BF16"
STORED = {"F32": "<f4", "F16": "<f2", BFLOAT16: "<u2", "I8": "i1"}
"""Names in numpy of the dtypes that a checkpoint may have."""
QUANTISED = STORED | {"I32": "<i4", "F8_E4M3": "u1"}
"""Names in numpy of the dtypes that a folder with a `quantization_config` may have."""
OWN_HEAD = "own_head.json"
BOTH_ENDS = (EMBEDDING, HEAD)


Wanted = Callable[[str], bool]
"""True for the name of a tensor that is to be read."""


def everything(name: str) -> bool:
    """Want every tensor."""
    return True


def weight_files(directory: Path, wanted: Wanted = everything) -> tuple[Path, ...]:
    """Return the one safetensors file, whatever an index beside it says, or those in which the
    index names a wanted tensor.

    Raises `ModelError`.
    """
    index = directory / INDEX
    names = {WEIGHTS}
    if index.is_file() and not (directory / WEIGHTS).is_file():
        names = {file for tensor, file in _shards(index).items() if wanted(tensor)}
    files = tuple(directory / name for name in sorted(names))
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file} does not exist")
    return files


def _shards(index: Path) -> dict[str, str]:
    """Read tensor name → file name."""
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ModelError(f"{index}: weight_map is missing or empty")
    for name in shards.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{index}: {name!r} is not a file name")
    return shards


def read_tensors(
    file: Path, wanted: Wanted = everything, dtypes: Mapping[str, str] = STORED
) -> dict[str, NDArray[np.generic]]:
    """Return the wanted tensors by name; writing to them changes no file. bfloat16, which numpy
    lacks, comes as uint16, for `matrix.widened`.

    Raises `ModelError` for a damaged file or a wanted tensor of another dtype.
    """
    try:
        with safe_open(file, framework="np"), file.open("rb") as opened:  # checks the header, too
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length))
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file}: {error}") from error
    contents = np.asarray(np.memmap(file, np.uint8, "c"))  # writable, for that is a type of its own
    tensors = {}
    header.pop("__metadata__", None)
    for name in filter(wanted, header):
        dtype, (begin, end) = header[name]["dtype"], header[name]["data_offsets"]
        if dtype not in dtypes:
            raise ModelError(f"{file}: tensor {name} is stored as {dtype}, not {', '.join(dtypes)}")
        stored = contents[8 + length + begin : 8 + length + end].view(dtypes[dtype])
        tensors[name] = stored.reshape(header[name]["shape"])
    return tensors


def compare_head(directory: Path, cache: Path) -> None:
    """Note in `cache`, which is of these weights alone, whether a head is stored that is not the
    embedding; once. Raises `ModelError`."""
    if _noted_head(cache) is not None:
        return
    both: dict[str, NDArray[np.generic]] = {}
    for file in weight_files(directory, BOTH_ENDS.__contains__):
        both |= read_tensors(file, BOTH_ENDS.__contains__)
    own = len(both) == len(BOTH_ENDS) and not np.array_equal(both[EMBEDDING], both[HEAD])
    if own:
        logger.warning("%s: tie_word_embeddings, but its own lm_head.weight is used", directory)
    remember(cache / OWN_HEAD, {"own": own})


def has_own_head(cache: Path) -> bool:
    """True if `compare_head` found a head that is not the embedding."""
    return _noted_head(cache) or False


def _noted_head(cache: Path) -> bool | None:
    return remembered(cache / OWN_HEAD, lambda facts: bool(facts["own"]))
