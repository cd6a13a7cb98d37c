"""Packed weights that outlive a process: mapped at the next start instead of packed again.

A folder in the cache of the model for each form of it: the very weights, the layers and the rank
whose they are, the kind of arithmetic that they are laid out for, and the source of what lays them
out. Processes that map one folder share its pages. What is there can be lost at any time: it is
packed again then, and where it cannot be kept, it is in memory alone. Leaves packing to `packing`.
"""

import contextlib
import hashlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu import packing as kernel_packing
from outrider.kernels.cpu.forward import PassWeights, Stack
from outrider.kernels.cpu.grouped_packing import GroupedStack, marks
from outrider.kernels.cpu.numeric_kind import NumericKind
from outrider.worker.checkpoints.array_file import INDEX, Damaged, read_arrays, write_arrays
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.host.disk_cache import ELSEWHERE, made_once, sources_sha256
from outrider.worker.model import packing
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.matrix import Matrix
from outrider.worker.model.movable_weights import is_mapped
from outrider.worker.model.packing import embedding_of, pack_model
from outrider.worker.model.rotary import rotary_tables
from outrider.worker.model.sharding import Shard

logger = logging.getLogger(__name__)

PREFIX = "packed-"
SHARE = 5
"""Divisor of the bytes that are free or kept: kept weights may take one in so many."""
ABANDONED_SECONDS = 3600.0
"""Age from which on a folder that is not whole is of a process that was killed."""
ROTARY_FIELD = "rotary"
"""Never kept: it depends on the longest sequence, and takes no time."""
EMBEDDING_FIELD = "embedding"
"""Not kept where the checkpoint has it as it is: then that is mapped."""
SEGMENTS_FIELD, MARKS_FIELD = "segments", "marks"
"""Fields of quants in groups; marks follow from segments."""
SOURCES = (
    Path(kernel_packing.__file__).parent,
    Path(packing.__file__).parent,
    Path(__file__).parent,
)
"""Folders with the source of what decides on packed bytes."""


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """The place of one model's packed weights, of one rank or stage of it."""

    prepared: PreparedModel
    share: Shard

    def folder(self, kind: NumericKind, layers: LayerRange) -> Path:
        """Return the folder of the weights that are packed for a kind."""
        model = (self.prepared.revision, asdict(self.share), asdict(layers))
        identity = repr((model, kind.name, sources_sha256(*SOURCES)))
        name = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return self.prepared.cache / f"{PREFIX}{name}"

    def packed(
        self,
        config: ModelConfig,
        tensors: Mapping[str, Matrix],
        kind: NumericKind,
        positions: int,
        layers: LayerRange,
    ) -> PassWeights:
        """Return what `pack_model` returns, and pack only what is not kept, or is damaged.

        Raises `ModelError` as that does; nothing that goes wrong with files is raised.
        """
        fresh: list[PassWeights] = []

        def build(folder: Path) -> None:
            fresh.append(pack_model(config, tensors, kind, positions, layers))
            _make_room(self.prepared.cache.parent, _kept(fresh[0]))
            write_arrays(folder, _kept(fresh[0]))

        try:
            folder = self.folder(kind, layers)
            kept = _fields(_read_or_make(folder, build))
            with contextlib.suppress(OSError):
                (folder / INDEX).touch()  # the last use
        except OSError as error:
            logger.info("packed weights are not kept: %s", error)
            return fresh[0] if fresh else pack_model(config, tensors, kind, positions, layers)
        if EMBEDDING_FIELD not in kept:
            kept[EMBEDDING_FIELD] = embedding_of(config, tensors, layers)
        return PassWeights(**kept, rotary=rotary_tables(config, positions))


def _read_or_make(folder: Path, build: Callable[[Path], None]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a folder, after `build` has filled it if it was not there, or is
    damaged; raises `OSError`."""
    try:
        return read_arrays(made_once(folder, build))
    except Damaged as error:
        logger.warning("%s is made again: %s", folder, error)
        shutil.rmtree(folder)
        return read_arrays(made_once(folder, build))


def _kept(weights: PassWeights) -> dict[str, NDArray[Any]]:
    """Return the arrays that are kept, under names of files."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, field in weights._asdict().items():
        if isinstance(field, np.ndarray):
            if name != ROTARY_FIELD and not (name == EMBEDDING_FIELD and is_mapped(field)):
                arrays[name] = field
        elif name != EMBEDDING_FIELD:
            parts = field._asdict().items()
            arrays |= {f"{name}.{part}": array for part, array in parts if part != MARKS_FIELD}
    return arrays


def _fields(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the fields of `PassWeights` of which `_kept` made arrays; raises `KeyError`."""
    parts: dict[str, dict[str, Any]] = {}
    fields: dict[str, Any] = {}
    for name, array in arrays.items():
        field, _, part = name.partition(".")
        if part:
            parts.setdefault(field, {})[part] = array
        else:
            fields[field] = array
    for field, own in parts.items():
        if SEGMENTS_FIELD in own:
            fields[field] = GroupedStack(**own, marks=marks(own[SEGMENTS_FIELD]))
        else:
            fields[field] = Stack(**own)
    return fields


def _make_room(models: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Remove what was used least lately, of all models, until there is room for `arrays`; raises
    `OSError` where there is none."""
    wanted = sum(array.nbytes for array in arrays.values())
    kept = sorted(_kept_folders(models))
    total = sum(size for _, size, _ in kept)
    most = (shutil.disk_usage(models).free + total) // SHARE
    if wanted > most:
        room = f"{wanted / 1e6:,.1f} MB, and this disk has {most / 1e6:,.1f} MB for them at most"
        raise OSError(f"{room}; {ELSEWHERE}")
    for used, size, folder in kept:
        abandoned = time.time() - used > ABANDONED_SECONDS
        if abandoned if folder.name.startswith(".") else total + wanted > most:
            shutil.rmtree(folder, ignore_errors=True)
            total -= size


def _kept_folders(models: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield when each folder of packed weights was used last, its bytes, and itself."""
    for folder in (*models.glob(f"*/{PREFIX}*"), *models.glob(f"*/.{PREFIX}*-*")):
        with contextlib.suppress(OSError):  # somebody removes it meanwhile
            states = [file.stat() for file in folder.iterdir()]
            used = max((state.st_mtime for state in states), default=folder.stat().st_mtime)
            yield used, sum(state.st_size for state in states), folder
