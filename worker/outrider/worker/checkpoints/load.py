"""Tensors of a prepared model under their Hugging Face names: as stored, float32, or in groups.

Leaves packing and numeric paths to the linear layers, and making the files to `prepare`.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.checkpoint import (
    GGUF,
    QUANTISED,
    STORED,
    Wanted,
    everything,
    read_tensors,
    weight_files,
)
from outrider.worker.checkpoints.config_file import read_config, read_json
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.checkpoints.quantisation import Quantisation
from outrider.worker.checkpoints.quantised_folder import QuantisedFolder, weights_of
from outrider.worker.errors import ModelError
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.matrix import AsStored, Floats, Matrix, floats_of, matrix_of, outputs_of
from outrider.worker.model.stored_tensors import Part, parts_of
from outrider.worker.model.tensor_names import EMBEDDING, HEAD, LAYERS, expected_shapes

SCALE = ".scale"
_LISTED = 4
"""Names that an error quotes before it only counts."""

Shapes = dict[str, tuple[int, ...]]
T = TypeVar("T")
Cut = Callable[[str, AsStored], AsStored]
"""What is kept of the tensor of a name."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor that is there, unread."""

    shape: tuple[int, ...]
    read: Callable[[], AsStored]
    path: NumericPath | None = None
    """Numeric path that keeps its values; None: of floats, which any path may round."""


def load(prepared: PreparedModel) -> tuple[ModelConfig, dict[str, Floats]]:
    """Return the config and its float32 tensors, linear layers as [out, in].

    A borrowed embedding is there like a stored one. With `output_ids`, row i of `lm_head.weight` is
    the embedding of target token `output_ids[i]`. Float32 files are mapped, not read. Raises
    `ModelError`.
    """
    return prepared.config(), load_part(prepared, lambda name, tensor: tensor)


def load_part(
    prepared: PreparedModel, cut: Callable[[str, Floats], T], wanted: Wanted = everything
) -> dict[str, T]:
    """Return what `cut` keeps of each wanted tensor; one at a time is made float32 as a whole.

    Of tensors that are not wanted nothing is read but their names. Raises `ModelError` as `load`
    does.
    """
    stored = stored_tensors(prepared, wanted)
    return {name: cut(name, floats_of(tensor.read())) for name, tensor in stored.items()}


class CheckpointTensors(Mapping[str, Matrix]):
    """What `cut` keeps of the wanted tensors, each read when it is asked for, and not kept.

    Raises `ModelError` then.
    """

    def __init__(
        self,
        prepared: PreparedModel,
        cut: Cut = lambda name, tensor: tensor,
        wanted: Wanted = everything,
    ) -> None:
        self._prepared, self._cut, self._wanted = prepared, cut, wanted

    @functools.cached_property
    def _stored(self) -> dict[str, Stored]:
        return stored_tensors(self._prepared, self._wanted)

    @property
    def path(self) -> NumericPath | None:
        """Numeric path that keeps the values of the layers' matrices, or of most; None: of floats,
        which any may round."""
        layers = (tensor for name, tensor in self._stored.items() if name.startswith(LAYERS))
        paths = Counter(tensor.path for tensor in layers if len(tensor.shape) > 1)
        return paths.most_common(1)[0][0] if paths else None

    def __getitem__(self, name: str) -> Matrix:
        return matrix_of(self._cut(name, self._stored[name].read()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def stored_tensors(prepared: PreparedModel, wanted: Wanted = everything) -> dict[str, Stored]:
    """Return the wanted tensors of a model, with a borrowed embedding and the head that is made of
    it, after checking names and shapes; raises `ModelError`."""
    config = prepared.config()
    tensors = _of_folder(prepared.directory, wanted, config.tied)
    if prepared.embeddings is not None and wanted(EMBEDDING):
        tied = read_config(prepared.embeddings).tied
        tensors |= _of_folder(prepared.embeddings, EMBEDDING.__eq__, tied)
    expected = {name: x for name, x in expected_shapes(config).items() if wanted(name)}
    embedding = tensors.get(EMBEDDING)
    if config.output_ids is not None and HEAD in expected and HEAD not in tensors and embedding:
        ids = np.array(config.output_ids, np.int64)
        shape = (len(ids), *embedding.shape[1:])
        tensors[HEAD] = replace(
            embedding, shape=shape, read=lambda: outputs_of(embedding.read(), ids)
        )
    kept = {
        part.name: _part_of(tensor, part)
        for name, tensor in tensors.items()
        if not _ignored(name, config)
        for part in parts_of(config, name, tensor.shape[0])
    }
    _check(expected, {name: tensor.shape for name, tensor in kept.items()}, prepared)
    return kept


def _part_of(tensor: Stored, part: Part) -> Stored:
    rows, more = part.rows, np.float32(part.more)
    if more:
        return replace(tensor, read=lambda: floats_of(tensor.read()) + more)
    if rows is None:
        return tensor
    shape = (len(rows), *tensor.shape[1:])
    return replace(tensor, shape=shape, read=lambda: outputs_of(tensor.read(), rows))


def _of_folder(directory: Path, wanted: Wanted, tied: bool) -> dict[str, Stored]:
    """Return the wanted tensors; with a `tied` head, one that is stored alone is the embedding."""

    def asked(name: str) -> bool:
        return wanted(name) or (tied and name == HEAD and wanted(EMBEDDING))

    file = directory / GGUF
    there = file.is_symlink() or file.is_file()
    stored = _of_gguf(file, asked) if there else _of_safetensors(directory, asked)
    if tied and wanted(EMBEDDING) and EMBEDDING not in stored and HEAD in stored:
        stored[EMBEDDING] = stored.pop(HEAD)
    return stored


def _of_gguf(file: Path, wanted: Wanted) -> dict[str, Stored]:
    from outrider.worker.checkpoints.gguf_file import GgufModel

    if not file.is_file():
        raise ModelError(f"{file.readlink()} is there no more")
    model = GgufModel(file)
    return {
        name: Stored(
            model.shape(tensor),
            functools.partial(model.matrix, tensor),
            NumericPath.INT4 if model.grouped(tensor) else None,
        )
        for name, tensor in model.tensors().items()
        if wanted(name)
    }


def _of_safetensors(directory: Path, wanted: Wanted) -> dict[str, Stored]:
    """Return float tensors as they are, an int8 matrix times its row scales, or quants."""
    config = directory / "config.json"
    quantisation = Quantisation.of(read_json(config), str(config))
    if quantisation is not None:
        return _of_quants(directory, QuantisedFolder(quantisation), wanted)

    def asked(name: str) -> bool:
        return wanted(name.removesuffix(SCALE))

    found = _tensors(directory, asked, STORED)
    scales = {f"{name}{SCALE}" for name, value in found.items() if value.dtype == np.int8}
    return {
        name: Stored(value.shape, functools.partial(_numbers, name, value, found, directory))
        for name, value in found.items()
        if name not in scales
    }


def _of_quants(directory: Path, folder: QuantisedFolder, wanted: Wanted) -> dict[str, Stored]:
    found = _tensors(directory, lambda name: wanted(weights_of(name)), QUANTISED)
    stored: dict[str, Stored] = {}
    others = {name: value for name, value in found.items() if weights_of(name) == name}
    for name, value in others.items():
        if value.dtype == np.uint8:
            scaled = functools.partial(folder.scaled, name, found, str(directory))
            stored[name] = Stored(value.shape, scaled, NumericPath.BF16)
        else:
            read = functools.partial(_numbers, name, value, found, directory)
            stored[name] = Stored(value.shape, read)
    for name, shape in folder.matrices(found).items():
        matrix = functools.partial(folder.read, name, found, str(directory))
        stored[name] = Stored(shape, matrix, NumericPath.INT4)
    return stored


def _tensors(
    directory: Path, wanted: Wanted, dtypes: Mapping[str, str]
) -> dict[str, NDArray[np.generic]]:
    found: dict[str, NDArray[np.generic]] = {}
    for file in weight_files(directory, wanted):
        found |= read_tensors(file, wanted, dtypes)
    return found


def _numbers(
    name: str, value: NDArray[Any], stored: Mapping[str, NDArray[np.generic]], where: Path
) -> AsStored:
    if value.dtype == np.int8:
        return _scaled(name, value, stored.get(f"{name}{SCALE}"), where)
    return value


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
