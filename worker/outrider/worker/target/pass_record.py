"""Record of one verify pass of one sequence: the one thing that anything learns from."""

from dataclasses import dataclass

from outrider.worker.speculation.local_sources import SourceRows
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.growth import Ints


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What one verify pass did to one sequence."""

    sequence: Sequence
    computed: int
    """Rows of committed tokens, the root's among them."""
    nodes: int
    """Node rows."""
    live: int
    """Nodes of the mirror as rows were selected."""
    first_token: int
    """Likeliest token after the root, if its node was among the rows; else -1."""
    in_session: bool
    """True if a draft grew for it as the pass began; it may have ended since."""
    sources: SourceRows | None
    """Node rows by what proposed them; None: the draft proposed all."""
    accepted: int
    """Accepted node rows."""
    tokens: Ints
    """int32[n] committed tokens; none: no logit was a number."""
    survived: bool
    """True where the new root was in the mirror."""
    surplus: float
    """`first_child_surplus`."""
    draft_follows: bool = False
    """True where the draft has committed the tokens already."""
