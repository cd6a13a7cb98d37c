"""What a request makes of its logits before a token is drawn: penalties, biases, and a form.

One shaper for a sequence, none where its settings change nothing; it hears of every committed token
and changes a copy of the logits. Leaves the arithmetic to `outrider.kernels.sampling.penalties`,
what a form allows to `grammar`, the draw to `runner`, and which rows there are to the schedulers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.penalties import Adjuster
from outrider.worker.sampling.grammar import Grammar, Grammars
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.walk import Ints, Paths

NO_PATH = np.zeros((1, 0), np.int32)
"""Of a row that stands at the root."""


@dataclass(slots=True)
class LogitsProcessor:
    """One sequence's own; rows of a pass are shaped by the tokens committed up to then."""

    vocabulary: int
    adjuster: Adjuster | None
    grammar: Grammar | None

    @property
    def failure(self) -> str | None:
        """Why no token can be drawn for this sequence any more; None: one can."""
        return None if self.grammar is None else self.grammar.failure

    def commit(self, tokens: Ints) -> None:
        """Takes committed tokens of the answer."""
        if self.adjuster is not None:
            self.adjuster.add_answer(tokens)
        if self.grammar is not None:
            self.grammar.commit(tokens)

    def allowed(self, paths: Paths, tokens: Ints) -> NDArray[np.bool_] | None:
        """bool[nodes] which of the nodes may be drawn at all; None: each of them."""
        return None if self.grammar is None else self.grammar.allowed(paths, tokens)

    def shape(self, logits: NDArray[np.float32], paths: Ints) -> NDArray[np.float32]:
        """A changed copy [rows, vocabulary] of one sequence's logits [rows, >= vocabulary].

        `paths` int32[rows, deepest]: each row's tokens after the root, its own last, then -1.
        """
        shaped = np.array(logits[:, : self.vocabulary], np.float32, order="C")
        if self.adjuster is not None:
            self.adjuster.adjust(shaped, paths)
        if self.grammar is not None:
            self.grammar.mask(shaped, paths)
        return shaped


@dataclass(frozen=True, slots=True)
class LogitsProcessors:
    """Makes the shapers of one model's sequences."""

    vocabulary: int
    grammars: Grammars | None = None
    """None: no request asks for a form."""

    def ready(self, grammar: str) -> bool:
        """Whether `start` need not wait; begins to compile the grammar if that is missing."""
        return self.grammars is None or self.grammars.ready(grammar)

    def start(self, sampling: SamplingParams, prompt: Ints, grammar: str) -> LogitsProcessor | None:
        """The shaper of a request; None where it changes no logit."""
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
    """The tokens on the way to the root's row and to each node's, for `LogitsProcessor.shape`.

    `tokens` int32[nodes]; returns int32[nodes + 1, deepest] with -1 behind shorter paths.
    """
    if len(tokens) == 0:
        return NO_PATH
    table = np.full((len(tokens) + 1, paths.ancestors.shape[1]), -1, np.int32)
    table[1:] = np.where(paths.ancestors >= 0, tokens[paths.ancestors], np.int32(-1))
    return table
