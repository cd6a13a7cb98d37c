"""Memory that a target shares with the draft in its process: one budget for KV and draft weights.

Pure, in bytes of host memory. Leaves loading to `load_cpu`, and lending to `memory_lender`.
"""

from dataclasses import dataclass

from outrider.contract.settings import Role, WorkerSettings
from outrider.worker.errors import ModelError
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.launch.load import BEYOND
from outrider.worker.launch.load_cpu import block_bytes
from outrider.worker.launch.prepare import Models, context_of
from outrider.worker.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class SequenceBytes:
    """KV of one role, of sequences of the longest context."""

    blocks: int
    """Blocks of one sequence."""
    each: int
    """Bytes of one block, of all ranks."""

    @property
    def one(self) -> int:
        """Bytes of one sequence."""
        return self.blocks * self.each

    @classmethod
    def of(cls, settings: WorkerSettings, role: Role, config: ModelConfig) -> "SequenceBytes":
        """Return those of a model under its settings."""
        longest = context_of(settings, config.context) + BEYOND[role]
        return cls(blocks_for(longest), block_bytes(config, settings.tensor_parallel))


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The budget, `kv_bytes` of the target's settings, and who gets what of it."""

    kv_bytes: int
    running: int
    """Sequences at most."""
    target: SequenceBytes
    draft: SequenceBytes

    @classmethod
    def of(cls, settings: WorkerSettings, models: Models) -> "SharedMemory | None":
        """Return the budget of a target with a draft inside; None: its settings name none."""
        assert models.colocated is not None
        if settings.kv_bytes is None:
            return None
        inner = settings.for_colocated_draft()
        return cls(
            settings.kv_bytes,
            settings.max_running,
            SequenceBytes.of(settings, Role.TARGET, models.own.config()),
            SequenceBytes.of(inner, Role.DRAFT, models.colocated.config()),
        )

    @property
    def draft_kv(self) -> int:
        """Bytes of the draft's KV: what the same tokens take in it, one sequence at least and no
        more than all can use."""
        draft, target = self.draft, self.target
        share = self.kv_bytes * draft.each // (draft.each + target.each)
        return min(max(share, draft.one), self.running * draft.one)

    def target_kv(self, draft_weights: int) -> int:
        """Return the bytes that are left for the target's KV; raises `ModelError` if too few for
        one sequence."""
        left, one = self.kv_bytes - draft_weights - self.draft_kv, self.target.one
        if left < one:
            raise ModelError(
                f"settings.kv_bytes: {self.kv_bytes} is not allowed; the draft's weights take "
                f"{draft_weights} of it, its KV {self.draft_kv}, and KV of one sequence of the "
                f"target {one}: at least {draft_weights + self.draft_kv + one}"
            )
        return left
