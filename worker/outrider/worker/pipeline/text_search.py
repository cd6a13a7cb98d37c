"""Draft tokens of a pipelined target out of texts: what followed where the end of its own occurred
before, and what its client expects.

The leader sends rows as they become likely, so a text is searched once for each root: nodes that
were found behind an earlier root and survived stay on their way. Leaves what is found to
`speculation.suffix_source` and `prediction_source`, and which may run to whoever calls it.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle, handle
from outrider.worker.speculation.prediction_source import (
    Prediction,
    add_predicted,
    index_prediction,
)
from outrider.worker.speculation.suffix_automaton import MOST_READ, SuffixTables, read
from outrider.worker.speculation.suffix_source import add_from_text
from outrider.worker.target.request import Request
from outrider.worker.tree.mirror_table import PREDICTION, SUFFIX, MirrorTables


class TextTables(NamedTuple):
    """Arrays of one sequence's texts and tree."""

    mirror: MirrorTables
    suffix: SuffixTables
    prediction: Prediction


@dataclass(slots=True, eq=False)
class TextSearch:
    """The texts of one sequence, as sources of draft tokens."""

    sequence: Request
    tables: Handle[TextTables]
    searched: int = 0
    """Committed tokens when it was last searched."""
    read: int = 0
    """Committed tokens that were read before the answer began, at least."""

    @classmethod
    def of(cls, sequence: Request) -> Self:
        """Lay out the arrays of a sequence; nothing is read yet but its prediction."""
        suffix = SuffixTables.empty(len(sequence.tokens))
        prediction = Prediction.of(sequence.submit.prediction, sequence.prompt_length)
        tables = handle(TextTables(sequence.mirror.tables, suffix, prediction))
        read_prediction(tables)
        return cls(sequence, tables)

    def read_on(self) -> None:
        """Read some more of the prompt, while the stages compute it."""
        if self.read < self.sequence.length:
            self.read += MOST_READ
            read_text(self.tables, self.sequence.length)

    def search(self, sources: int, nodes: int, depth: int) -> None:
        """Add what may follow the root, if it has not been searched, by these sources, a bit each:
        at most so many nodes of each, none deeper than `depth` or than the tokens that may still be
        generated."""
        sequence = self.sequence
        if self.searched == sequence.length:
            return
        self.searched = sequence.length
        depth = min(depth, sequence.remaining - 1)
        if nodes > 0 and depth > 0:
            find(self.tables, sources, nodes, depth)


@njit()
def read_text(text: Handle[TextTables], length: int) -> None:
    """Read the first `length` committed tokens, as many as are read at once."""
    read(text.value.suffix, text.value.mirror.tokens, length, MOST_READ)


@njit()
def read_prediction(text: Handle[TextTables]) -> None:
    """Do `index_prediction` by the handle of a sequence's arrays."""
    index_prediction(text.value.prediction)


@njit()
def find(text: Handle[TextTables], sources: int, nodes: int, depth: int) -> int:
    """Add what these sources, a bit each, find; return how many nodes are new."""
    mirror, added = text.value.mirror, 0
    if sources >> PREDICTION & 1:
        added += add_predicted(mirror, text.value.prediction, nodes, depth)
    if sources >> SUFFIX & 1:
        added += add_from_text(mirror, text.value.suffix, nodes, depth)
    return added
