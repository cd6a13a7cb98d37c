"""The KV of one sequence: offsets, and the blocks of the pool that they lie in.

Which blocks those are is the pool's to say, what lies at which offset the sequence's.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]

BLOCK = 64
"""Slots of one block: the attention kernel's tile."""


def blocks_for(slots: int) -> int:
    """Blocks that hold so many slots."""
    return -(-slots // BLOCK)


@dataclass(slots=True, eq=False)
class BlockTable:
    """Offsets 0 … room - 1 of one sequence; committed position p lies at offset p, nodes behind.

    Made by `BlockPool.admit`; only the pool changes it.
    """

    table: Int32
    """[blocks] number of a block in the pool, by offset // 64; replaced, never written to."""
    cached: int
    """Tokens that had KV from the start: a multiple of 64."""
    published: int
    """Blocks at the front that may be shared: nothing may be written there any more."""
    digest: bytes
    """Of the last of those, and of all tokens before it."""
    findable: bool
    """Whether further blocks are published."""
    held: bool = True
    """Whether it has not been freed."""

    @property
    def room(self) -> int:
        """Offsets that it holds."""
        return len(self.table) * BLOCK

    def slots(self, offsets: Int32) -> Int32:
        """The pool's slots of offsets below `room`; same shape."""
        found: Int32 = self.table[offsets // BLOCK] * np.int32(BLOCK) + offsets % BLOCK
        return found

    def writable(self, offsets: Int32) -> Int32:
        """`slots` of offsets that are to be written.

        Raises `ValueError` if one is in a published block, which another sequence may read, or
        beyond `room`.
        """
        if len(offsets):
            least, most = int(offsets.min()), int(offsets.max())
            if least < self.published * BLOCK or most >= self.room:
                raise ValueError(
                    f"offsets {least} to {most} may not be written: those from "
                    f"{self.published * BLOCK} to {self.room - 1} may"
                )
        return self.slots(offsets)
