"""Sampling params of a request, and the limits of each.

Leaves sampling itself to `outrider.kernels.sampling.gumbel_max`, what penalties and biases do to
logits to `outrider.kernels.sampling.penalties`.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.worker.errors import InvalidField

MAX_TEMPERATURE = 100.0
MAX_SEED = 2**64 - 1
MAX_CHOICE = 2**32 - 1
MAX_PENALTY = 2.0
MAX_REPETITION = 10.0
MAX_BIAS = 100.0
MAX_BIASES = 1024
MAX_MIN_TOKENS = 2**31 - 1
TEMPERATURE_LIMIT = f"it must be a finite number from 0 to {MAX_TEMPERATURE:g}"
PENALTY_LIMIT = f"it must be from {-MAX_PENALTY:g} to {MAX_PENALTY:g}"
REPETITION_LIMIT = f"it must be above 0, and at most {MAX_REPETITION:g}"

SETTINGS = np.dtype(
    [
        *(("seed", np.uint64), ("choice", np.uint32), ("top_k", np.uint32)),
        *((name, np.float64) for name in ("temperature", "top_p", "min_p")),
        *((f"{kind}_penalty", np.float64) for kind in ("frequency", "presence", "repetition")),
    ]
)
"""Layout of sampling params between processes, without biases and forbidden tokens."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Settings of one answer (speculation.md, Sampling); the defaults are greedy decoding."""

    temperature: float = 0.0
    """Divides the logits; 0 takes the likeliest token."""
    top_k: int = 0
    """Keeps the k likeliest tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keeps the smallest set whose probability reaches this share."""
    min_p: float = 0.0
    """Drops tokens less likely than this share of the likeliest."""
    seed: int = 0
    """Keys the noise, with `choice` and the position."""
    choice: int = 0
    """Index of this answer among the n answers of its request."""
    frequency_penalty: float = 0.0
    """Taken from a token's logit for each time that the answer holds it."""
    presence_penalty: float = 0.0
    """Taken once from the logit of each token that the answer holds."""
    repetition_penalty: float = 1.0
    """Divides positive logits of tokens that prompt or answer hold, multiplies negative ones."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Token ids, all different, and what is added to their logits."""
    min_tokens: int = 0
    """Tokens of the answer among which none of `late` is sampled."""
    late: tuple[int, ...] = ()
    """Token ids that end the answer."""
    forbidden: tuple[tuple[int, ...], ...] = ()
    """Sequences of token ids that the answer may not hold."""
    forced: tuple[int, ...] = ()
    """The first tokens of the answer, of which the client wants the log-probabilities."""

    @property
    def settings(self) -> tuple[Any, ...]:
        """Return the fields of `SETTINGS`."""
        return tuple(getattr(self, name) for name in SETTINGS.names or ())

    @property
    def greedy(self) -> bool:
        """True if no noise is added."""
        return self.temperature == 0.0

    @property
    def unfiltered(self) -> bool:
        """True if no top-k, top-p or min-p cuts the distribution; so for every greedy answer."""
        return self.greedy or (self.top_k == 0 and self.top_p >= 1 and self.min_p == 0)

    @property
    def adjusts(self) -> bool:
        """True if logits are changed before temperature and filters see them."""
        penalties = (self.frequency_penalty, self.presence_penalty, self.repetition_penalty)
        changes = penalties != (0.0, 0.0, 1.0) or bool(self.logit_bias)
        return changes or self.min_tokens > 0 or bool(self.forbidden or self.forced)

    def validate(self, vocabulary: int) -> None:
        """Raise `InvalidField` for the first setting out of its limits; ids are below
        `vocabulary`."""
        limits = {
            "temperature": (0 <= self.temperature <= MAX_TEMPERATURE, TEMPERATURE_LIMIT),
            "top_k": (self.top_k >= 0, "it must be 0 (off) or more"),
            "top_p": (0 < self.top_p <= 1, "it must be in (0, 1]"),
            "min_p": (0 <= self.min_p <= 1, "it must be in [0, 1]"),
            "seed": (0 <= self.seed <= MAX_SEED, "it must be in [0, 2^64)"),
            "choice": (0 <= self.choice <= MAX_CHOICE, "it must be in [0, 2^32)"),
            "frequency_penalty": (abs(self.frequency_penalty) <= MAX_PENALTY, PENALTY_LIMIT),
            "presence_penalty": (abs(self.presence_penalty) <= MAX_PENALTY, PENALTY_LIMIT),
            "repetition_penalty": (0 < self.repetition_penalty <= MAX_REPETITION, REPETITION_LIMIT),
        }
        for name, (holds, limit) in limits.items():
            require(holds, f"sampling.{name}", getattr(self, name), limit)
        self._validate_biases(vocabulary)
        self._validate_tokens(vocabulary)

    def _validate_biases(self, vocabulary: int) -> None:
        field, given = "sampling.logit_bias", self.logit_bias
        count = f"{len(given)} tokens"
        require(len(given) <= MAX_BIASES, field, count, f"it has at most {MAX_BIASES} tokens")
        require(len(dict(given)) == len(given), field, count, "they must be different")
        for token, bias in given:
            require(0 <= token < vocabulary, field, token, f"token ids are 0 to {vocabulary - 1}")
            require(
                -MAX_BIAS <= bias <= MAX_BIAS,
                f"{field}[{token}]",
                bias,
                f"it must be from {-MAX_BIAS:g} to {MAX_BIAS:g}",
            )

    def _validate_tokens(self, vocabulary: int) -> None:
        limit = f"it must be 0 to {MAX_MIN_TOKENS}"
        require(0 <= self.min_tokens <= MAX_MIN_TOKENS, "min_tokens", self.min_tokens, limit)
        words = self.forbidden
        require(all(words), "bad_words", "no tokens", "a word has at least one")
        held = {"stop_token_ids": self.late, "bad_words": tuple(itertools.chain(*words))}
        for name, ids in held.items():
            count = f"{len(ids)} tokens"
            require(len(ids) <= MAX_BIASES, name, count, f"it has at most {MAX_BIASES} tokens")
            for token in ids:
                limit = f"token ids are 0 to {vocabulary - 1}"
                require(0 <= token < vocabulary, name, token, limit)
        limit = f"token ids are 0 to {vocabulary - 1}"
        for token in self.forced:
            require(0 <= token < vocabulary, "prompt", token, limit)


def require(holds: bool, field: str, value: object, limit: str) -> None:
    """Raise `InvalidField` unless `holds`."""
    if not holds:
        raise InvalidField(field, value, limit)
