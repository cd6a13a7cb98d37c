"""Lender: moves a draft's memory to its target's KV and back, as `speculation.draft_memory` says.

First what is lent leaves, then what borrows it grows, and back the same way: at no time is more in
use than the budget. Leaves the copy of weights to `model.movable_weights`, blocks to `kv`.
"""

import logging
from dataclasses import dataclass
from typing import Protocol

from outrider.contract.state import DraftMemoryState, Memory
from outrider.worker.kv.block_pool import BlockMoves
from outrider.worker.model.movable_weights import CopyFailed
from outrider.worker.speculation.draft_memory import OFFLOAD, DraftMemory, MemoryView

logger = logging.getLogger(__name__)


class Movable(Protocol):
    """Weights that can leave their memory; on a GPU by copies on a stream of their own.

    All calls raise `CopyFailed` where what they say could not be.
    """

    @property
    def bytes(self) -> int: ...
    def offload(self) -> None:
        """Begin to give their memory back."""

    def reload(self) -> None:
        """Begin to fill it again."""

    def finished(self) -> bool:
        """Return whether what was begun has ended."""


class SlabPool(Protocol):
    """Block pool that grows and shrinks by slabs."""

    @property
    def blocks(self) -> int: ...
    def expand(self, count: int) -> None: ...
    def contract(self, count: int) -> BlockMoves | None: ...


@dataclass(slots=True)
class MemoryLender:
    """Memory of one draft, and the two block pools."""

    memory: DraftMemory
    weights: Movable
    target_kv: SlabPool
    draft_kv: SlabPool
    block_bytes: tuple[int, int]
    """Bytes of a block of the target's KV and of the draft's."""
    expansions: int = 0
    contractions: int = 0
    moved_blocks: int = 0
    """Blocks that contractions have moved."""
    _draft_blocks: int = 0
    """Blocks that the draft's pool has while the draft has its memory."""

    def __post_init__(self) -> None:
        self._draft_blocks = self.draft_kv.blocks

    def offload(self, now: float) -> None:
        """Begin to lend; the draft has no session any more.

        Where that cannot be, the draft keeps its memory, and it is tried again after a while.
        """
        if self.draft_kv.contract(self._draft_blocks) is None:
            logger.error("a session of the draft holds KV while its memory is to go")
            self.memory.refuse(now)
            return
        try:
            self.weights.offload()
        except CopyFailed as error:
            logger.error("the draft's weights cannot go: %s", error)
            self.draft_kv.expand(self._draft_blocks)
            self.memory.refuse(now)
            return
        self.memory.begin(OFFLOAD)

    def reload(self, now: float) -> None:
        """Begin to take back; not yet where the target's sequences need the blocks."""
        moves = self.target_kv.contract(self.memory.lent)
        if moves is None:
            self.memory.put_off()
            return
        self.contractions += 1
        self.moved_blocks += len(moves.sources)
        try:
            self.weights.reload()
        except CopyFailed as error:
            logger.error("the draft's weights cannot come back: %s", error)
            self.target_kv.expand(self.memory.lent)
            self.memory.refuse(now)
            return
        self.memory.begin(DraftMemoryState.RELOADING)

    def poll(self, now: float) -> None:
        """End the move that is under way if its copy has ended."""
        try:
            if not self.weights.finished():
                return
            self.memory.end()
            if self.memory.away:
                self.expansions += 1
        except CopyFailed as error:
            logger.error("%s of the draft's weights failed: %s", self.memory.state, error)
            self.memory.fail(now)
        if self.memory.away:
            self.target_kv.expand(self.memory.lent)
        else:
            self.draft_kv.expand(self._draft_blocks)
        logger.info(
            "the draft's memory is %s: KV of the target has %d blocks",
            self.memory.state,
            self.target_kv.blocks,
        )

    def wanted(self, view: MemoryView, now: float) -> DraftMemoryState | None:
        """Return the move that is due, as `DraftMemory.wanted`."""
        return self.memory.wanted(view, now)

    def report(self) -> Memory:
        """Return who has how much now."""
        target, draft = self.block_bytes
        on_device = self.memory.state is not DraftMemoryState.ON_HOST
        return Memory(
            draft=self.memory.state,
            target_kv_bytes=self.target_kv.blocks * target,
            draft_kv_bytes=self.draft_kv.blocks * draft,
            draft_weight_bytes=self.weights.bytes if on_device else 0,
            lendable_bytes=self.memory.lent * target,
            expansions=self.expansions,
            contractions=self.contractions,
            moved_blocks=self.moved_blocks,
        )
