"""Draft tokens of a pipelined target out of its text: what followed where its end occurred before.

The leader sends rows as they become likely, so a text is searched once for each root: nodes that
were found behind an earlier root and survived stay on their way. Leaves what is found to
`speculation.suffix_source`, and whether the source may run to whoever calls it.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle, handle
from outrider.worker.speculation.suffix_automaton import MOST_READ, SuffixTables, read
from outrider.worker.speculation.suffix_source import add_from_text
from outrider.worker.target.request import Request
from outrider.worker.tree.mirror_table import MirrorTables


class TextTables(NamedTuple):
    """Arrays of one sequence's text and tree."""

    mirror: MirrorTables
    suffix: SuffixTables


@dataclass(slots=True, eq=False)
class TextSearch:
    """The text of one sequence, as a source of draft tokens."""

    sequence: Request
    tables: Handle[TextTables]
    searched: int = 0
    """Committed tokens when it was last searched."""
    read: int = 0
    """Committed tokens that were read before the answer began, at least."""

    @classmethod
    def of(cls, sequence: Request) -> Self:
        """Lay out the arrays of a sequence; nothing is read yet."""
        suffix = SuffixTables.empty(len(sequence.tokens))
        return cls(sequence, handle(TextTables(sequence.mirror.tables, suffix)))

    def read_on(self) -> None:
        """Read some more of the prompt, while the stages compute it."""
        if self.read < self.sequence.length:
            self.read += MOST_READ
            read_text(self.tables, self.sequence.length)

    def search(self, nodes: int, depth: int) -> None:
        """Add what may follow the root, if it has not been searched: at most so many nodes, none
        deeper than `depth` or than the tokens that may still be generated."""
        sequence = self.sequence
        if self.searched == sequence.length:
            return
        self.searched = sequence.length
        depth = min(depth, sequence.remaining - 1)
        if nodes > 0 and depth > 0:
            find(self.tables, nodes, depth)


@njit()
def read_text(text: Handle[TextTables], length: int) -> None:
    """Read the first `length` committed tokens, as many as are read at once."""
    read(text.value.suffix, text.value.mirror.tokens, length, MOST_READ)


@njit()
def find(text: Handle[TextTables], nodes: int, depth: int) -> int:
    """Do `add_from_text` by the handle of a sequence's arrays."""
    return int(add_from_text(text.value.mirror, text.value.suffix, nodes, depth))
