"""A model whose logits are a hash of what each row can see: any wrong slot changes the text."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling import reference
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.kv.block_pool import BLOCK, BlockMoves, BlockPool, BlockTable, blocks_for
from outrider.worker.model.rows import Rows
from outrider.worker.sampling.params import SamplingParams

VOCABULARY = 64


class TokenPool(BlockPool):
    """A KV pool that holds the token of each slot instead of keys and values."""

    def __init__(
        self, sequences: int, longest: int, blocks: int | None = None, **options: Any
    ) -> None:
        blocks = blocks or sequences * blocks_for(longest)
        super().__init__(blocks, longest, **options)
        self.tokens = np.full(blocks * BLOCK, -1, np.int32)

    def _take(self, count: int) -> list[int]:
        taken = super()._take(count)
        for block in taken:
            self.tokens[block * BLOCK : (block + 1) * BLOCK] = -1
        return taken

    def expand(self, count: int) -> None:
        super().expand(count)
        self.tokens = np.concatenate([self.tokens, np.full(count * BLOCK, -1, np.int32)])

    def contract(self, count: int) -> BlockMoves | None:
        moves = super().contract(count)
        if moves is not None:
            blocks = self.tokens.reshape(-1, BLOCK)
            blocks[moves.destinations] = blocks[moves.sources]
            self.tokens = blocks[: self.blocks].reshape(-1).copy()
        return moves

    def move(
        self, block_table: BlockTable, sources: NDArray[np.int32], destinations: NDArray[np.int32]
    ) -> None:
        self.move_slots(block_table.slots(sources), block_table.writable(destinations))

    def move_slots(self, sources: NDArray[np.int32], destinations: NDArray[np.int32]) -> None:
        self.tokens[destinations] = self.tokens[sources]


@dataclass
class HashModel:
    """Logits of a row: a seeded function of its logical context, the last `memory` tokens of it."""

    kv_cache: TokenPool
    memory: int = 3
    noise: float = 0.0
    """Error of a draft, in logits."""
    rows_run: int = 0

    def forward(self, rows: Rows) -> NDArray[np.float32]:
        """[outputs, VOCABULARY]"""
        self.rows_run += rows.count
        self.kv_cache.tokens[rows.slots] = rows.tokens
        return np.stack(
            [self.logits(self.context(rows, i)) for i in rows.outputs]
            or [np.empty(VOCABULARY, np.float32)]
        )[: len(rows.outputs)]

    def context(self, rows: Rows, row: int) -> list[int]:
        """The tokens that a row sees, in logical order."""
        chain = rows.ancestors[row, : rows.depth[row]]
        seen = np.concatenate([np.arange(rows.prefix[row]), chain])
        table = rows.tables[rows.sequence[row]]
        context: list[int] = self.kv_cache.tokens[
            table[seen // BLOCK] * BLOCK + seen % BLOCK
        ].tolist()
        assert len(context) == rows.positions[row] + 1, "a row sees exactly its positions"
        assert min(context) >= 0, "a row sees no slot that holds nothing"
        return context

    def logits(self, context: list[int]) -> NDArray[np.float32]:
        """float32[VOCABULARY], peaked so that a noisy copy often agrees."""
        key = np.array([len(context), *context[-self.memory :]], np.int64).tobytes()
        seed = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
        generator = np.random.default_rng(seed)
        exact = generator.normal(0, 3, VOCABULARY)
        return (exact + self.noise * generator.normal(0, 1, VOCABULARY)).astype(np.float32)

    def text(
        self, prompt: list[int], sampler: Sampler, sampling: SamplingParams, count: int
    ) -> list[int]:
        """Return the text of plain decoding, computed without any engine."""
        tokens = list(prompt)
        for _ in range(count):
            answer = tokens[len(prompt) :]
            logits = reference.adjust(self.logits(tokens), prompt, answer, sampling)[None]
            tokens.append(int(sampler.sample(logits, np.array([len(tokens)]), sampling)[0]))
        return tokens[len(prompt) :]


class FlatCosts:
    """Step costs of a machine on which rows are nearly free."""

    def seconds(self, rows: int, context: int, sequences: int = 1) -> float:
        return 0.010 + 0.0001 * rows

    def curve(
        self, most: int, context: int, sequences: int = 1, base: int = 1
    ) -> NDArray[np.float64]:
        return 0.010 + 0.0001 * np.arange(base, base + most + 1)

    def prefill_curve(self, most: int, context: int, sequences: int) -> NDArray[np.float64]:
        return self.curve(most, context, sequences, sequences)
