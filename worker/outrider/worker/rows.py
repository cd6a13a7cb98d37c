"""What one forward pass is given: rows, each with its place in the KV pool and what it may see.

Built by the schedulers, read by the model. Knows nothing of requests, trees or torch.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Rows:
    """n rows; a row sees its region's first `prefix` slots, then its `ancestors`."""

    tokens: Int32  # [n] token ids
    positions: Int32  # [n] rotary positions
    slots: Int32  # [n] where each row's own KV is written
    base: Int32  # [n] first slot of the sequence's region
    prefix: Int32  # [n] committed slots visible from base; a prompt row's own slot is among them
    ancestors: Int32  # [n, max_depth] slots in depth order; a node row's own slot is the last
    depth: Int32  # [n] ancestors in use
    outputs: Int32  # [m] indices of the rows whose logits are wanted

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.tokens)


def prompt_rows(tokens: Int32, start: int, base: int, wants_output: bool) -> Rows:
    """Rows for committed tokens at positions start, start + 1, …; logits of the last on demand."""
    n = len(tokens)
    positions = np.arange(start, start + n, dtype=np.int32)
    return Rows(
        tokens=tokens,
        positions=positions,
        slots=positions + np.int32(base),
        base=np.full(n, base, np.int32),
        prefix=positions + np.int32(1),
        ancestors=np.zeros((n, 1), np.int32),
        depth=np.zeros(n, np.int32),
        outputs=np.array([n - 1] if wants_output else [], np.int32),
    )


def tree_rows(
    tokens: Int32,
    positions: Int32,
    slots: Int32,
    base: int,
    prefix: int,
    ancestors: Int32,
    depth: Int32,
) -> Rows:
    """Rows of one tree that all see the same prefix; every row's logits are wanted."""
    n = len(tokens)
    return Rows(
        tokens=tokens,
        positions=positions,
        slots=slots,
        base=np.full(n, base, np.int32),
        prefix=np.full(n, prefix, np.int32),
        ancestors=ancestors,
        depth=depth,
        outputs=np.arange(n, dtype=np.int32),
    )
