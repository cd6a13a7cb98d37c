"""Layers of a simulated stage: KV holds the key of each row's path, and costs no time by itself.

A row's key follows from its parent's, read from the slot that the stage was told: a wrong slot, a
missed Move or a row that came too early gives another key, and so another text.
"""

import numpy as np
from numpy.typing import NDArray

from bench.flow.language import Language, step
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline.records import Floats, Ints

Keys = NDArray[np.uint64]


class PathLayers:
    """One stage's KV: a key for each slot."""

    def __init__(self, language: Language, slots: int, *, last: bool) -> None:
        self._language = language
        self._keys: Keys = np.zeros(slots, np.uint64)
        self._last = last
        self._logits = np.zeros((1, language.vocabulary), np.float32)

    def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
        """Write each row's key; raise `ValueError` where the stage before had another one."""
        keys = np.array([self._computed(rows, row) for row in range(rows.count)], np.uint64)
        if hidden is not None and not np.array_equal(hidden, packed(keys)):
            raise ValueError("two stages computed different paths for the same rows")
        return self._logits_after(keys[rows.outputs]) if self._last else packed(keys)

    def move(self, sources: Ints, destinations: Ints) -> None:
        """Copy keys."""
        self._keys[destinations] = self._keys[sources]

    def _computed(self, rows: Rows, row: int) -> int:
        position, token = int(rows.positions[row]), int(rows.tokens[row])
        before = self._language.seed
        if position:
            depth = int(rows.depth[row])
            parent = int(rows.ancestors[row, depth - 2]) if depth > 1 else position - 1
            block = rows.tables[rows.sequence[row], parent // BLOCK]
            before = int(self._keys[block * BLOCK + parent % BLOCK])
        key = step(before, token)
        self._keys[rows.slots[row]] = key
        return key

    def _logits_after(self, keys: Keys) -> Floats:
        if len(keys) > len(self._logits):
            self._logits = np.zeros((len(keys), self._language.vocabulary), np.float32)
        logits = self._logits[: len(keys)]
        logits[:] = 0
        for row, key in enumerate(keys.tolist()):
            logits[row, self._language.next_token(key)] = 1
        return logits


def packed(keys: Keys) -> Floats:
    """Return keys as floats that hold them exactly, float32[n, 4]."""
    return keys.view(np.uint16).reshape(-1, 4).astype(np.float32)
