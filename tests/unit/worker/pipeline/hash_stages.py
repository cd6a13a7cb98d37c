"""A model cut into stages whose KV is a hash of all that a row may see: any wrong slot shows."""

import hashlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling import reference
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.model.rows import Rows
from outrider.worker.sampling.params import SamplingParams

VOCABULARY = 12
Hashes = NDArray[np.uint64]
Path = tuple[int, ...]


def _hash(layer: int, own: int, seen: bytes) -> int:
    digest = hashlib.blake2b(seen, digest_size=8, key=layer.to_bytes(2, "little"))
    digest.update(own.to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little")


def _embedded(token: int, position: int) -> int:
    return _hash(1000, token, position.to_bytes(4, "little"))


@cache
def value_of(layer: int, path: Path) -> int:
    """Return the KV of a path's last token in one layer, as a fresh forward pass has it."""
    if layer == 0:
        return _embedded(path[-1], len(path) - 1)
    seen = [value_of(layer - 1, path[: end + 1]) for end in range(len(path))]
    return _hash(layer - 1, seen[-1], np.array(seen, np.uint64).tobytes())


@cache
def logits_of(value: int) -> NDArray[np.float32]:
    """Return float32[VOCABULARY]."""
    return np.random.default_rng(value).normal(0, 3, VOCABULARY).astype(np.float32)


class HashCut:
    """The model, cut into so many stages; the last one has two layers."""

    vocabulary = VOCABULARY

    def __init__(self, stages: int) -> None:
        self.stages = stages

    def layers(self, stage: int, slots: int) -> "HashLayers":
        """Return a stage, with a KV cache of so many slots."""
        layers = self.stages + 1
        last = layers if stage == self.stages - 1 else stage + 1
        return HashLayers(stage, last, layers, slots)

    def next_token(self, path: Path, prompt: int, sampling: SamplingParams) -> int:
        """Return what plain decoding samples after a path, whose first `prompt` tokens are one."""
        logits = logits_of(value_of(self.stages + 1, path))
        return sampled(logits, path, prompt, sampling)


def sampled(logits: NDArray[np.float32], path: Path, prompt: int, sampling: SamplingParams) -> int:
    """Return what is sampled after a path, by the reference's penalties."""
    adjusted = reference.adjust(logits, path[:prompt], path[prompt:], sampling)
    positions = np.array([len(path)])
    return int(Sampler(len(logits)).sample(adjusted[None], positions, sampling)[0])


class HashLayers:
    """Layers `first` to `last` - 1 of a model of `layers`, with their KV."""

    def __init__(self, first: int, last: int, layers: int, slots: int) -> None:
        self.first, self.last, self.layers = first, last, layers
        self.kv: Hashes = np.random.default_rng(first).integers(
            0, 2**64, (last - first, slots), np.uint64
        )

    def compute(self, rows: Rows, hidden: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Hash; hidden float32[n, 4] are the four parts of a hash, of 16 bits each."""
        assert (hidden is None) == (self.first == 0)
        values = self._embed(rows) if hidden is None else unpacked(hidden)
        for layer, kv in enumerate(self.kv, self.first):
            kv[rows.slots] = values
            seen = [kv[self._slots(rows, row)].tobytes() for row in range(rows.count)]
            both = zip(values.tolist(), seen, strict=True)
            values = np.array([_hash(layer, own, context) for own, context in both], np.uint64)
        if self.last < self.layers:
            assert len(rows.outputs) == 0
            return packed(values)
        logits = [logits_of(int(values[row])) for row in rows.outputs]
        return np.array(logits, np.float32).reshape(-1, VOCABULARY)

    def move(self, sources: NDArray[np.int32], destinations: NDArray[np.int32]) -> None:
        self.kv[:, destinations] = self.kv[:, sources]

    def held(self, slots: NDArray[np.bool_]) -> Hashes:
        """Return what slots hold, a column for each."""
        return self.kv[:, slots]

    def fresh(self, path: Path) -> list[int]:
        """Return the column that a fresh forward pass of a path leaves at its last token."""
        return [value_of(layer, path) for layer in range(self.first, self.last)]

    @staticmethod
    def _embed(rows: Rows) -> Hashes:
        both = zip(rows.tokens.tolist(), rows.positions.tolist(), strict=True)
        return np.array([_embedded(token, position) for token, position in both], np.uint64)

    @staticmethod
    def _slots(rows: Rows, row: int) -> NDArray[np.int32]:
        """The slots that a row sees, in logical order."""
        ancestors = rows.ancestors[row, : rows.depth[row]]
        seen = np.concatenate([np.arange(rows.prefix[row]), ancestors])
        assert len(seen) == rows.positions[row] + 1, "a row sees exactly its positions"
        table = rows.tables[rows.sequence[row]]
        slots: NDArray[np.int32] = table[seen // BLOCK] * BLOCK + seen % BLOCK
        assert slots[-1] == rows.slots[row], "a row sees itself last"
        return slots


def packed(values: Hashes) -> NDArray[np.float32]:
    """Return hashes as floats that hold them exactly, float32[n, 4]."""
    return values.view(np.uint16).reshape(-1, 4).astype(np.float32)


def unpacked(hidden: NDArray[np.float32]) -> Hashes:
    """Undo `packed`."""
    return hidden.astype(np.uint16).view(np.uint64).reshape(-1)
