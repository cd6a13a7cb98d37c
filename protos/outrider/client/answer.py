"""The results that a client gets: pieces of an answer, its cost, and the figures shown to people.

The one place where those figures are computed: the command line and the benchmarks read them here.
"""

import enum
from dataclasses import dataclass

from outrider.contract.inference import Timing, TokenLogprobs, Usage


class FinishReason(enum.StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    """The model's end-of-text token, or a stop string."""
    LENGTH = "length"
    """`max_tokens` was reached."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens that came together."""

    text: str
    """Their text; characters that need more bytes are held back until they are whole."""
    token_ids: tuple[int, ...]
    """Their ids."""
    passes: int = 1
    """Target passes that brought them; tokens beyond one a pass are accepted draft tokens."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """Log-probabilities of each token, if asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A whole answer. A figure is None where nothing was there to divide by."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    timing: Timing
    seed: int
    """The seed in force: asking again with it gives the same text."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """Log-probabilities of each token, if asked for."""

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first, by the seconds from the first token to the last."""
        return _ratio(self.usage.completion_tokens - 1, self.timing.decode_seconds)

    @property
    def tokens_per_pass(self) -> float | None:
        """Committed tokens by target passes; plain decoding has 1."""
        return _ratio(self.usage.completion_tokens - 1, self.usage.passes)

    @property
    def hit_rate(self) -> float | None:
        """Share of first draft tokens that were accepted."""
        return _ratio(self.usage.first_hits, self.usage.first_guesses)

    @property
    def acceptance(self) -> float | None:
        """Share of verified draft tokens that were committed."""
        return _ratio(self.usage.accepted_rows, self.usage.draft_rows)

    @property
    def gain(self) -> float | None:
        """Seconds that plain decoding would have taken, by seconds taken."""
        return _ratio(self.timing.plain_seconds, self.timing.decode_seconds)

    @property
    def draft_share(self) -> float | None:
        """Share of target passes in which the draft had something to offer."""
        return _ratio(self.usage.passes_with_nodes, self.usage.passes)


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None
