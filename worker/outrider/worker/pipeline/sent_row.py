"""A row that has left the leader, and what was sampled after it."""

from dataclasses import dataclass
from typing import NamedTuple

from outrider.worker.messages import TokenLogprob
from outrider.worker.tree.mirror import DRAFT

COMMITTED = -1
"""Tree slot of a row that was committed when it left."""


class Sampled(NamedTuple):
    """The target's choice after a row."""

    token: int
    """Negative if there is none."""
    logprob: TokenLogprob | None = None
    """None where it was not asked for."""


@dataclass(slots=True, eq=False)
class SentRow:
    """A root's or a node's row."""

    number: int
    segment: int
    """Number of the segment that carries it."""
    slot: int = COMMITTED
    """Its tree slot."""
    source: int = DRAFT
    """What its node was sent for, in the order of `SOURCES`; of no meaning for a root."""
    sampled: Sampled | None = None
    """None until its result is back."""
