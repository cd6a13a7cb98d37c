"""Logits processors of one sequence: penalties, logit bias, grammar mask.

A sequence whose settings change no logit has none; it takes every committed token and changes a
copy of the logits. Leaves the arithmetic to `outrider.kernels.sampling.penalties`, masks to
`grammar`, sampling to the runner, and rows to the schedulers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.penalties import Adjuster
from outrider.worker.sampling.grammar import Grammar, Grammars
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.walk import Paths

NO_PATH = np.zeros((1, 0), np.int32)
"""Path of a row that stands at the root."""


@dataclass(slots=True)
class LogitsProcessor:
    """Changes the logits of one sequence's rows, by the tokens committed so far and their paths."""

    vocabulary: int
    adjuster: Adjuster | None
    grammar: Grammar | None

    @property
    def ready(self) -> bool:
        """True if `process` need not wait for a grammar."""
        return self.grammar is None or self.grammar.ready

    @property
    def failure(self) -> str | None:
        """Reason why no token can be sampled for this sequence any more; None: one can."""
        return None if self.grammar is None else self.grammar.failure

    def commit(self, tokens: Ints) -> None:
        """Take committed tokens of the answer."""
        if self.adjuster is not None:
            self.adjuster.add_answer(tokens)
        if self.grammar is not None:
            self.grammar.commit(tokens)

    def allowed(self, paths: Paths, tokens: Ints) -> NDArray[np.bool_] | None:
        """Return bool[nodes], True for nodes that may be sampled at all; None: each of them."""
        return None if self.grammar is None else self.grammar.allowed(paths, tokens)

    def process(self, logits: NDArray[np.float32], paths: Ints) -> NDArray[np.float32]:
        """Return a changed copy [rows, vocabulary] of one sequence's logits [rows, >= vocabulary].

        `paths` int32[rows, deepest]: each row's tokens after the root, its own last, then -1.
        """
        processed = np.array(logits[:, : self.vocabulary], np.float32, order="C")
        if self.adjuster is not None:
            self.adjuster.adjust(processed, paths)
        if self.grammar is not None:
            self.grammar.mask(processed, paths)
        return processed


@dataclass(frozen=True, slots=True)
class LogitsProcessors:
    """Makes the logits processors of one model's sequences."""

    vocabulary: int
    grammars: Grammars | None = None
    """None: no request asks for a response format."""

    def ready(self, grammar: str) -> bool:
        """True if `start` need not wait; begins to compile the grammar if that is missing."""
        return self.grammars is None or self.grammars.ready(grammar)

    def start(self, sampling: SamplingParams, prompt: Ints, grammar: str) -> LogitsProcessor | None:
        """Return the logits processor of a request; None where it changes no logit."""
        adjuster = matcher = None
        if sampling.adjusts:
            adjuster = Adjuster(self.vocabulary, sampling)
            adjuster.add_prompt(prompt)
        if grammar and self.grammars is not None:
            matcher = self.grammars.start(grammar)
        if adjuster is None and matcher is None:
            return None
        return LogitsProcessor(self.vocabulary, adjuster, matcher)


def path_tokens(paths: Paths, tokens: Ints) -> Ints:
    """Return the tokens from the root to each row, its own last, for `LogitsProcessor.process`.

    `tokens` int32[nodes]; returns int32[nodes + 1, deepest] with -1 behind shorter paths.
    """
    if len(tokens) == 0:
        return NO_PATH
    table = np.full((len(tokens) + 1, paths.ancestors.shape[1]), -1, np.int32)
    table[1:] = np.where(paths.ancestors >= 0, tokens[paths.ancestors], np.int32(-1))
    return table
