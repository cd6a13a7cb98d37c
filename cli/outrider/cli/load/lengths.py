"""Lengths of prompts and answers, sampled like those of ShareGPT conversations.

Means are those of the PagedAttention paper's ShareGPT traces (arXiv 2309.06180, figure 11: 161.31
prompt and 337.99 answer tokens). Spreads follow from the median and the 90th percentile of
Sarathi-Serve's (arXiv 2403.02310, table 2: prompts 1730 and 5696, answers 415 and 834), as
ln(p90 / median) / 1.2816. Making texts of such a length is `workload`'s.
"""

import math
import random
from dataclasses import dataclass

NORMAL_P90 = 1.2816
"""90th percentile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A log-normal distribution of a number of tokens."""

    mean: float
    sigma: float
    """Standard deviation of the logarithm."""

    @classmethod
    def spread_like(cls, mean: float, *, median: float, p90: float) -> "LogNormal":
        """With this mean, and as wide as a distribution with this median and 90th percentile."""
        return cls(mean, math.log(p90 / median) / NORMAL_P90)

    def sample(self, rng: random.Random) -> int:
        """A number of tokens, at least 1."""
        return max(
            1, round(rng.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma))
        )


SHAREGPT_PROMPT = LogNormal.spread_like(161.31, median=1730, p90=5696)
SHAREGPT_ANSWER = LogNormal.spread_like(337.99, median=415, p90=834)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of prompts and answers."""

    prompt: int | None = None
    """Tokens of every prompt, about; None samples."""
    answer: int | None = None
    """Most tokens of every answer; None samples."""
    longest_prompt: int = 1024
    """No sampled prompt is longer."""
    longest_answer: int = 1024
    """No sampled answer is longer."""

    def sample(self, rng: random.Random) -> tuple[int, int]:
        """Return the tokens of one prompt and of its answer; sample both always, so that fixing one
        keeps the other as it was."""
        prompt = min(SHAREGPT_PROMPT.sample(rng), self.longest_prompt)
        answer = min(SHAREGPT_ANSWER.sample(rng), self.longest_answer)
        return self.prompt or prompt, self.answer or answer
