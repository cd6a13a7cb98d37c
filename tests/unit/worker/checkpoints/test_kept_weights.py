"""Packed weights that are kept: mapped instead of packed again, and lost without harm."""

import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from outrider.kernels.cpu.forward import PassWeights
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of
from outrider.kernels.cpu.packing import padded
from outrider.worker.checkpoints import kept_weights
from outrider.worker.checkpoints.array_file import DATA, INDEX
from outrider.worker.checkpoints.kept_weights import KeptWeights
from outrider.worker.checkpoints.load import CheckpointTensors, Floats, load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.matrix import Matrix
from outrider.worker.model.packing import pack_model
from outrider.worker.model.rows import prompt_rows
from outrider.worker.model.sharding import Shard
from outrider.worker.model.tensor_names import EMBEDDING
from tests.tiny_models import write_tiny

POSITIONS = 100


class Refused(Mapping[str, Floats]):
    """Tensors of a checkpoint that nobody may read, but for its embedding."""

    def __init__(self, tensors: Mapping[str, Floats]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Floats:
        assert name == EMBEDDING, f"{name} is read"
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("tensors are listed")

    def __len__(self) -> int:
        raise AssertionError("tensors are counted")


class Model(NamedTuple):
    prepared: PreparedModel
    config: ModelConfig
    tensors: Mapping[str, Floats]

    @property
    def kept(self) -> KeptWeights:
        return KeptWeights(self.prepared, Shard(self.config, 0, 1))

    @property
    def layers(self) -> LayerRange:
        return LayerRange.whole(self.config)

    def packed(self, path: NumericPath = NumericPath.INT8) -> PassWeights:
        """Packed now."""
        return pack_model(self.config, self.tensors, kind_of(path), POSITIONS, self.layers)

    def first(self, path: NumericPath = NumericPath.INT8) -> PassWeights:
        """As the first process has them."""
        return self.kept.packed(self.config, self.tensors, kind_of(path), POSITIONS, self.layers)

    def again(self, path: NumericPath = NumericPath.INT8) -> PassWeights:
        """As another process has them, which finds them there."""
        refused = Refused(self.tensors)
        return self.kept.packed(self.config, refused, kind_of(path), POSITIONS, self.layers)

    def folders(self) -> list[Path]:
        return sorted(self.prepared.cache.glob("packed-*"))


def model_in(folder: Path, cache: Path, **config: Any) -> Model:
    write_tiny(folder, "qwen2", **config)
    cache.mkdir(parents=True)
    prepared = PreparedModel("tiny", folder, folder, cache, "0" * 64)
    return Model(prepared, *load(prepared))


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return model_in(tmp_path / "model", tmp_path / "models" / "tiny", tie_word_embeddings=False)


def arrays(weights: Any) -> list[np.ndarray]:
    if isinstance(weights, np.ndarray):
        return [weights]
    return [array for part in weights for array in arrays(part)]


def assert_equal(found: PassWeights, wanted: PassWeights) -> None:
    for one, other in zip(arrays(found), arrays(wanted), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert np.array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize("path", NumericPath)
def test_another_process_gets_the_same_bits_and_packs_nothing(
    model: Model, path: NumericPath
) -> None:
    assert_equal(model.first(path), model.packed(path))
    assert_equal(model.again(path), model.packed(path))


@pytest.mark.parametrize("path", [NumericPath.FP32, NumericPath.INT8])
def test_passes_give_the_same_bits(model: Model, path: NumericPath) -> None:
    model.first(path)
    logits = []
    for pack, tensors in (
        (pack_model, model.tensors),
        (model.kept.packed, Refused(model.tensors)),
    ):
        kv_cache = HostKVCache(model.config.kv_shape, 3, 128)
        options = PassOptions(pack=pack)
        llama = Llama(model.config, tensors, path, kv_cache, 8, options)
        table = kv_cache.admit(np.empty(0, np.int32), 64)
        assert table is not None
        rows = prompt_rows(np.arange(5, dtype=np.int32), 0, table, True)
        logits.append(llama.forward(rows).copy())
    assert np.array_equal(*logits)


def test_arrays_are_of_the_types_that_compiled_code_has_seen(model: Model) -> None:
    kept = model.first()
    assert numba.typeof(kept) == numba.typeof(model.packed())
    assert kept.down.weights.ctypes.data % 64 == 0


def test_writing_to_weights_changes_nothing_for_others(model: Model) -> None:
    model.first().down.weights[:] = 0
    assert_equal(model.again(), model.packed())


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what is mapped")
def test_processes_share_the_pages_of_one_file(model: Model) -> None:
    weights = model.first()
    (folder,) = model.folders()
    begins = [
        int(line.split("-")[0], 16)
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(folder / DATA))
    ]
    assert any(0 <= weights.down.weights.ctypes.data - begin < 1 << 30 for begin in begins)


def damage_a_byte(folder: Path) -> None:
    with (folder / DATA).open("r+b") as file:
        file.seek(100)
        byte = file.read(1)
        file.seek(100)
        file.write(bytes([byte[0] ^ 1]))


def cut_short(folder: Path) -> None:
    with (folder / DATA).open("r+b") as file:
        file.truncate(1000)


def empty_index(folder: Path) -> None:
    (folder / INDEX).write_text(" " * (folder / INDEX).stat().st_size)


def lose_data(folder: Path) -> None:
    (folder / DATA).unlink()


@pytest.mark.parametrize("harm", [damage_a_byte, cut_short, empty_index, lose_data])
def test_what_is_damaged_is_made_again(model: Model, harm: Any) -> None:
    model.first()
    (folder,) = model.folders()
    harm(folder)
    assert_equal(model.first(), model.packed())
    assert_equal(model.again(), model.packed())
    assert model.folders() == [folder]


def test_each_form_has_its_own_place(model: Model) -> None:
    kept = model.kept
    other_weights = dataclasses.replace(model.prepared, revision="1" * 64)
    shares = [dataclasses.replace(kept, share=Shard(model.config, rank, 2)) for rank in (0, 1)]
    forms = [
        kept.folder(NumericKind.INT8, model.layers),
        kept.folder(NumericKind.INT8_AVX2, model.layers),
        kept.folder(NumericKind.INT4_AVX2, model.layers),
        dataclasses.replace(kept, prepared=other_weights).folder(NumericKind.INT8, model.layers),
        *(one.folder(NumericKind.INT8, model.layers) for one in shares),
        kept.folder(NumericKind.INT8, LayerRange(0, 1, model.config.layers)),
    ]
    assert len(set(forms)) == len(forms)


def test_a_cache_that_cannot_be_written_ends_no_start(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = dataclasses.replace(model.prepared, cache=tmp_path / "file" / "tiny")
    assert_equal(model._replace(prepared=nowhere).first(), model.packed())


def test_a_checkpoint_that_lacks_a_tensor_is_refused_and_leaves_nothing(model: Model) -> None:
    tensors = {name: value for name, value in model.tensors.items() if "down_proj" not in name}
    with pytest.raises(ModelError, match="down_proj"):
        model._replace(tensors=tensors).first()
    assert model.folders() == []


def test_the_least_used_goes_where_there_is_no_room(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        model_in(tmp_path / name, tmp_path / "models" / name, seed=seed)
        for seed, name in enumerate(("old", "new"), start=1)
    ]
    for number, one in enumerate((*others, model)):
        one.first()
        (folder,) = one.folders()
        for file in folder.iterdir():
            os.utime(file, (1000.0 + number, 1000.0 + number))
    size = sum(file.stat().st_size for file in model.folders()[0].iterdir())
    others[0].again()  # used now: it is the other's turn
    free = kept_weights.SHARE * padded(3 * size + size // 2, 64) - 3 * size
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, free))  # type: ignore[attr-defined]
    model.first(NumericPath.BF16)
    assert [len(one.folders()) for one in others] == [1, 0]
    assert len(model.folders()) >= 1


def test_what_would_fill_the_disk_is_not_kept(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 1000))  # type: ignore[attr-defined]
    assert_equal(model.first(), model.packed())
    assert model.folders() == []


def test_what_a_killed_process_left_is_removed(model: Model) -> None:
    left = model.prepared.cache / ".packed-0-1"
    left.mkdir()
    (left / DATA).touch()
    os.utime(left / DATA, (1000.0, 1000.0))
    model.first()
    assert not left.exists()


def test_a_tensor_is_read_when_it_is_asked_for(model: Model) -> None:
    asked = []

    def cut(name: str, tensor: Matrix) -> Matrix:
        asked.append(name)
        return tensor

    tensors = CheckpointTensors(model.prepared, cut)
    assert set(tensors) == set(model.tensors)
    assert asked == []
    assert np.array_equal(tensors[EMBEDDING], model.tensors[EMBEDDING])  # type: ignore[arg-type]
    assert asked == [EMBEDDING]
    with pytest.raises(KeyError):
        CheckpointTensors(model.prepared, cut, lambda name: name != EMBEDDING)[EMBEDDING]
