"""Record of one verify pass of one sequence: what `TargetScheduler.apply` hands on.

In a pipelined target it is that of the results that moved the sequence's root.
"""

from typing import Generic, NamedTuple, TypeVar

from outrider.worker.messages import Finish
from outrider.worker.speculation.local_sources import SourceRows
from outrider.worker.target.request import Request
from outrider.worker.tree.growth import Ints

R = TypeVar("R", bound=Request)


class PassRecord(NamedTuple, Generic[R]):
    """What one verify pass did to one sequence."""

    sequence: R
    computed: int
    """Rows of committed tokens, the root's among them."""
    nodes: int
    """Node rows; in a pipelined target those that have left since the record before."""
    live: int
    """Nodes of the mirror as rows were selected."""
    first_token: int
    """Likeliest token after the root, if its node was among the rows; else -1."""
    in_session: bool
    """True if a draft had a session for it as the pass began; it may have ended since."""
    sources: SourceRows | None
    """Node rows by what proposed them; None: the draft proposed all."""
    accepted: int
    """Accepted node rows."""
    tokens: Ints
    """Committed tokens, int32[n]; none: no token could be sampled."""
    survived: bool
    """True where the new root was in the mirror."""
    surplus: float
    """`first_child_surplus`."""
    draft_follows: bool = False
    """True where the draft has committed the tokens already."""
    finish: Finish | None = None
    """Reason for which a pipelined target's request ends with them; None: it goes on."""
