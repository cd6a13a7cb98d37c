"""A tiny Llama cut into stages, and the same model in one piece to compare with."""

from pathlib import Path as Folder

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.load import load_part
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.rows import Rows, prompt_rows
from outrider.worker.pipeline.cut import cut_as_given
from outrider.worker.sampling.params import SamplingParams
from tests.kv_arrays import keys_by_slot
from tests.unit.worker.pipeline.hash_stages import sampled
from tests.unit.worker.pipeline.path_draft import Path

Floats = NDArray[np.float32]
LONGEST = 6 * BLOCK
ROWS = LONGEST


def load(folder: Folder, layers: LayerRange, blocks: int) -> Llama:
    """Load some layers, in fp32."""
    model = PreparedModel("tiny", folder, folder, folder, "0" * 64)
    whole = model.config()
    config = layers.config(whole)
    weights = load_part(model, lambda name, tensor: tensor, lambda name: layers.holds(name, whole))
    kv_cache = HostKVCache(config.kv_shape, blocks, LONGEST)
    return Llama(config, weights, NumericPath.FP32, kv_cache, ROWS, PassOptions(layers=layers))


def columns(kv_cache: HostKVCache, slots: NDArray[np.bool_] | NDArray[np.int32]) -> Floats:
    """Return keys and values of slots, [layers, numbers, slots]."""
    kv_cache.run_moves()
    chosen = np.flatnonzero(slots) if slots.dtype == np.bool_ else slots
    keys = keys_by_slot(kv_cache.k_t)[..., chosen]
    values = kv_cache.v[:, :, chosen].swapaxes(2, 3)
    both: Floats = np.concatenate([keys, values], axis=2)
    layers, heads, size, count = both.shape
    return both.reshape(layers, heads * size, count)


class FreshPasses:
    """The model in one piece: what a forward pass over a whole path leaves behind."""

    def __init__(self, folder: Folder, layers: int) -> None:
        self.model = load(folder, LayerRange(0, layers, layers), LONGEST // BLOCK)
        self._kv: dict[Path, Floats] = {}
        self._logits: dict[Path, Floats] = {}

    def kv(self, path: Path) -> Floats:
        """Return keys and values of a path's last token, [layers, numbers]."""
        if path not in self._kv:
            self._run(path)
        return self._kv[path]

    def logits(self, path: Path) -> Floats:
        """Return logits after a path."""
        if path not in self._logits:
            self._run(path)
        return self._logits[path]

    def _run(self, path: Path) -> None:
        kv_cache = self.model.kv_cache
        table = kv_cache.admit(np.zeros(0, np.int32), len(path))
        assert table is not None
        rows = prompt_rows(np.array(path, np.int32), 0, table, wants_output=True)
        self._logits[path] = self.model.forward(rows)[0].copy()
        kv = columns(kv_cache, rows.slots)
        for end in range(len(path)):
            self._kv.setdefault(path[: end + 1], kv[..., end])
        kv_cache.free(table)


class LlamaLayers:
    """One stage."""

    def __init__(self, model: Llama, fresh: FreshPasses) -> None:
        self._model = model
        self._fresh = fresh

    def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
        return self._model.forward_layers(rows, hidden)

    def move(self, sources: NDArray[np.int32], destinations: NDArray[np.int32]) -> None:
        self._model.kv_cache.move_slots(sources, destinations)

    def held(self, slots: NDArray[np.bool_]) -> Floats:
        """Return what slots hold, a column for each."""
        found = columns(self._model.kv_cache, slots)
        layers, numbers, count = found.shape
        return found.reshape(layers * numbers, count)

    def fresh(self, path: Path) -> Floats:
        """Return the column that a fresh forward pass of a path leaves at its last token."""
        layers = self._model.layers
        return self._fresh.kv(path)[layers.first : layers.last].reshape(-1)


class LlamaCut:
    """The model in stages of so many layers each."""

    def __init__(
        self, folder: Folder, counts: tuple[int, ...], vocabulary: int | None = None
    ) -> None:
        """`vocabulary`: logits that are tokens; None: all."""
        self._folder = folder
        self._cut = cut_as_given(sum(counts), counts)
        self.fresh = FreshPasses(folder, sum(counts))
        self.stages = len(counts)
        self.vocabulary = vocabulary or self.fresh.model.config.outputs

    def layers(self, stage: int, slots: int) -> LlamaLayers:
        """Return a stage, with a KV cache of so many slots."""
        return LlamaLayers(load(self._folder, self._cut[stage], slots // BLOCK), self.fresh)

    def next_token(self, path: Path, prompt: int, sampling: SamplingParams) -> int:
        """Return what is sampled after a fresh pass over a path."""
        return sampled(self.fresh.logits(path)[: self.vocabulary], path, prompt, sampling)
