"""Tensors of a prepared model, loaded in float32 under their Hugging Face names.

Leaves packing and numeric paths to the linear layers, and making the files to `prepare`.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.worker.checkpoints.checkpoint import (
    Wanted,
    everything,
    read_tensors,
    weight_files,
    widened,
)
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.stored_tensors import computed
from outrider.worker.model.tensor_names import EMBEDDING, HEAD, expected_shapes

SCALE = ".scale"
_LISTED = 4
"""Names that an error quotes before it only counts."""

Floats = NDArray[np.float32]
Stored = dict[str, NDArray[np.generic]]
Shapes = dict[str, tuple[int, ...]]
T = TypeVar("T")
Cut = Callable[[str, Floats], T]
"""What is kept of the tensor of a name."""


def load(prepared: PreparedModel) -> tuple[ModelConfig, dict[str, Floats]]:
    """Return the config and its float32 tensors, linear layers as [out, in].

    A borrowed embedding is there like a stored one. With `output_ids`, row i of `lm_head.weight` is
    the embedding of target token `output_ids[i]`. Float32 files are mapped, not read. Raises
    `ModelError`.
    """
    return prepared.config(), load_part(prepared, lambda name, tensor: tensor)


def load_part(prepared: PreparedModel, cut: Cut[T], wanted: Wanted = everything) -> dict[str, T]:
    """Return what `cut` keeps of each wanted tensor; one at a time is made float32 as a whole.

    Of tensors that are not wanted nothing is read but their names. Raises `ModelError` as `load`
    does.
    """
    config = prepared.config()
    stored = _stored(prepared.directory, _with_scales(wanted), config.tied)
    tensors: dict[str, T] = {}
    shapes: Shapes = {}
    embedding: Floats | None = None
    lent = _lent(prepared) if wanted(EMBEDDING) else iter(())
    every = itertools.chain(_floats(stored, prepared.directory), lent)
    for name, value in (part for given in every for part in computed(config, *given)):
        if not _ignored(name, config):
            tensors[name], shapes[name] = cut(name, value), value.shape
        if name == EMBEDDING:
            embedding = value
    expected = expected_shapes(config)
    if config.output_ids is not None and HEAD not in shapes:
        del expected[HEAD]  # made from the embedding
    _check({name: shape for name, shape in expected.items() if wanted(name)}, shapes, prepared)
    if config.output_ids is not None and HEAD not in tensors and wanted(HEAD):
        assert embedding is not None  # or the check would have failed
        rows = embedding[list(config.output_ids)]  # [outputs, hidden]
        tensors[HEAD] = cut(HEAD, rows)
    return tensors


class CheckpointTensors(Mapping[str, T]):
    """What `load_part` returns, read when a tensor is asked for: the embedding alone, or all.

    Raises `ModelError` then.
    """

    def __init__(self, prepared: PreparedModel, cut: Cut[T], wanted: Wanted = everything) -> None:
        self._prepared, self._cut, self._wanted = prepared, cut, wanted

    @functools.cached_property
    def _all(self) -> dict[str, T]:
        return load_part(self._prepared, self._cut, self._wanted)

    @functools.cached_property
    def _embedding(self) -> T:
        return load_part(self._prepared, self._cut, EMBEDDING.__eq__)[EMBEDDING]

    def __getitem__(self, name: str) -> T:
        alone = name == EMBEDDING and self._wanted(name) and "_all" not in self.__dict__
        return self._embedding if alone else self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


def _lent(prepared: PreparedModel) -> Iterator[tuple[str, Floats]]:
    """Yield the borrowed embedding, if there is one."""
    if prepared.embeddings is not None:
        tied = read_config(prepared.embeddings).tied
        stored = _stored(prepared.embeddings, EMBEDDING.__eq__, tied)
        yield from _floats(stored, prepared.embeddings)


def _stored(directory: Path, wanted: Wanted, tied: bool) -> Stored:
    """Return the wanted tensors; with a `tied` head, one that is stored alone is the embedding."""

    def asked(name: str) -> bool:
        return wanted(name) or (tied and name == HEAD and wanted(EMBEDDING))

    stored: Stored = {}
    for file in weight_files(directory, asked):
        stored |= read_tensors(file, asked)
    if tied and wanted(EMBEDDING) and EMBEDDING not in stored and HEAD in stored:
        stored[EMBEDDING] = stored.pop(HEAD)
    return stored


def _with_scales(wanted: Wanted) -> Wanted:
    """Want the row scales of a wanted int8 matrix, too."""
    return lambda name: wanted(name.removesuffix(SCALE))


def _floats(stored: Stored, where: Path) -> Iterator[tuple[str, Floats]]:
    """Yield everything in float32; an int8 matrix is multiplied by its row scales."""
    scales = {f"{name}{SCALE}" for name, value in stored.items() if value.dtype == np.int8}
    for name, value in stored.items():
        if value.dtype == np.int8:
            yield name, _scaled(name, value, stored.get(f"{name}{SCALE}"), where)
        elif value.dtype == np.uint16:
            yield name, widened(value)
        elif name not in scales:
            yield name, value.astype(np.float32, copy=False)


def _scaled(
    name: str, value: NDArray[np.generic], scale: NDArray[np.generic] | None, where: Path
) -> Floats:
    if scale is None or scale.shape != value.shape[:1]:
        raise ModelError(f"{where}: int8 tensor {name} needs {name}{SCALE} with one scale a row")
    return value.astype(np.float32) * scale.astype(np.float32)[:, None]  # [out, in]


def _ignored(name: str, config: ModelConfig) -> bool:
    """True for what old checkpoints store: rotary frequencies, or a head that is tied."""
    return name.endswith("rotary_emb.inv_freq") or (config.tied and name == HEAD)


def _check(expected: Shapes, shapes: Shapes, prepared: PreparedModel) -> None:
    """Raise `ModelError` where names or shapes differ."""
    missing = sorted(expected.keys() - shapes.keys())
    unexpected = sorted(shapes.keys() - expected.keys())
    wrong = [
        f"{name} {list(shapes[name])} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in shapes and shapes[name] != shape
    ]
    found = {"missing": missing, "unexpected": unexpected, "of the wrong shape": wrong}
    faults = [f"{len(names)} {what}: {_quoted(names)}" for what, names in found.items() if names]
    if missing == [EMBEDDING]:
        faults.append("set embeddings_from if it is borrowed")
    if faults:
        raise ModelError(f"{prepared.directory}: tensors do not fit: {'; '.join(faults)}")


def _quoted(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
