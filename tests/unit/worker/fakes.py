"""A model whose logits are a hash of what each row can see: any wrong slot changes the text."""

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.kernels import reference_sampling
from outrider.kernels.sampling import Sampler
from outrider.worker.rows import Rows
from outrider.worker.sampling import Sampling

VOCABULARY = 64


@dataclass
class TokenPool:
    """A KV pool that holds the token and the position of each slot instead of keys and values."""

    regions: int
    region: int
    tokens: NDArray[np.int32] = field(init=False)
    free_bases: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = np.full(self.regions * self.region, -1, np.int32)
        self.free_bases = [i * self.region for i in range(self.regions)]

    @property
    def used(self) -> int:
        return self.regions * self.region - len(self.free_bases) * self.region

    def allocate(self) -> int | None:
        return self.free_bases.pop() if self.free_bases else None

    def free(self, base: int) -> None:
        assert base not in self.free_bases
        self.tokens[base : base + self.region] = -1
        self.free_bases.append(base)

    def move(self, sources: NDArray[np.int32], destinations: NDArray[np.int32]) -> None:
        self.tokens[destinations] = self.tokens[sources]


@dataclass
class HashModel:
    """Logits of a row: a seeded function of its logical context, the last `memory` tokens of it."""

    pool: TokenPool
    memory: int = 3
    noise: float = 0.0
    """Error of a draft, in logits."""
    rows_run: int = 0

    def forward(self, rows: Rows) -> NDArray[np.float32]:
        """[outputs, VOCABULARY]"""
        self.rows_run += rows.count
        self.pool.tokens[rows.slots] = rows.tokens
        return np.stack(
            [self.logits(self.context(rows, i)) for i in rows.outputs]
            or [np.empty(VOCABULARY, np.float32)]
        )[: len(rows.outputs)]

    def context(self, rows: Rows, row: int) -> list[int]:
        """The tokens that a row sees, in logical order."""
        base, depth = rows.base[row], rows.depth[row]
        prefix = self.pool.tokens[base : base + rows.prefix[row]].tolist()
        tree = self.pool.tokens[rows.ancestors[row, :depth]].tolist()
        context = [*prefix, *tree]
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
        self, prompt: list[int], sampler: Sampler, sampling: Sampling, count: int
    ) -> list[int]:
        """What plain decoding writes, computed without any engine."""
        tokens = list(prompt)
        for _ in range(count):
            logits = reference_sampling.adjust(
                self.logits(tokens),
                prompt,
                tokens[len(prompt) :],
                sampling.frequency_penalty,
                sampling.presence_penalty,
                sampling.repetition_penalty,
                dict(sampling.logit_bias),
            )[None]
            tokens.append(int(sampler.draw(logits, np.array([len(tokens)]), sampling)[0]))
        return tokens[len(prompt) :]


class FlatCosts:
    """Step costs of a machine on which rows are nearly free."""

    def seconds(self, rows: int, context: int) -> float:
        return 0.010 + 0.0001 * rows

    def curve(self, max_rows: int, context: int) -> NDArray[np.float64]:
        return 0.010 + 0.0001 * np.arange(1, max_rows + 2)
