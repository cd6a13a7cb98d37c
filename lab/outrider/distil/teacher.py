"""The target as teacher of a text that is there: its features at every position.

They are those that it had if it wrote the text itself: rows do not change each other.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outrider.distil.answers import NO_TOKENS, all_wanted
from outrider.distil.engine import Engine
from outrider.distil.shards import features_file, load_texts, save_features
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.model.rows import prompt_rows


def features_of(engine: Engine, tokens: NDArray[np.int32]) -> NDArray[np.float16]:
    """Return the target's features of a text, [tokens - 1, hidden], as `Chat` has them."""
    block_table = engine.kv_cache.admit(NO_TOKENS, len(tokens))
    assert block_table is not None, "nothing else is in the pool"
    try:
        return np.concatenate(_read(engine, tokens[:-1], block_table))
    finally:
        engine.kv_cache.free(block_table)


def complete(engine: Engine, file: Path) -> None:
    """Make the features of a shard that are missing; raises `NotWritten`."""
    if not features_file(file).exists():
        save_features(file, [features_of(engine, tokens) for tokens, _ in load_texts(file)])


def _read(
    engine: Engine, tokens: NDArray[np.int32], block_table: BlockTable
) -> Sequence[NDArray[np.float16]]:
    found = []
    for begin in range(0, len(tokens), engine.row_capacity):
        part = tokens[begin : begin + engine.row_capacity]
        rows = all_wanted(prompt_rows(part, begin, block_table, wants_output=True))
        found.append(engine.run(rows).features.astype(np.float16))
    return found
