"""Which safetensors files make up a checkpoint folder, whole or sharded.

Leaves reading tensors to `load` and hashing to `fingerprint`.
"""

from pathlib import Path

from outrider.worker.errors import ModelError
from outrider.worker.model.config_file import read_json

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def weight_files(directory: Path) -> tuple[Path, ...]:
    """The one safetensors file, or those that the index names; raises `ModelError`."""
    index = directory / INDEX
    names = {WEIGHTS} if not index.is_file() else set(_shards(index).values())
    files = tuple(directory / name for name in sorted(names))
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file} does not exist")
    return files


def file_of(directory: Path, tensor: str) -> Path:
    """The file that holds one tensor; raises `ModelError`."""
    index = directory / INDEX
    if not index.is_file():
        return directory / WEIGHTS
    shards = _shards(index)
    if tensor not in shards:
        raise ModelError(f"{index} names no file for {tensor}")
    return directory / shards[tensor]


def _shards(index: Path) -> dict[str, str]:
    """Tensor name → file name."""
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ModelError(f"{index}: weight_map is missing or empty")
    for name in shards.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{index}: {name!r} is not a file name")
    return shards
